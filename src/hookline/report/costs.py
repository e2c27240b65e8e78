"""Reading hooks.json, the cost of every hook of a run. Anything may have written it, so every part is checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hookline.common.files import regular
from hookline.common.numbers import is_finite
from hookline.report.downsample import rounded

NAME = "hooks.json"
#: The largest file that is read, in bytes.
MOST_BYTES = 8_000_000


def read_costs(folder: Path) -> dict[str, Any] | None:
    """Return the costs in the folder of a run, with the right types everywhere; None if there are none."""
    try:
        with open(folder / NAME, "rb", opener=regular) as file:
            found = json.loads(file.read(MOST_BYTES), parse_float=_finite, parse_constant=_finite)
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("version") != 1:
        return None
    return {
        **{name: _number(found.get(name)) for name in ("steps", "seconds", "sampled_steps", "period")},
        "parts": _numbers_by_name(found.get("parts")),
        "hooks": [_hook(each) for each in _list(found.get("hooks")) if isinstance(each, dict)],
        "memory": [_numbers(each) for each in _list(found.get("memory")) if isinstance(each, dict)],
        "overhead": _numbers(found.get("overhead")),
        "plan": found.get("plan") if isinstance(found.get("plan"), dict) else None,
    }


def _hook(found: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: str(found.get(name, "")) for name in ("name", "role")},
        **{name: _number(found.get(name)) for name in ("priority", "seconds", "share")},
        "budget": found.get("budget") if isinstance(found.get("budget"), (str, int)) else _number(found.get("budget")),
        "points": _numbers_by_name(found.get("points")),
        "memory": _numbers(found.get("memory")),
    }


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []


def _numbers_by_name(found: Any) -> dict[str, dict[str, Any]]:
    given = found if isinstance(found, dict) else {}
    return {name: _numbers(each) for name, each in given.items() if isinstance(each, dict)}


def _numbers(found: Any) -> dict[str, Any]:
    given = found if isinstance(found, dict) else {}
    return {name: _number(each) for name, each in given.items()}


def _finite(text: str) -> float | None:
    """Return a float of the file; None for NaN and Inf, which a page cannot have."""
    value = float(text)
    return value if is_finite(value) else None


def _number(value: Any) -> float | int | None:
    """Return a finite number, with as many digits as a page shows; None for anything else."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not is_finite(value):
        return None
    return rounded(value) if isinstance(value, float) else value
