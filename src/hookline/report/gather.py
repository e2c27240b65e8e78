"""Everything that a page shows about a run, as one dict of plain data.

    gather("runs/digits")["verdict"]["text"]     "Nothing stands out."

Names of metrics, hooks and keys are values in lists, never keys of a dict: any text may be such a name.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from hookline.checkpoint import folders
from hookline.common.durations import as_duration
from hookline.common.files import real_path
from hookline.common.numbers import as_number, as_repr, count
from hookline.common.version import VERSION
from hookline.errors import HooklineError
from hookline.report import costs, plan_picture, story
from hookline.report.differences import compare
from hookline.report.downsample import Curve, rounded
from hookline.report.foreign import find_own_sources, find_sources, read_sources
from hookline.report.images import MOST_BYTES, Images, read_images
from hookline.report.names import find_loss, place_of
from hookline.report.records import MOST_NAMES, Columns, read_lines
from hookline.report.verdict import judge
from hookline.rundir import journal, runs
from hookline.rundir.comparison import find_rule, flatten
from hookline.rundir.names import RECORDS

#: The number of points of all curves of a page together, and of a single curve at least and at most.
POINTS, LEAST, MOST = 60_000, 30, 1600
#: The most marks, warnings and lines of the log of all runs of a page together, and of one run at least.
MARKS, WARNINGS, LINES, LEAST_TEXTS = 500, 200, 100, 10
#: The number of losses that are compared one by one, of all runs together and of one run at least.
EXACT, LEAST_EXACT = 4_000_000, 10_000
#: The longest text of a config value that a page shows.
LONGEST = 2000
#: The warning about a run with too many metrics.
TOO_MANY = f"there are more than {MOST_NAMES:,} metrics; the others are left out"
#: The files that only hookline writes.
OWN_FILES = ("run.log", "plan.txt", "last_checkpoint", costs.NAME, journal.NAME)


def gather(path: str | os.PathLike[str], *others: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the data of a page about one run, or about several."""
    paths = [Path(each).expanduser() for each in (path, *others)]
    if len(paths) == 1:
        return as_page([gather_run(paths[0])])
    read = [_gather(each, len(paths), max(EXACT // len(paths), LEAST_EXACT)) for each in paths]
    found = [data for data, _ in read]
    _tell_apart(found)
    return as_page(found, compare(found, [curves for _, curves in read]))


def _tell_apart(found: Sequence[dict[str, Any]]) -> None:
    """Name runs after their paths if they have the same name, as in `a/logs` and `b/logs`."""
    names = Counter(data["name"] for data in found)
    base = os.path.commonpath([os.path.abspath(data["path"]) for data in found])
    for data in found:
        if names[data["name"]] > 1:
            data["name"] = Path(os.path.relpath(data["path"], base)).as_posix()


def records_size(folder: Path) -> int:
    """Return how many bytes `gather` would have to read of the records of a run."""
    own = [folder / RECORDS] if os.path.exists(folder / RECORDS) else []
    others = [each.path for each in find_own_sources(folder) if each.kind == "TensorBoard" or not own]
    return sum(os.path.getsize(path) for path in (*own, *others))


def is_readable(folder: Path) -> bool:
    """Return whether a folder holds a run, or records of another program."""
    return os.path.isdir(folder) and (runs.is_run(folder) or bool(find_sources(folder)))


def as_page(found: Sequence[dict[str, Any]], comparison: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the data of a page about runs that were gathered one by one."""
    title = found[0]["name"] if len(found) == 1 else f"{len(found)} runs"
    return {
        "version": 1,
        "kind": "report",
        "title": title,
        "made": round(time.time()),
        "hookline": VERSION,
        "runs": list(found),
        "comparison": comparison,
    }


def gather_run(folder: Path) -> dict[str, Any]:
    """Return the data of one run."""
    return _gather(folder, 1)[0]


def _gather(folder: Path, together: int, exact: int = 0) -> tuple[dict[str, Any], dict[str, Curve]]:
    """Return the data of one run, and its curves. Curves of losses have their first `exact` values.

    The more runs are on a page `together`, the less it shows of each.
    """
    images = Images()
    columns, kinds, problems = _read_records(folder, images, exact)
    run = runs.Run(folder)
    events, log = journal.read(folder), story.read_log(folder)
    status = story.status_of(folder, events, log) if is_own(folder) else "foreign"
    checkpoints = runs.read_checkpoints(folder)
    steps = story.steps_of(events, columns, checkpoints)
    spent = costs.read_costs(folder)
    plan = spent.pop("plan") if spent else None
    config, config_problem = _read_config(run)
    metrics = metrics_data(columns, POINTS // together)
    data = {
        "id": str(folder),
        "name": _name(folder, config),
        "path": str(folder),
        "sources": kinds,
        "status": status,
        "started": story.started_at(events, log),
        "steps": steps,
        "epochs": columns.epochs,
        "seconds": story.seconds_of(events, log),
        "metrics": metrics,
        "loss": find_loss([each["name"] for each in metrics]),
        "marks": story.marks_of(events, checkpoints, log, status, steps)[-max(MARKS // together, LEAST_TEXTS) :],
        "checkpoints": [_checkpoint_data(each) for each in checkpoints],
        "hooks": spent,
        "plan": _plan_data(run, plan, without=() if _validates(events, status, metrics) else ("val",)),
        "images": images.as_data(MOST_BYTES // together),
        "config": [[key, as_text(value)] for key, value in flatten(config)] if config else [],
        "environment": [[key, as_text(value)] for key, value in story.environment_of(events).items()],
        "warnings": [
            *story.warnings_of(events, log)[-max(WARNINGS // together, LEAST_TEXTS) :],
            *story.triage_of(folder),
            *_as_warnings(problems, config_problem, images),
        ],
        "log": [as_text(line) for line in log[-max(LINES // together, LEAST_TEXTS) :]],
    }
    data["verdict"] = judge(data, columns.curves)
    data["summary"] = summarize(data)
    return data, columns.curves


def _read_records(folder: Path, images: Images, exact: int) -> tuple[Columns, list[str], list[str]]:
    """Return the curves of a run, the kinds of files that they are from, and lines about problems."""
    columns, problems = Columns(exact), []
    sources = find_own_sources(folder) if is_own(folder) else find_sources(folder) if os.path.isdir(folder) else []
    if not sources and not runs.is_run(folder):
        raise runs.NotARunError(_why_not(folder))
    if os.path.exists(folder / RECORDS):
        try:
            read_lines(folder / RECORDS, columns)
        except OSError as error:
            problems.append(f"{RECORDS} cannot be read: {error.strerror or error}")
        if columns.bad_lines:
            problems.append(f"{RECORDS}: {columns.bad_lines} lines are not records, from line {columns.first_bad}")
        if columns.has_more_names:
            problems.append(TOO_MANY)
        if not read_images(folder, images):
            read_sources([each for each in sources if each.kind == "TensorBoard"], folder, images)
        return columns, ["JSONL"], problems
    columns, problems = read_sources(sources, folder, images, exact)
    if columns.has_more_names:
        problems.append(TOO_MANY)
    return columns, list(dict.fromkeys(each.kind for each in sources)), problems


def is_own(folder: Path) -> bool:
    """Return whether hookline has written a folder."""
    return any(os.path.exists(folder / name) for name in OWN_FILES)


def _why_not(folder: Path) -> str:
    try:
        runs.load(folder)
    except runs.NotARunError as error:
        if os.path.isdir(folder):
            return f"{error}. It has no JSONL, CSV or TensorBoard files of another program, either"
        return str(error)
    return f"{folder} has no records"


def _name(folder: Path, config: Mapping[str, Any]) -> str:
    return str(config.get("experiment_name") or real_path(folder).name)


def metrics_data(columns: Columns, points: int) -> list[dict[str, Any]]:
    """Return every metric with its chart, its points, and its last and best value."""
    limit = min(max(points // max(len(columns.curves), 1), LEAST), MOST)
    return [_metric_data(name, curve, limit) for name, curve in columns.curves.items()]


def _metric_data(name: str, curve: Curve, limit: int) -> dict[str, Any]:
    place, rule = place_of(name), find_rule(name)
    best = None if rule is None else curve.highest() if rule.rule == "greater" else curve.lowest()
    return {
        "name": name,
        "chart": place.chart,
        "stage": place.stage,
        "kind": place.kind,
        "count": curve.count,
        "gaps": curve.gaps,
        "last": None if curve.last is None else [curve.last[0], rounded(curve.last[1])],
        "best": None if best is None else [best[0], rounded(best[1])],
        "rule": None if rule is None else rule.rule,
        **curve.points(limit),
    }


def _checkpoint_data(found: runs.Checkpoint) -> dict[str, Any]:
    try:
        size, saved = folders.size_of(found.path), os.path.getmtime(found.path)
    except OSError:  # the run may remove old ones in the meantime
        size, saved = None, None
    return {
        "name": found.path.name,
        "step": found.step,
        "epoch": found.epoch,
        "best": found.metric if found.is_best else None,
        "complete": found.complete,
        "size": size,
        "saved": None if saved is None else round(saved),
    }


def _validates(events: Sequence[Mapping[str, Any]], status: str, metrics: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a run has validated, or may still do so."""
    return (
        status in ("running", "foreign", "unknown")
        or any(event["kind"] == "validation" for event in events)
        or any(each["name"].startswith("val/") for each in metrics)
    )


def _plan_data(run: runs.Run, plan: Mapping[str, Any] | None, without: Collection[str] = ()) -> dict[str, Any] | None:
    """Return the tree of the plan, which `plan.txt` has, too; None if the run has no plan."""
    if plan is None:
        try:
            plan = plan_picture.from_text(run.plan)
        except HooklineError:
            return None
    try:
        return plan_picture.draw(plan, without)
    except (KeyError, TypeError, AttributeError):  # a file that something else has written
        return None


def _read_config(run: runs.Run) -> tuple[dict[str, Any], str]:
    if not run.has_config:
        return {}, ""
    try:
        return run.config, ""
    except HooklineError as error:
        return {}, f"config.yaml cannot be read: {error}"


def _as_warnings(problems: Sequence[str], config_problem: str, images: Images) -> list[dict[str, Any]]:
    texts = [*problems, *([config_problem] if config_problem else [])]
    if images.left_out:
        texts.append(f"{images.left_out} images are not part of this page, because it would be too large")
    return [{"kind": "report", "step": None, "text": text} for text in texts]


def as_text(value: Any) -> str:
    """Return a value of a config in one line."""
    try:
        text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    except ValueError:  # an int of thousands of digits
        text = as_repr(value)
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def summarize(data: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the facts at the top of a page: a label, a value and a note each."""
    epochs = count(data["epochs"], "epoch") if data["epochs"] else ""
    facts = [{"label": "steps", "value": f"{data['steps']:,}", "note": epochs}]
    if data["seconds"] is not None:
        facts.append({"label": "duration", "value": as_duration(round(data["seconds"])), "note": data["started"]})
    times = next((each for each in data["metrics"] if each["name"] == "train/time"), None)
    if times and times["values"]:
        mean = _mean(times)
        facts.append({"label": "time per step", "value": f"{mean * 1e3:.3g} ms", "note": _waiting(data, mean)})
    ranked = sorted(data["metrics"], key=lambda each: (each["stage"] not in ("val", "test"), each["kind"] != "loss"))
    for metric in [each for each in ranked if each["best"] and each["kind"] != "time"][:3]:
        step, value = metric["best"]
        last = metric["last"][1]
        note = f"best, at step {step:,}" + (f"; last {as_number(last)}" if last not in (None, value) else "")
        facts.append({"label": metric["name"], "value": as_number(value), "note": note})
    return facts


def _mean(metric: Mapping[str, Any]) -> float:
    values = [each for each in metric.get("means", metric["values"]) if each is not None]
    return sum(values) / len(values) if values else 0.0


def _waiting(data: Mapping[str, Any], mean: float) -> str:
    waits = next((each for each in data["metrics"] if each["name"] == "train/data_time"), None)
    return f"{_mean(waits) / mean:.0%} waiting for data" if waits and waits["values"] and mean else ""
