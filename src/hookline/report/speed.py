"""The parts of a run beside the model, whose limit is 0: waiting for data, hooks, the loop, validations, saves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookline.plan.cost_report import as_short

if TYPE_CHECKING:
    from hookline.plan.cost_report import CostReport
    from hookline.plan.costs import Total

#: The points that are called in every step.
FREQUENT = ("train_iter", "forward", "backward", "optimizer_step")
MODEL = ("forward", "backward", "optimizer")
#: A part that takes less of the whole run than this is not worth an act.
WORTH = 0.05


@dataclass(frozen=True)
class Shape:
    """The whole run, of which some steps were measured. What is unknown is None."""

    steps: int | None
    validations: int | None
    saves: int | None
    #: The batches of a validation that was measured, and of one of the whole run.
    batches: tuple[int, int] | None
    workers: int

    def rate(self, count: int | None) -> float:
        """Return how often something happens per step."""
        return count / self.steps if count and self.steps else 0.0


@dataclass(frozen=True)
class Part:
    """A part of a run: its seconds each time, how often it happens per step, what is beside it, and what to do."""

    name: str
    seconds: float
    per_step: float
    remark: str
    act: str = ""


@dataclass(frozen=True)
class Speed:
    """The parts of a run."""

    parts: tuple[Part, ...]

    @property
    def seconds_per_step(self) -> float:
        """Return the seconds of the whole run per step."""
        return sum(part.seconds * part.per_step for part in self.parts)

    def share(self, part: Part) -> float:
        """Return the share of a part of the whole run."""
        whole = self.seconds_per_step
        return part.seconds * part.per_step / whole if whole else 0.0

    def lines(self) -> list[str]:
        """Return the table, and the verdict."""
        head = f"{'':18}{'each':>10}{'of the run':>12}"
        rows = [
            f"{part.name:18}{as_short(part.seconds):>10}{self.share(part):>12.1%}  {part.remark}".rstrip()
            for part in self.parts
        ]
        return [head, *rows, "", self.verdict]

    @property
    def verdict(self) -> str:
        """Return one sentence, and one act."""
        model, *others = self.parts
        largest = max(others, key=self.share)
        if self.share(largest) < WORTH or not largest.act:
            return (
                f"The model takes {self.share(model):.0%} of the run. No other part with a remedy takes more than "
                f"{WORTH:.0%}, so only a faster step makes this run faster: threads, compile, precision."
            )
        share = f"{self.share(largest):.0%} of the run"
        return f"The largest part beside the model is {largest.name}: {share}. {largest.act}"


def speed_of(costs: CostReport, seconds: float, shape: Shape) -> Speed:
    """Return the parts of a run from the costs of some of its steps, which took this long in total."""
    steps, parts = costs.steps, costs.parts
    model = {name: parts[name].seconds / steps for name in MODEL}
    every_step = {
        hook.name: sum(total.seconds for point, total in hook.points.items() if point.endswith(FREQUENT)) / steps
        for hook in costs.hooks
    }
    others = sum(hook.total.seconds for hook in costs.hooks) / steps - sum(every_step.values())
    measured = sum(parts[name].seconds for name in ("data", "saving", "validation")) / steps + others
    rest = max(seconds / steps - sum(model.values()) - sum(every_step.values()) - measured, 0.0)
    slowest = max(every_step, key=every_step.__getitem__, default="")
    remark = f"most in {slowest}: {as_short(every_step[slowest])}" if slowest else ""
    found = [
        Part("the model", sum(model.values()), 1, ", ".join(f"{name} {as_short(one)}" for name, one in model.items())),
        Part(
            "waiting for data",
            parts["data"].seconds / steps,
            1,
            f"num_workers: {shape.workers}",
            f"Raise train.dataloader.num_workers (now {shape.workers}), or make reading a sample cheaper.",
        ),
        Part(
            *("hooks", sum(every_step.values()), 1, remark),
            f"Let {slowest} run less often (its interval, or @every), or make it cheaper.",
        ),
        Part("the loop", rest, 1, "with the measuring itself"),
    ]
    return Speed((*found, *_events(parts, model, shape)))


def _events(parts: Mapping[str, Total], model: Mapping[str, float], shape: Shape) -> list[Part]:
    """Return the validations and saves, which happen now and then."""
    found = []
    validation, saving = parts["validation"], parts["saving"]
    if validation.calls and shape.batches:
        per_batch = validation.seconds / validation.calls / shape.batches[0]
        batches, forward = shape.batches[1], as_short(model["forward"])
        remark = f"{batches:,} batches of {as_short(per_batch)}; a forward pass of training takes {forward}"
        act = "Validate less often (train.val_interval), on fewer batches (val.limit_batches), or in larger batches."
        found.append(Part("a validation", per_batch * batches, shape.rate(shape.validations), remark, act))
    if saving.calls:
        act = "Save less often (default_hooks.checkpoint.interval), or in the background (async_save: true)."
        found.append(Part("a save", saving.mean, shape.rate(shape.saves), "", act))
    return found
