"""The sections of a config: loops, loaders, optimizers, hooks, and the search space of a sweep."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, WithJsonSchema
from pydantic_core import PydanticCustomError

from hookline.common.checks import check_name, check_workers
from hookline.common.marks import show
from hookline.common.precision import ALIASES, NUMBERS, PRECISIONS, WEIGHTS, precision_of
from hookline.data.skipping import parse_skip
from hookline.errors import MOST_NAMES, ConfigError, nearest

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


def _precision(given: str | int) -> str | int:
    try:
        precision_of(given)
    except ConfigError as error:
        if given in WEIGHTS:
            raise PydanticCustomError("precision", "{text}", {"text": str(error)}) from None
        known = "'fp32', 'bf16' or 'fp16'"
        raise PydanticCustomError("precision", "{text}", {"text": f"expected {known}, found {show(given)}"}) from None
    return given


Precision = Annotated[
    str | int,
    AfterValidator(_precision),
    WithJsonSchema({"enum": [*PRECISIONS, *ALIASES, *NUMBERS]}),
]


def _workers(given: int) -> int:
    try:
        check_workers(given)
    except ConfigError as error:
        raise PydanticCustomError("workers", "{text}", {"text": str(error)}) from None
    return given


Workers = Annotated[int, Field(ge=0), AfterValidator(_workers)]


def _skipped(given: Any) -> Any:
    try:
        parse_skip(given)
    except ConfigError as error:
        text = str(error).removeprefix("skip").removeprefix(":").strip()  # the key is named before it
        raise PydanticCustomError("skip", "{text}", {"text": text}) from None
    return given


_BATCHES = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": r"^[0-9]+(-[0-9]+)?$"}]}
Skipped = Annotated[
    Any,
    AfterValidator(_skipped),
    WithJsonSchema({"anyOf": [*_BATCHES["anyOf"], {"type": "array", "items": _BATCHES}]}),
]


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
    num_workers: Workers = 0
    """The number of processes that load data in the background. 0 loads in the training process."""
    drop_last: bool = False
    """Skip the last batch if it is not full."""
    collate_fn: Text | Part | None = None
    """A function that combines samples into a batch, as 'module:function', or a mapping with type and parameters."""
    persistent_workers: bool = False
    """Keep the workers alive between epochs."""
    pin_memory: bool | Literal["auto"] = "auto"
    """Put batches into pinned memory, from which copying to a GPU is faster. auto does so if the run uses a GPU."""


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
    weigh: Text | None = None
    """'module:function' that takes a batch and returns how much it counts, such as its tokens. By default, samples."""
    skip: Skipped | None = None
    """Batches to leave out, by the step that would get them: numbers, and ranges such as 8120-8130."""


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
    weigh: Text | None = None
    """'module:function' that takes a batch and returns how much it counts in means. By default, samples."""


class OptimizerPart(Part):
    """A torch optimizer and its parameters."""

    fused: bool | Literal["auto"] | None = "auto"
    """Use torch's fused implementation: 'auto' if there is one for the model's parameters, true always, false never."""


#: A user's own scheduler may have a parameter of this name, of any type. `validation` checks the value.
WarmupValue = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
                {"type": "null"},
            ]
        }
    ),
]


class SchedulerPart(Part):
    """A schedule (cosine, linear, constant, wsd) or a torch scheduler, and its parameters.

    A parameter that is 'auto' becomes the length of training.
    """

    when: Literal["epoch", "iter", "step", "val"] | None = None
    """When it steps: every epoch, iteration, optimizer step or validation. The default is the unit of training.
    cosine, linear, constant and wsd step every iteration."""
    warmup: WarmupValue = None
    """The iterations in which the rate rises linearly: a number, or a share of the run (below 1). With 'when: step',
    optimizer steps."""
    monitor: Text | None = None
    """The metric that it monitors. Needs 'when: val'."""


class GroupSection(BaseModel):
    """Parameters of the model with their own options."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    match: Text | Annotated[list[Text], Field(min_length=1)]
    """Patterns for parameter names, with * and ?: '*.bias'. Each parameter belongs to the first group that matches."""


class OptimSection(Section):
    """How to update the model."""

    optimizer: OptimizerPart
    """A torch optimizer."""
    schedulers: list[SchedulerPart] | None = []
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
    first = islice(value.items(), MOST_NAMES)  # of very many keys, some are enough
    near = any(nearest(str(key), fields) and not has_field(inner) for key, inner in first)
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
    report: HookValue = None
    """ReportHook: writes report.html, a page about the run, when it has ended."""


class RangeSection(Section):
    """All numbers between two limits: ints if all of them are ints."""

    low: int | float
    """The lowest value."""
    high: int | float
    """The highest value."""
    log: bool = False
    """Use a logarithmic scale, so that 0.001 to 0.01 is as likely as 0.01 to 0.1."""
    step: int | float | None = None
    """Use only every step-th value."""


class ValuesSection(Section):
    """A list of values."""

    values: list[Any]
    """The values, without an order."""


def _space_kind(value: Any) -> str:
    if isinstance(value, list):
        return "<list>"
    if isinstance(value, dict):
        return "<values>" if "values" in value else "<range>"
    return "<text>"


SpaceValue = Annotated[
    Annotated[RangeSection, Tag("<range>")]
    | Annotated[ValuesSection, Tag("<values>")]
    | Annotated[list[Any], Tag("<list>")]
    | Annotated[Text, Tag("<text>")],
    Discriminator(_space_kind),
]


class SweepSection(Section):
    """The search space and the options of `hookline sweep`. The command line wins."""

    space: dict[Text, SpaceValue] = {}
    """The search space, by keys such as optim.optimizer.lr: a list, a range, or a text such as '1e-4..1e-1:log'."""
    metric: Text | None = None
    """The metric of the validation to optimize, such as val/accuracy."""
    direction: Literal["maximize", "minimize"] | None = None
    """The better direction: maximize or minimize. By default, the name of the metric decides."""
    trials: Count | None = None
    """The total number of trials."""
    sampler: Literal["tpe", "random", "grid"] | None = None
    """The method that chooses the values of the next trial."""
    pruner: Literal["median", "hyperband", "none"] | None = None
    """The method that ends trials early if they are worse than others."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    """The seed of the choice of values."""
