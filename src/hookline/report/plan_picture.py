"""The plan as a tree of scopes and points along the loop, each with its hooks in order."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from hookline.plan.points import POINTS, SCOPES

#: The loop: a scope is a tuple of its name and what is inside.
LOOP: tuple[Any, ...] = (
    "run",
    (
        *("before_run", "after_load_checkpoint"),
        (
            "train",
            (
                "before_train",
                (
                    "train_epoch",
                    (
                        "before_train_epoch",
                        (
                            "train_iter",
                            (
                                *("before_train_iter", ("forward", ())),
                                ("backward", ("before_backward", "after_backward")),
                                ("optimizer_step", ("before_optimizer_step", "after_optimizer_step")),
                                "after_train_iter",
                            ),
                        ),
                        "after_train_epoch",
                    ),
                ),
                (
                    "val",
                    (
                        "before_val",
                        (
                            "val_epoch",
                            (
                                "before_val_epoch",
                                ("val_iter", ("before_val_iter", "after_val_iter")),
                                "after_val_epoch",
                            ),
                        ),
                        "after_val",
                    ),
                ),
                *("before_save_checkpoint", "after_train"),
            ),
        ),
        (
            "test",
            (
                "before_test",
                (
                    "test_epoch",
                    ("before_test_epoch", ("test_iter", ("before_test_iter", "after_test_iter")), "after_test_epoch"),
                ),
                "after_test",
            ),
        ),
        *("on_exception", "after_run"),
    ),
)
#: How often a scope is entered, in words.
REPEATED = {
    "train_epoch": "every epoch",
    "train_iter": "every iteration",
    "optimizer_step": "every optimizer step",
    "val": "every validation",
    "val_iter": "every batch",
    "test_iter": "every batch",
}
#: The row of a hook in plan.txt: its number, name, priority, frequency and reason, with two spaces in between.
ROW = re.compile(
    r"^ +\d+  (?P<name>.+?)  +(?P<priority>[A-Z_]+ \((?P<number>\d+)\)|\d+)  +(?P<every>.+?)(?:  +(?P<why>.*))?$"
)


#: No line of a plan is longer.
LONGEST = 1000


def draw(plan: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    """Return the tree for the picture of a plan.

    Points without hooks are part of the tree as well: they are the loop. Points of the user come last. The scopes in
    `without` are left out, because the run has never entered them.
    """
    found = {point["name"]: point["hooks"] for point in plan.get("points", ())}
    tree = _scope(LOOP, found, without)
    own = [name for name in found if name not in POINTS and name not in SCOPES]
    tree["children"] += [_point(name, found) for name in own]
    return tree


def _scope(node: tuple[Any, ...], found: Mapping[str, Any], without: Collection[str]) -> dict[str, Any]:
    name, inside = node
    return {
        "scope": name,
        "repeats": REPEATED.get(name, ""),
        "around": _hooks(f"around_{name}", found),
        "children": [
            _scope(child, found, without) if isinstance(child, tuple) else _point(child, found)
            for child in inside
            if isinstance(child, str) or child[0] not in without
        ],
    }


def _point(name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    return {"point": name, "hooks": _hooks(name, found)}


def _hooks(name: str, found: Mapping[str, Any]) -> list[dict[str, str]]:
    keys = ("name", "priority", "every", "why", "where")
    return [{key: str(hook.get(key, "")) for key in keys} for hook in found.get(name, ())]


def from_text(text: str) -> dict[str, Any]:
    """Return the plan of a plan.txt as data, for runs that have nothing else."""
    points: list[dict[str, Any]] = []
    for line in text.splitlines():
        if head := re.match(r"^(\w+)\((.*?)\)", line):
            points.append({"name": head[1], "arguments": head[2].split(", "), "hooks": []})
        elif points and len(line) < LONGEST and (row := ROW.match(line)):
            points[-1]["hooks"].append(
                {
                    "name": row["name"].strip(),
                    "priority": int(row["number"] or row["priority"]),
                    "every": row["every"],
                    "why": row["why"] or "",
                }
            )
    return {"version": 1, "points": points}
