"""The verdict on a run: what stands out most, in one sentence, with its evidence and the next thing to do.

Every rule looks at one thing and returns a finding, or None. The finding with the greatest weight is the verdict; the
others are mentioned below it. A cost of less than a second in total is not worth a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hookline.common.durations import as_duration
from hookline.common.numbers import as_number, is_finite
from hookline.report.downsample import NO_GAP

if TYPE_CHECKING:
    from hookline.report.downsample import Buckets, Curve

#: The shares of a run's time from which on something stands out.
WAITING, SLOW_HOOK, SLOW_SAVES, SLOW_RANK = 0.3, 0.1, 0.15, 1.2
#: Anything that costs less than this in total, in seconds, is left out.
LEAST_SECONDS = 1.0
#: Memory has to grow by this factor and by this many bytes; the memory of tensors, which is exact, by fewer.
GROWTH, LEAST_BYTES, LEAST_TENSORS = 1.3, 64 << 20, 4 << 20
#: A spike is this many times as high as the level before it, and this many times the noise above it.
HIGH, ABOVE_NOISE, WINDOW = 2.0, 10.0, 20
#: A spike takes back at least this share of what the loss has fallen since the start.
LOST_PROGRESS = 0.25
#: Of the text of a failure, the first line is shown, and this many from its end: the hook, its file and line.
LAST_LINES = 3
#: The weight of a finding whose numbers are beyond all measure.
HEAVIEST = 1e6


@dataclass(frozen=True)
class Finding:
    """One thing that stands out: its kind, one sentence, its evidence, and the next thing to do."""

    kind: str
    text: str
    evidence: list[str]
    advice: str
    weight: float

    def __post_init__(self) -> None:
        # Hostile numbers may make it infinite, which JSON does not have.
        object.__setattr__(self, "weight", self.weight if is_finite(self.weight) else HEAVIEST)


NOTHING = Finding("healthy", "Nothing stands out.", [], "", 0.0)


def judge(data: Mapping[str, Any], curves: Mapping[str, Curve]) -> dict[str, Any]:
    """Return the verdict on a run, with the other findings as `others`."""
    rules: list[Callable[[Mapping[str, Any], Mapping[str, Curve]], Finding | None]] = [
        *(judge_end, judge_memory, judge_loss, judge_data, judge_hooks, judge_saves, judge_ranks)
    ]
    found = sorted((each for rule in rules if (each := rule(data, curves))), key=lambda each: -each.weight)
    first, *others = found or [NOTHING]
    if first is NOTHING:
        first = Finding("healthy", NOTHING.text, _checked(data, curves), "", 0.0)
    return {**asdict(first), "others": [asdict(each) for each in others]}


def _checked(data: Mapping[str, Any], curves: Mapping[str, Curve]) -> list[str]:
    """Return what was looked at, so that "nothing" is not taken for more than it is."""
    looked = ["the loss"] * bool(data["loss"]) + ["waiting for data"] * ("train/data_time" in curves)
    looked += ["hooks, saves and memory"] * bool(data["hooks"]) + ["ranks"] * ("train/ranks/slowest" in curves)
    return [f"Checked: {', '.join(looked)}."] if looked else ["There was nothing to check: no loss and no times."]


def judge_end(data: Mapping[str, Any], curves: Mapping[str, Curve]) -> Finding | None:
    """Find a run that failed or was killed."""
    if data["status"] == "killed":
        kills = sum(mark["kind"] == "kill" for mark in data["marks"])
        in_total = f" It was killed {kills} times in total." if kills > 1 else ""
        return Finding(
            "killed",
            f"The run was killed at step {data['steps']:,}.",
            [f"Its process is gone, and events.jsonl records no end.{in_total}"],
            "Continue it with: hookline train CONFIG --resume. If it happens again, look for a lack of memory.",
            11.0,
        )
    if data["status"] != "failed":
        return None
    failure = next((each for each in reversed(data["warnings"]) if each["kind"] == "failure"), None)
    step = failure["step"] if failure and failure["step"] is not None else data["steps"]
    lines = failure["text"].splitlines() if failure else []
    return Finding(
        "failed",
        f"The run failed at step {step:,}.",
        [lines[0], *lines[1:][-LAST_LINES:]] if lines else ["run.log has the reason."],
        "Fix the cause, and continue with: hookline train CONFIG --resume",
        11.0,
    )


def judge_data(data: Mapping[str, Any], curves: Mapping[str, Curve]) -> Finding | None:
    """Find steps that wait for data."""
    times, waits = _mean_of(curves.get("train/time")), _mean_of(curves.get("train/data_time"))
    if times is None or waits is None or times <= 0 or waits / times < WAITING or waits * data["steps"] < LEAST_SECONDS:
        return None
    workers = next((value for key, value in data["config"] if key.endswith("train.dataloader.num_workers")), "0")
    return Finding(
        "data",
        f"Training waits for data: {waits / times:.0%} of every step.",
        [f"A step takes {times * 1e3:.3g} ms, and {waits * 1e3:.3g} ms of it is waiting for the loader."],
        f"Raise num_workers of the training loader (now {workers}), or make reading and augmenting a sample cheaper.",
        waits / times,
    )


def judge_hooks(data: Mapping[str, Any], curves: Mapping[str, Curve]) -> Finding | None:
    """Find the hook that takes the most time, if that is too much."""
    costs = data["hooks"] or {}
    total = _number(costs.get("seconds"))
    hooks = {str(each.get("name")): _repeated(each) for each in costs.get("hooks", ()) if isinstance(each, dict)}
    spent = {name: sum(map(_seconds, points.values())) for name, points in hooks.items()}
    slow = max(spent, key=spent.__getitem__, default="")
    seconds = spent.get(slow, 0.0)
    if not total or seconds / total < SLOW_HOOK or seconds < LEAST_SECONDS:
        return None
    where, numbers = max(hooks[slow].items(), key=lambda item: _seconds(item[1]))
    mean, longest = _number(numbers.get("mean")), _number(numbers.get("longest"))
    return Finding(
        "hook",
        f"The hook {slow} takes {seconds / total:.0%} of the time.",
        [
            f"{as_duration(seconds)} of {as_duration(total)} in total, mostly at {where}: {mean * 1e3:.3g} ms per "
            f"call, {longest * 1e3:.3g} ms at most."
        ],
        f"Let {slow} run less often (its interval, or @every), or make it cheaper. A budget warns early: budget: 5%.",
        seconds / total,
    )


def _repeated(hook: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the costs of a hook at each point where more than one call was measured.

    Work that is done once, such as an import, cannot be done less often. One measured call shows nothing about others.
    """
    points = hook.get("points")
    return {
        str(name): each
        for name, each in (points.items() if isinstance(points, dict) else ())
        if isinstance(each, dict) and _number(each.get("measured", each.get("calls"))) > 1
    }


