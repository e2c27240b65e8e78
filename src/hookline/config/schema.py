"""The shape of a config: the sections of the YAML, as pydantic models. They mirror the constructor of `Runner`.

What a section builds by name (a model, a hook, ...) is open here; `check` looks at it with the named thing's own
signature.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from hookline.errors import HookError, nearest
from hookline.plan.points import user_point

Count = Annotated[int, Field(ge=1)]
Text = Annotated[str, Field(min_length=1)]


def _file_name(name: str) -> str:
    """Names that become part of file names stay inside of their folder."""
    if name in (".", "..") or any(character in "/\\" or ord(character) < 32 for character in name):
        raise PydanticCustomError("name", "this becomes part of file names, so it cannot be '..' or hold '/' or '\\'")
    return name


FileName = Annotated[Text, AfterValidator(_file_name)]


class Section(BaseModel):
    """A mapping with fixed keys."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Part(BaseModel):
    """Something to build: `type` names it, the other keys are its parameters."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    type: Text
    """A registered name, a short name of torch or torchmetrics, or 'module:Name' beside the config."""


class LoaderSection(Section):
    """Batches of a dataset, in an order that a run can be resumed in."""

    dataset: Part
    """What to read: a map-style dataset."""
    batch_size: Count = 1
    """Samples of a batch, per process."""
    shuffle: bool = False
    """Another order every epoch."""
    num_workers: Annotated[int, Field(ge=0)] = 0
    """Processes that read ahead; 0 reads in the training process."""
    drop_last: bool = False
    """Leave out a last batch that is not full."""
    collate_fn: Text | None = None
    """A function that makes a batch of samples, as 'module:function'."""
    persistent_workers: bool = False
    """Keep the workers from one epoch to the next."""
    pin_memory: bool = False
    """Put batches where a GPU can fetch them."""


def _loader_kind(value: Any) -> str:
    return "<part>" if isinstance(value, dict) and "type" in value else "<loader>"


Loader = Annotated[
    Annotated[LoaderSection, Tag("<loader>")] | Annotated[Part, Tag("<part>")], Discriminator(_loader_kind)
]


class TrainSection(Section):
    """How to train."""

    dataloader: Loader
    """The batches: a dataset, or 'type' with anything that gives a loader."""
    step: Text | None = None
    """'module:function' with (model, batch) in and the loss out; without one, the model is called with the batch."""
    max_epochs: Count | None = None
    """Train this many epochs; this or max_iters."""
    max_iters: Count | None = None
    """Train this many iterations; this or max_epochs."""
    val_interval: Count | None = None
    """Validate every so many epochs (1) or iterations (1,000), and after the last."""
    val_begin: Annotated[int, Field(ge=0)] = 1
    """The first epoch or iteration to validate after; 0 validates before the first step."""
    limit_batches: Count | None = None
    """Use only so many batches of each pass."""


class EvalSection(Section):
    """How to validate or test."""

    dataloader: Loader
    """The batches: a dataset, or 'type' with anything that gives a loader."""
    step: Text | None = None
    """'module:function' with (model, batch) in and (preds, target) out; without one, the model is called."""
    metrics: dict[FileName, Text | Part] | None = None
    """Name -> a metric of torchmetrics, or a function that is averaged by sample."""
    loss: Text | None = None
    """A training step whose loss is measured on this data too, as the metric 'loss'."""
    limit_batches: Count | None = None
    """Use only so many batches."""


class OptimizerPart(Part):
    """A torch optimizer and its parameters."""

    fused: bool | Literal["auto"] | None = "auto"
    """The fast implementation: wherever torch has one for the model's parameters, always, or never."""


class SchedulerPart(Part):
    """A torch scheduler and its parameters; 'auto' stands for the length of the training."""

    when: Literal["epoch", "iter", "step", "val"] | None = None
    """When it steps: every epoch, iteration, optimizer step or validation; else in the unit of the training."""
    monitor: Text | None = None
    """The metric that it looks at, with 'val'."""


class GroupSection(BaseModel):
    """Parameters of the model with options of their own."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    match: Text
    """Names of parameters, with * and ?: '*.bias'. The first group that matches a parameter takes it."""


class OptimSection(Section):
    """What updates the model."""

    optimizer: OptimizerPart
    """A torch optimizer."""
    schedulers: list[SchedulerPart] = []
    """Torch schedulers."""
    accumulate: Count = 1
    """Micro-batches of an update."""
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    """Clip gradients to this norm; this or clip_value."""
    clip_value: Annotated[float, Field(gt=0)] | None = None
    """Clip gradients to this value; this or clip_norm."""
    param_groups: list[GroupSection] = []
    """Parameters with options of their own."""
    params: Text | list[Text] | None = None
    """With several optimizers: which parameters this one updates, as patterns: 'generator.*'."""


def is_single(section: type[Section], value: Any) -> bool:
    """Whether a value is one section, and not a mapping of names to sections.

    It is where it has one of the section's keys. A misspelt key still counts as the key that it is near to, unless
    what stands there looks like a section itself.
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
    """Changes to the default hooks: parameters, the name of another hook, or null to leave one out."""

    runtime_info: HookValue = None
    """RuntimeInfoHook: epoch, iteration, learning rate and loss for the records."""
    timer: HookValue = None
    """IterTimerHook: how long iterations and loading take."""
    sampler_seed: HookValue = None
    """DistSamplerSeedHook: another order of the data every epoch, the same on all processes."""
    logger: HookValue = None
    """LoggerHook: numbers to the screen and to the writers."""
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
    """How to validate: one section, or several data sets by name."""
    test: Evals | None = None
    """How to test: one section, or several data sets by name."""
    optim: Optims | None = None
    """What updates the model: one section, or several by name."""
    default_hooks: DefaultHooksSection | None = None
    """Changes to the default hooks: parameters, or null to leave one out."""
    custom_hooks: list[Text | Part] = []
    """More hooks, with their parameters, priority and on_error."""
    writers: list[Text | Part] = ["jsonl"]
    """Where the records of the run go."""
    work_dir: Text | None = None
    """The folder of the run."""
    experiment_name: FileName | None = None
    """The name of the run; the folder's name unless given."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """What all randomness comes from."""
    device: Text = "auto"
    """'cpu', 'cuda:0', ..., or 'auto'."""
    strategy: Text = "auto"
    """How the model is spread over processes."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """What to compute in."""
    load_from: Text | None = None
    """A checkpoint whose weights the model starts with."""
    resume: bool | Text = False
    """true goes on from the newest checkpoint of work_dir, a path from that one."""
    points: Annotated[dict[str, list[str]], AfterValidator(_points)] | None = None
    """Points of one's own: name -> names of their arguments."""
    imports: list[Text] = []
    """Modules beside the config that are imported first, so that what they register can be named."""


def known_keys(keys: tuple[str | int, ...]) -> list[str]:
    """The keys that the section at these keys can have."""
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
