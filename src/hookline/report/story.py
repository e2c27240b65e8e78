"""The story of a run: when it started, resumed, saved, stopped, failed or was killed.

Its journal (events.jsonl) tells it. A run without one has its checkpoints and its run.log, which tell most of it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.common.files import regular
from hookline.rundir import capsule, states

if TYPE_CHECKING:
    from hookline.report.records import Columns
    from hookline.rundir.journal import Event
    from hookline.rundir.runs import Checkpoint

#: The most that is read of the end of run.log, in bytes.
LOG_BYTES = 400_000
_TIME = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)  (.*)")
_RESUMED = re.compile(r"^resumed from .*?: .*?iter(?:ation)?s? (\d+)")


def read_log(folder: Path) -> list[str]:
    """Return the last lines of run.log; empty if it cannot be read."""
    try:
        with open(folder / "run.log", "rb", opener=regular) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_BYTES))
            return file.read(LOG_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def steps_of(events: Sequence[Mapping[str, Any]], columns: Columns, checkpoints: Sequence[Checkpoint]) -> int:
    """Return how far a run has come, by the last event of its journal, its records and its checkpoints."""
    last = int(sessions_of(events)[-1][-1]["step"]) if events else 0
    return max([last, columns.steps, *(each.step or 0 for each in checkpoints)])


def sessions_of(events: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return the events of each session, which begins with a start."""
    sessions: list[list[Mapping[str, Any]]] = []
    for event in events:
        if event["kind"] == "start" or not sessions:
            sessions.append([])
        sessions[-1].append(event)
    return sessions


def status_of(folder: Path, events: list[Event], log: Sequence[str]) -> str:
    """Return `running`, `finished`, `stopped`, `failed`, `killed`, or `unknown`."""
    found = states.state_of(folder, events).name
    if not events and found != "running":  # a run of an earlier version
        return "failed" if any(" ended: " in line or line.endswith(" ended:") for line in log[-200:]) else "unknown"
    return found


def marks_of(
    events: Sequence[Mapping[str, Any]], checkpoints: Sequence[Checkpoint], log: Sequence[str], status: str, steps: int
) -> list[dict[str, Any]]:
    """Return the marks of a curve, in the order of the run: a kind, a step and a text each.

    A run that was killed ends at `steps`, which may be later than its last event.
    """
    return list(_marks_in(events, status, steps)) if events else _marks_elsewhere(checkpoints, log)


def _marks_in(events: Sequence[Mapping[str, Any]], status: str, steps: int) -> Any:
    sessions = sessions_of(events)
    for number, session in enumerate(sessions):
        for event in session:
            step, kind = int(event["step"]), event["kind"]
            if kind == "start" and (event.get("resumed_from") or number):
                source = event.get("resumed_from")
                yield _mark(
                    "resume", step, f"resumed from {os.path.basename(str(source))}" if source else "started again"
                )
            elif kind == "save":
                best = event.get("best")
                text = f"saved {event.get('file', '')}" + (f", the best {best}" if best else "")
                yield _mark("best" if best else "save", step, text)
            elif kind in ("stop", "signal", "failure"):
                label = event.get("reason") or event.get("text") or event.get("name") or ""
                yield _mark("failure" if kind == "failure" else "stop", step, f"{kind}: {label}"[:300])
        ended = any(event["kind"] in ("end", "failure") for event in session)
        last = number == len(sessions) - 1
        if not ended and (not last or status == "killed"):
            yield _mark("kill", steps if last else int(session[-1]["step"]), "killed")


def _marks_elsewhere(checkpoints: Sequence[Checkpoint], log: Sequence[str]) -> list[dict[str, Any]]:
    marks = [
        _mark("best" if each.is_best else "save", each.step, f"saved {each.path.name}")
        for each in checkpoints
        if each.step is not None
    ]
    for line in log:
        found = _TIME.match(line)
        if found and (resumed := _RESUMED.match(found[2])):
            marks.append(_mark("resume", int(resumed[1]), found[2][:300]))
    return sorted(marks, key=lambda mark: mark["step"])


def _mark(kind: str, step: int, text: str) -> dict[str, Any]:
    return {"kind": kind, "step": step, "text": text}


def warnings_of(events: Sequence[Mapping[str, Any]], log: Sequence[str]) -> list[dict[str, Any]]:
    """Return the warnings and failures of a run, oldest first."""
    found: list[dict[str, Any]] = []
    if events:
        for event in events:
            if event["kind"] in ("warning", "failure"):
                found.append({"kind": event["kind"], "step": int(event["step"]), "text": str(event.get("text", ""))})
    else:
        for line in log:
            timed = _TIME.match(line)
            text = timed[2] if timed else ""
            if text.startswith("warning: "):
                found.append({"kind": "warning", "step": None, "text": text.removeprefix("warning: ")})
            elif text.startswith("ended: "):
                found.append({"kind": "failure", "step": None, "text": text.removeprefix("ended: ")})
    return found


def triage_of(folder: Path) -> list[dict[str, Any]]:
    """Return where NaN or Inf began, if `hookline replay --triage` has found it."""
    try:
        with open(folder / capsule.TRIAGE, "rb", opener=regular) as file:
            data = json.loads(file.read(capsule.MOST_BYTES))
        return [{"kind": "warning", "step": int(data["step"]), "text": f"NaN or Inf: {str(data['sentence'])[:1000]}"}]
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return []


def seconds_of(events: Sequence[Mapping[str, Any]], log: Sequence[str]) -> float | None:
    """Return how long the run took, over all sessions; None if this is unknown."""
    if events:
        return sum(float(session[-1]["time"]) - float(session[0]["time"]) for session in sessions_of(events))
    times = [datetime.fromisoformat(found[1]) for line in (*log[:1], *log[-40:]) if (found := _TIME.match(line))]
    return (times[-1] - times[0]).total_seconds() if len(times) > 1 else None


def started_at(events: Sequence[Mapping[str, Any]], log: Sequence[str]) -> str:
    """Return when the run was started, as text; empty if this is unknown."""
    if events:
        return datetime.fromtimestamp(float(events[0]["time"])).strftime("%Y-%m-%d %H:%M:%S")
    found = next((found for line in log[:5] if (found := _TIME.match(line))), None)
    return found[1] if found else ""


def environment_of(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the environment of the last session: versions, host, device, processes."""
    start = next((event for event in reversed(events) if event["kind"] == "start"), None)
    if start is None:
        return {}
    given = start.get("environment")
    found = {str(key): value for key, value in given.items()} if isinstance(given, dict) else {}
    return {**found, **({"processes": start["processes"]} if "processes" in start else {})}