def _seconds(cost: Mapping[str, Any]) -> float:
    return _number(cost.get("seconds"))


def judge_saves(data: Mapping[str, Any], curves: Mapping[str, Curve]) -> Finding | None:
    """Find saves that take too much time."""
    costs = data["hooks"] or {}
    total = _number(costs.get("seconds"))
    given = dict(costs.get("parts") or {}).get("saving")
    saving: dict[str, Any] = given if isinstance(given, dict) else {}
    seconds = _number(saving.get("seconds"))
    if not total or seconds / total < SLOW_SAVES or seconds < LEAST_SECONDS:
        return None
    calls, mean = int(_number(saving.get("calls"))), _number(saving.get("mean"))
    return Finding(
        "saves",
        f"Saving checkpoints takes {seconds / total:.0%} of the time.",
        [f"{calls} saves took {as_duration(seconds)} of {as_duration(total)}, {as_duration(mean)} each."],
        "Save less often (default_hooks.checkpoint.interval), or in the background (async_save: true).",
        seconds / total,
    )


def judge_memory(data: Mapping[str, Any], curves: Mapping[str, Curve]) -> Finding | None:
    """Find memory that grows all the time, and the hook that keeps most of it."""
    costs = data["hooks"] or {}
    samples = [each for each in costs.get("memory") or () if isinstance(each, dict)]
    for name, least in (("device", LEAST_BYTES), ("tensors", LEAST_TENSORS), ("resident", LEAST_BYTES)):
        known = [(_number(each.get("step")), _number(each.get(name))) for each in samples if each.get(name) is not None]
        first = len(known) // 4
        keeper = _keeper(costs, name)
        if _grows(known, least, keeper is not None):
            break
    else:
        return None
    what = {"device": "Device memory", "tensors": "The memory of tensors", "resident": "Memory"}[name]
    (step, before), (last, after) = known[first], known[-1]
    return Finding(
        "memory",
        f"{what} grows all the time" + (f"; the hook {keeper[0]} keeps it." if keeper else "."),
        [f"From {_bytes(before)} at step {step:,.0f} to {_bytes(after)} at step {last:,.0f}."]
        + ([keeper[1]] if keeper else []),
        "Look for tensors that are kept with their graph: store loss.item() or loss.detach(), not the loss"
        + (f", in {keeper[0]}." if keeper else "."),
        10.0,
    )


