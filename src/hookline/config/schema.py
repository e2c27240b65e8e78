"""The structure of a config: the sections of the YAML as pydantic models. They mirror the constructor of `Runner`.

The parameters of what a section builds by name (a model, a hook, ...) are not checked here. `validation` checks them
against the signature of the named class or function.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from hookline.common.checks import check_name
from hookline.errors import ConfigError, HookError, nearest
from hookline.plan.points import user_point

Count = Annotated[int, Field(ge=1)]
Text = Annotated[str, Field(min_length=1)]


def _file_name(name: str) -> str:
    """Refuse a name that could leave its folder when it becomes part of a file name."""
    if name in (".", "..") or any(character in "/\\" for character in name):
        raise PydanticCustomError(
            "name", "this becomes part of file names, so it cannot be '..' or contain '/' or '\\'"
        )
    try:
        check_name("this name", name)
    except ConfigError as error:
        raise PydanticCustomError("name", "{text}", {"text": str(error)}) from None
    return name


FileName = Annotated[Text, AfterValidator(_file_name)]


class Section(BaseModel):
    """A mapping with fixed keys."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Part(BaseModel):
    """Something to build: `type` names it, and the other keys are its parameters."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    type: Text
    """A registered name, a short name from torch or torchmetrics, or 'module:Name' next to the config."""


class LoaderSection(Section):
    """Loads batches of a dataset. A resumed run continues in the same order."""

    dataset: Part
    """The dataset to read: a map-style dataset."""
    batch_size: Count = 1
    """The number of samples per batch and process."""
    shuffle: bool = False
    """Use a different order in every epoch."""
    num_workers: Annotated[int, Field(ge=0)] = 0
    """The number of processes that load data in the background. 0 loads in the training process."""
    drop_last: bool = False
    """Skip the last batch if it is not full."""
    collate_fn: Text | None = None
    """A function that combines samples into a batch, as 'module:function'."""
    persistent_workers: bool = False
    """Keep the workers alive between epochs."""
    pin_memory: bool = False
    """Put batches into pinned memory, from which copying to a GPU is faster."""


def _loader_kind(value: Any) -> str:
    return "<part>" if isinstance(value, dict) and "type" in value else "<loader>"


Loader = Annotated[
    Annotated[LoaderSection, Tag("<loader>")] | Annotated[Part, Tag("<part>")], Discriminator(_loader_kind)
]


class TrainSection(Section):
    """How to train."""

    dataloader: Loader
    """The batches: a dataset, or 'type' with a function or class that returns a loader."""
    step: Text | None = None
    """'module:function' that takes (model, batch) and returns the loss. By default, the model gets the batch."""
    max_epochs: Count | None = None
    """Train for this many epochs. Set this or max_iters."""
    max_iters: Count | None = None
    """Train for this many iterations. Set this or max_epochs."""
    val_interval: Count | None = None
    """Validate once per this many epochs (default 1) or iterations (default 1,000), and after the last."""
    val_begin: Annotated[int, Field(ge=0)] = 1
    """The first epoch or iteration to validate after. 0 also validates before the first step."""
    limit_batches: Count | None = None
    """Use at most this many batches per pass over the data."""


class EvalSection(Section):
    """How to validate or test."""

    dataloader: Loader
    """The batches: a dataset, or 'type' with a function or class that returns a loader."""
    step: Text | None = None
    """'module:function' that takes (model, batch) and returns (preds, target). By default, the model is called."""
    metrics: dict[FileName, Text | Part] | None = None
    """The metrics by name: each a torchmetrics class, or a function that is averaged over samples."""
    loss: Text | None = None
    """A training step whose loss is also measured on this data, as the metric 'loss'."""
    limit_batches: Count | None = None
    """Use at most this many batches."""


class OptimizerPart(Part):
    """A torch optimizer and its parameters."""

    fused: bool | Literal["auto"] | None = "auto"
    """Use torch's fused implementation: 'auto' if there is one for the model's parameters, true always, false never."""


class SchedulerPart(Part):
    """A torch scheduler and its parameters. A parameter that is 'auto' becomes the length of training."""

    when: Literal["epoch", "iter", "step", "val"] | None = None
    """When it steps: every epoch, iteration, optimizer step or validation. The default is the unit of training."""
    monitor: Text | None = None
    """The metric that it monitors. Needs 'when: val'."""


class GroupSection(BaseModel):
    """Parameters of the model with their own options."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    match: Text
    """A pattern for parameter names, with * and ?: '*.bias'. Each parameter belongs to the first group that matches."""


