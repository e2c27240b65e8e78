"""The structure of a config: the sections of the YAML as pydantic models. They mirror the constructor of `Runner`.

The parameters of what a section builds by name (a model, a hook, ...) are not checked here. `validation` checks them
against the signature of the named class or function.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from hookline.config.sections import (
    Count,
    DefaultHooksSection,
    Evals,
    EvalSection,
    FileName,
    LoaderSection,
    Optims,
    OptimSection,
    Part,
    Precision,
    RangeSection,
    Section,
    SweepSection,
    Text,
    TrainSection,
)
from hookline.errors import ConfigError, HookError
from hookline.plan.budgets import parse_budget
from hookline.plan.points import user_point
from hookline.run.keep import parse_keep


def _points(points: dict[str, list[str]]) -> dict[str, list[str]]:
    for name, arguments in points.items():
        try:
            user_point(name, arguments)
        except HookError as error:
            raise PydanticCustomError("point", "{text}", {"text": str(error)}) from None
    return points


def _budget(given: Any) -> Any:
    try:
        parse_budget(given)
    except HookError as error:
        raise PydanticCustomError("budget", "{text}", {"text": str(error)}) from None
    return given


def _keep(given: Any) -> Any:
    try:
        parse_keep(given)
    except ConfigError as error:
        raise PydanticCustomError("keep", "{text}", {"text": str(error)}) from None
    return given


def _compile_option(given: Any) -> Any:
    if not isinstance(given, (bool, int, float)):
        raise PydanticCustomError(
            "option",
            "expected true, false or a number; a text can name a command, so only Python code may set it",
        )
    return given


CompileOption = Annotated[Any, AfterValidator(_compile_option), WithJsonSchema({"type": ["boolean", "number"]})]


class CompileSection(Section):
    """Parameters of torch.compile."""

    mode: Text | None = None
    """default, reduce-overhead, max-autotune, ..."""
    backend: Text = "inductor"
    """The compiler."""
    fullgraph: bool = False
    """Refuse a model that cannot be compiled as a whole."""
    dynamic: bool | None = None
    """Compile for any batch size. By default, torch decides."""
    options: dict[str, CompileOption] | None = None
    """Options of the backend: switches and numbers. A text can name a command, so only Python code may set it."""


class Config(Section):
    """A run of hookline."""

    model: Part
    """The model: a torch.nn.Module."""
    train: TrainSection | None = None
    """How to train."""
    val: Evals | None = None
    """How to validate: one section, or several datasets by name."""
    test: Evals | None = None
    """How to test: one section, or several datasets by name."""
    optim: Optims | None = None
    """How to update the model: one section, or several by name."""
    default_hooks: DefaultHooksSection | None = None
    """Changes to the default hooks: parameters, or null to disable one."""
    custom_hooks: list[Text | Part] = []  # noqa: RUF012  # pydantic copies it
    """Additional hooks, with their parameters, priority and on_error."""
    budget: Annotated[Text | float, AfterValidator(_budget)] | None = None
    """The share of the training time that each observer may take, such as 5%. More is reported."""
    writers: list[Text | Part] = ["jsonl"]  # noqa: RUF012  # pydantic copies it
    """The destinations for the records of the run."""
    work_dir: Text | None = None
    """The folder of the run."""
    experiment_name: FileName | None = None
    """The name of the run. The default is the name of its folder."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """The seed for all random numbers."""
    device: Text = "auto"
    """'cpu', 'cuda:0', ..., or 'auto'."""
    strategy: Text | dict[str, Any] = "auto"
    """The distribution over processes: auto, single, ddp, fsdp, accelerate, or a mapping with type and parameters."""
    precision: Precision = "fp32"
    """The number format to compute in. Other names for these are accepted, such as 'bf16-mixed' and '16-mixed'."""
    load_from: Text | None = None
    """A checkpoint with the initial weights of the model."""
    resume: bool | Text = False
    """true resumes from the newest checkpoint in work_dir; a path resumes from that checkpoint."""
    trial_batch: bool = True
    """Try one batch of every validation and test set before the first step."""
    compile: bool | CompileSection = False
    """Compile the model with torch.compile: true, or its parameters. Hooks stay outside the compiled code."""
    channels_last: bool = False
    """Keep the weights of 2d convolutions in the memory format channels_last."""
    threads: Count | Literal["auto"] | None = None
    """The number of threads that torch computes with on the CPU: a number, or auto for a measured choice."""
    prefetch: bool = True
    """Move the next batch to a GPU while the current one is computed."""
    keep: Annotated[Text | list[Text] | dict[str, Text], AfterValidator(_keep)] | None = None
    """Who wins where a checkpoint and the config differ: config or checkpoint, for all keys or one (lr=config)."""
    points: Annotated[dict[str, list[str]], AfterValidator(_points)] | None = None
    """Custom points: the name of each, and the names of its arguments."""
    imports: list[Text] = []  # noqa: RUF012  # pydantic copies it
    """Modules next to the config to import first, so that the config can use the names that they register."""
    sweep: SweepSection | None = None
    """The search space and the options of `hookline sweep`."""


def known_keys(keys: tuple[str | int, ...]) -> list[str]:
    """Return the keys that the section at these keys can have."""
    sections: dict[str, type[BaseModel]] = {
        "train": TrainSection,
        "val": EvalSection,
        "test": EvalSection,
        "optim": OptimSection,
        "default_hooks": DefaultHooksSection,
        "sweep": SweepSection,
        "compile": CompileSection,
    }
    if keys[:2] == ("sweep", "space"):
        return list(RangeSection.model_fields)
    if keys and keys[-1] == "dataloader":
        return list(LoaderSection.model_fields)
    return list((sections.get(str(keys[0]), Part) if keys else Config).model_fields)