def _grows(known: list[tuple[float, float]], least: float, kept: bool) -> bool:
    """Return whether values grow from their first quarter on, and do not slow down. Caches fill only in the beginning.

    With only two or three values, which do not show this, a hook has to be known that keeps the memory.
    """
    if len(known) < 2 or not (kept or len(known) >= 4):
        return False
    later = known[len(known) // 4 :]
    if later[-1][1] - later[0][1] < least or later[-1][1] < GROWTH * later[0][1]:
        return False
    if len(known) < 4:
        return True
    parts = [np.mean(part, axis=0) for part in np.array_split(np.array(later, np.float64), 3)]
    first, second = (float((b[1] - a[1]) / max(b[0] - a[0], 1)) for a, b in pairwise(parts))
    return first > 0 and second > 0.3 * first


def _keeper(costs: Mapping[str, Any], name: str) -> tuple[str, str] | None:
    """Return the hook that keeps most of the memory, and a sentence about it; None if no hook keeps much."""
    for kind, least in (
        (name, LEAST_TENSORS / 2 if name == "tensors" else LEAST_BYTES / 2),
        ("tensors", LEAST_TENSORS / 2),
    ):
        kept = {
            str(each.get("name")): _number(each["memory"].get(kind))
            for each in costs.get("hooks", ())
            if isinstance(each, dict) and isinstance(each.get("memory"), dict)
        }
        hook = max(kept, key=kept.__getitem__, default="")
        if hook and kept[hook] >= least:
            what = " of tensors" if kind == "tensors" else ""
            return hook, f"{hook} holds {_bytes(kept[hook])}{what}."
    return None


def judge_loss(data: Mapping[str, Any], curves: Mapping[str, Curve]) -> Finding | None:
    """Find a loss that spiked, or that is not a number."""
    name = data["loss"]
    curve = curves.get(name) if name is not None else None
    if curve is None:
        return None
    found = curve.buckets
    if curve.gaps:
        step = int(found.gap[found.gap != NO_GAP][0])
        return Finding(
            "loss",
            f"The loss is not a finite number at step {step:,}.",
            [f"{curve.gaps} of {curve.count:,} values of {name} are NaN or Inf."],
            "Lower the learning rate or clip gradients (optim.clip_norm). To find where it begins, use "
            "AutogradAnomalyHook.",
            9.0,
        )
    spike = find_spike(found)
    if spike is None:
        return None
    at, level = spike
    later = found.total[at + 1 : at + 1 + WINDOW] / np.maximum(found.count[at + 1 : at + 1 + WINDOW], 1)
    recovered = len(later) and float(np.median(later)) < (float(found.high[at]) + level) / 2
    return Finding(
        "loss",
        f"The loss spiked at step {int(found.high_step[at]):,}.",
        [
            f"{name} was {as_number(float(found.high[at]))} there, and about {as_number(level)} before; it "
            + ("came back down." if recovered else "did not come back down.")
        ],
        "Look at the data of that step, lower the learning rate, or clip gradients (optim.clip_norm).",
        8.0 if recovered else 8.5,
    )


def find_spike(found: Buckets) -> tuple[int, float] | None:
    """Return the bucket of the highest spike, and the level before it; None if there is none."""
    means = found.total / np.maximum(found.count, 1)
    window = min(WINDOW, len(means) // 3)
    if window < 3:
        return None
    start = float(np.median(means[: max(len(means) // 20, 3)]))
    # The windows before each bucket from the number `window` on.
    before, peaks = (
        np.lib.stride_tricks.sliding_window_view(each, window)[:-1] for each in (means, found.high - means)
    )
    levels = np.median(before, axis=1)
    noise = 1.5 * (np.median(np.abs(before - levels[:, None]), axis=1) + np.median(peaks, axis=1))
    rises = found.high[window:] - levels
    least = np.maximum(ABOVE_NOISE * noise, (HIGH - 1) * np.abs(levels))
    is_spike = rises > np.maximum(least, np.maximum(start - levels, 0.0) * LOST_PROGRESS)
    if not is_spike.any():
        return None
    at = int(np.argmax(np.where(is_spike, rises, -np.inf)))
    return at + window, float(levels[at])


def judge_ranks(data: Mapping[str, Any], curves: Mapping[str, Curve]) -> Finding | None:
    """Find a process that is slower than the others, if RankTimesHook has compared them."""
    slowest, fastest = _mean_of(curves.get("train/ranks/slowest")), _mean_of(curves.get("train/ranks/fastest"))
    ranks = curves.get("train/ranks/slowest_rank")
    if slowest is None or not fastest or ranks is None or slowest / fastest < SLOW_RANK:
        return None
    means = np.round(ranks.buckets.total / np.maximum(ranks.buckets.count, 1)).astype(int)
    numbers, counts = np.unique(means, return_counts=True)
    share = counts.max() / counts.sum()
    if share < 0.6 or counts.sum() < 3:
        return None
    parts = {
        part: _mean_of(curves.get(f"train/ranks/{part}_spread")) or 0.0
        for part in ("data", "forward", "backward", "hooks")
    }
    most = max(parts, key=parts.__getitem__)
    rank = int(numbers[counts.argmax()])
    return Finding(
        "rank",
        f"Rank {rank} is slow, and all others wait for it.",
        [
            f"Its own work takes {slowest * 1e3:.3g} ms per step, the fastest rank's {fastest * 1e3:.3g} ms. It "
            f"was the slowest in {share:.0%} of the records, mostly because of {most}: {parts[most] * 1e3:.3g} ms more."
        ],
        f"Look at the machine and at the data of rank {rank}: another process, a slower disk, or more work per batch.",
        1 - fastest / slowest,
    )


def _mean_of(curve: Curve | None) -> float | None:
    if curve is None or not curve.buckets.count.any():
        return None
    return float(curve.buckets.total.sum() / curve.buckets.count.sum())


def _number(value: Any) -> float:
    """Return a number of a file that anything may have written; 0 for anything else."""
    fine = isinstance(value, (int, float)) and not isinstance(value, bool) and is_finite(value)
    return float(value) if fine else 0.0


def _bytes(size: float) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