class OptimSection(Section):
    """How to update the model."""

    optimizer: OptimizerPart
    """A torch optimizer."""
    schedulers: list[SchedulerPart] = []
    """Torch schedulers."""
    accumulate: Count = 1
    """The number of micro-batches per update."""
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    """Clip gradients to this norm. Set this or clip_value."""
    clip_value: Annotated[float, Field(gt=0)] | None = None
    """Clip gradients to this value. Set this or clip_norm."""
    param_groups: list[GroupSection] = []
    """Groups of parameters with their own options."""
    params: Text | list[Text] | None = None
    """With several optimizers: patterns for the parameters that this one updates, such as 'generator.*'."""


def is_single(section: type[Section], value: Any) -> bool:
    """Return whether a value is one section, and not a mapping of names to sections.

    It is one section if it has one of the section's keys. A misspelled key counts too, unless its value looks like a
    section itself.
    """
    fields = list(section.model_fields)

    def has_field(mapping: Any) -> bool:
        return isinstance(mapping, dict) and any(key in fields for key in mapping)

    if not isinstance(value, dict) or has_field(value):
        return True
    near = any(nearest(str(key), fields) and not has_field(inner) for key, inner in value.items())
    return near or not any(isinstance(inner, dict) for inner in value.values())


def _evals_kind(value: Any) -> str:
    return "<one>" if is_single(EvalSection, value) else "<many>"


def _optims_kind(value: Any) -> str:
    return "<one>" if is_single(OptimSection, value) else "<many>"


Evals = Annotated[
    Annotated[EvalSection, Tag("<one>")] | Annotated[dict[FileName, EvalSection], Tag("<many>")],
    Discriminator(_evals_kind),
]
Optims = Annotated[
    Annotated[OptimSection, Tag("<one>")] | Annotated[dict[FileName, OptimSection], Tag("<many>")],
    Discriminator(_optims_kind),
]

HookValue = Text | dict[str, Any] | None


class DefaultHooksSection(Section):
    """Changes to the default hooks: parameters, the name of another hook, or null to disable one."""

    runtime_info: HookValue = None
    """RuntimeInfoHook: records the epoch, iteration, learning rate and loss."""
    timer: HookValue = None
    """IterTimerHook: measures how long iterations and data loading take."""
    sampler_seed: HookValue = None
    """DistSamplerSeedHook: changes the order of the data every epoch, in the same way on all processes."""
    logger: HookValue = None
    """LoggerHook: sends numbers to the screen and to the writers."""
    param_scheduler: HookValue = None
    """ParamSchedulerHook: steps the schedulers."""
    checkpoint: HookValue = None
    """CheckpointHook: saves the state of the run."""


def _points(points: dict[str, list[str]]) -> dict[str, list[str]]:
    for name, arguments in points.items():
        try:
            user_point(name, arguments)
        except HookError as error:
            raise PydanticCustomError("point", "{text}", {"text": str(error)}) from None
    return points


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
    custom_hooks: list[Text | Part] = []
    """Additional hooks, with their parameters, priority and on_error."""
    writers: list[Text | Part] = ["jsonl"]
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
    """How the model is distributed: auto, single, ddp, fsdp, accelerate, or a mapping with the type and parameters."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """The number format to compute in."""
    load_from: Text | None = None
    """A checkpoint with the initial weights of the model."""
    resume: bool | Text = False
    """true resumes from the newest checkpoint in work_dir; a path resumes from that checkpoint."""
    points: Annotated[dict[str, list[str]], AfterValidator(_points)] | None = None
    """Custom points: the name of each, and the names of its arguments."""
    imports: list[Text] = []
    """Modules next to the config to import first, so that the config can use the names that they register."""


def known_keys(keys: tuple[str | int, ...]) -> list[str]:
    """Return the keys that the section at these keys can have."""
    sections: dict[str, type[BaseModel]] = {
        "train": TrainSection,
        "val": EvalSection,
        "test": EvalSection,
        "optim": OptimSection,
        "default_hooks": DefaultHooksSection,
    }
    if keys and keys[-1] == "dataloader":
        return list(LoaderSection.model_fields)
    return list((sections.get(str(keys[0]), Part) if keys else Config).model_fields)
