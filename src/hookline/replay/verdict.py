"""Verdict: what a triage has found, in one sentence and with its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hookline.common.numbers import as_number, count

if TYPE_CHECKING:
    from hookline.replay.preparation import Task

#: The most samples that a sentence names.
MOST_SAMPLES = 8


def choose(findings: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the finding of the process in which it began; the others received it with the gradients."""

    def order(finding: dict[str, Any]) -> tuple[int, bool, bool, int]:
        origin = finding["origin"]
        received = origin is None or origin["kind"] == "outside"
        return finding["step"], received, finding["symptom"] != "loss", finding["rank"]

    return min(findings, key=order, default=None)


@dataclass
class Verdict:
    """Where NaN or Inf began.

    Args:
        task: The steps that were repeated.
        finding: What was found; None if all numbers were finite.
    """

    task: Task
    finding: dict[str, Any] | None

    @property
    def direction(self) -> str:
        """Return `forward`, `backward`, `update`, `between` (two steps), or the hook in which it began."""
        if self.finding is None:
            return ""
        symptom, origin = self.finding["symptom"], self.finding["origin"]
        phase = "" if origin is None else origin["phase"]
        known = phase.startswith("hook ") or symptom != "between"
        if phase and known and (symptom, phase) != ("gradient", "forward"):  # a number that only the gradient uses
            return str(phase)
        if symptom == "weight" and origin is not None and origin["kind"] == "data":
            return "forward"  # such as the statistics of a batch norm, although a hook has skipped the batch
        return {"loss": "forward", "gradient": "backward", "weight": "update", "between": "between"}.get(symptom, "")

    @property
    def samples(self) -> list[int] | None:
        """Return the samples, or rows, with which it began; None if it did not begin with some of them."""
        origin = None if self.finding is None else self.finding["origin"]
        if self.finding is None or origin is None or origin["rows"] is None:
            return None
        ids = self.finding["ids"]
        return [ids[row] for row in origin["rows"] if row < len(ids)]

    @property
    def module(self) -> str | None:
        """Return the name of the module in which it began; None outside of the model."""
        origin = None if self.finding is None else self.finding["origin"]
        return None if origin is None else origin["module"]

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        found = self.finding
        more = {} if found is None else {**found, "ids": self.samples, "module": self.module}
        return {"run": str(self.task.folder), **more, "direction": self.direction, "sentence": self.sentence}

    @property
    def sentence(self) -> str:
        """Return one sentence: the step, the pass, the module, and the samples."""
        found = self.finding
        if found is None:
            return f"no NaN or Inf was found in steps {self.task.start + 1} to {self.task.last}"
        rank = f" of rank {found['rank']}" if self.task.processes > 1 else ""
        where = {"forward": "in the forward pass", "backward": "in the backward pass", "update": "in the update"}
        where |= {"between": "before the step"}
        place = where.get(self.direction, f"in {self.direction}" if self.direction else "")
        term = f", in the term {', '.join(bad)}" if (bad := self._bad_terms(found)) else ""
        return f"it began in step {found['step']}{rank}{', ' * bool(place)}{place}: {self._cause(found)}{term}"

    def _bad_terms(self, found: dict[str, Any]) -> list[str]:
        """Return the terms of the loss that are not finite, if others are."""
        terms = {name: value for name, value in found["terms"].items() if name != "loss"}
        bad = [name for name, value in terms.items() if isinstance(value, str)]
        return bad if found["symptom"] == "loss" and len(bad) < len(terms) else []

    def _cause(self, found: dict[str, Any]) -> str:
        origin, names = found["origin"], ", ".join(found["names"])
        if origin is None:
            return {
                "loss": f"the loss became {found['loss']}, but no operation that was seen made it so",
                "gradient": f"the gradient of {names} is not finite, although the loss is",
                "weight": f"{names} became NaN or Inf",
                "between": f"{names} was NaN or Inf before the step began",
            }[found["symptom"]]
        kind, bad = origin["kind"], "NaN" if "NaN" in origin["result"] else "Inf"
        if kind == "data":
            finite = ", although the loss is finite" * (found["symptom"] == "gradient")
            return f"the data: {origin['name']} has {bad}{self._of_samples(found)}{finite}"
        if kind in ("parameter", "buffer"):
            first = found["step"] == self.task.start + 1
            since = f"at {self.task.begins_at}" if first and found["symptom"] == "between" else "before"
            return f"the {kind} {origin['name']} had {bad} {since}"
        if kind == "outside":
            return f"{origin['name']} has {bad}"
        if origin["phase"].startswith("hook ") and found["symptom"] in ("weight", "between", "gradient"):
            of = "the gradient of " * (found["symptom"] == "gradient")
            return f"it made {of}{names} {bad} ({origin['name']})"
        made = f"{origin['name']}{_in_module(origin)} made {bad}{self._of_samples(found)}"
        if origin["phase"] == "update" and found["symptom"] == "weight":
            return f"the optimizer made {names} {bad}, although the gradients are finite ({origin['name']})"
        if found["symptom"] == "gradient":
            what = "the gradient of " if origin["phase"] == "backward" else ""
            return f"{what}{made}, although the loss is finite"
        return made

    def _of_samples(self, found: dict[str, Any]) -> str:
        if (samples := self.samples) is None:
            return ""
        noun = "sample" if found["samples"] == "samples" else "row"
        if len(samples) == len(found["ids"]) > 1:
            return f" for all {len(samples)} {noun}s"
        more = f" and {len(samples) - MOST_SAMPLES} more" if len(samples) > MOST_SAMPLES else ""
        return f" for {noun}{'s' * (len(samples) > 1)} {', '.join(map(str, samples[:MOST_SAMPLES]))}{more}"

    def lines(self) -> list[str]:
        """Return the sentence and its evidence as lines."""
        found, failure = self.finding, self.task.capsule
        lines = [self.sentence]
        if found is None:
            return lines
        if failure is not None and failure.step != found["step"]:
            lines.append(f"  it was reported in step {failure.step}")
        lines.append(f"  batch {found['batch']} of epoch {found['epoch']}")
        if (origin := found["origin"]) is not None:
            lines += [f"  line: {origin['place']}"] * bool(origin["place"])
            lines += [f"  input: {text}" for text in origin["inputs"]]
            lines += [f"  result: {origin['result']}"] * bool(origin["result"])
        terms = {name: value for name, value in found["terms"].items() if name != "loss"}
        if terms and found["symptom"] == "loss":
            shown = ", ".join(f"{name} {as_number(value)}" for name, value in terms.items())
            lines.append(f"  the step returned: {shown}")
        if found["symptom"] in ("gradient", "weight", "between"):
            lines.append(f"  not finite: {', '.join(found['names'])}" + _more(found))
        if found["symptom"] != "loss" and found["loss"] is not None:
            lines.append(f"  the loss of this step: {as_number(found['loss'])}")
        if found["overflows"]:
            steps = ", ".join(map(str, found["overflows"][-MOST_SAMPLES:]))
            number = count(len(found["overflows"]), "step")
            lines.append(f"  the gradient scaler skipped {number} before, as usual: {steps}")
        if found["without_compiler"]:
            lines.append("  compiled code ran without its compiler in this step")
        elif not found["traced"]:
            lines.append("  it does not happen while operations are followed, so it may be due to compiled code")
        return lines


def _in_module(origin: dict[str, Any]) -> str:
    module, kind = origin["module"], origin["module_type"]
    if module is None:
        return f" in {kind}, outside of the model," if kind else ", outside of modules,"
    return f" in module '{module}' ({kind})" if module else f" in the model ({kind})"


def _more(found: dict[str, Any]) -> str:
    more = found["count"] - len(found["names"])
    return f" and {more} more" if more > 0 else ""
