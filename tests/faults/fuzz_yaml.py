"""Drafts of configs: trees that may contain any text of YAML, and values that a config should not have."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.faults.cases import CANARY
from tests.faults.raw_texts import EVIL

Path = tuple[Any, ...]


@dataclass(frozen=True)
class Raw:
    """A text that is written as it is, without quotes."""

    text: str


@dataclass(frozen=True)
class Prefixed:
    """A value after a tag or an anchor."""

    prefix: str
    value: Any


@dataclass
class Draft:
    """A config in the making, with other files and with overrides on the command line."""

    tree: dict[Any, Any]
    files: dict[str, bytes] = field(default_factory=dict)
    overrides: list[str] = field(default_factory=list)
    #: Lines before and after the tree.
    head: str = ""
    tail: str = ""
    #: Why the config must be refused; empty if that is not known.
    must_fail: str = ""
    #: True if training could take very long, so that only two batches are tried.
    long: bool = False

    def text(self) -> str:
        """Return the config as YAML, with one line per top-level key."""
        return (
            self.head + "".join(f"{in_flow(key)}: {in_flow(value)}\n" for key, value in self.tree.items()) + self.tail
        )

    def places(self) -> list[Path]:
        """Return the paths of all values."""
        return list(_places(self.tree, ()))

    def get(self, path: Path) -> Any:
        """Return the value at a path."""
        value: Any = self.tree
        for key in path:
            value = value[key]
        return value

    def put(self, path: Path, value: Any) -> None:
        """Replace the value at a path."""
        self.get(path[:-1])[path[-1]] = value

    def rename(self, path: Path, name: Any) -> None:
        """Give a key of a mapping another name, at the same position."""
        mapping = self.get(path[:-1])
        items = [(name if key == path[-1] else key, value) for key, value in mapping.items()]
        mapping.clear()
        mapping.update(items)


def _places(value: Any, path: Path) -> Iterator[Path]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _places(inner, (*path, index))


def in_flow(value: Any) -> str:
    """Return a value in the flow style of YAML."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, Prefixed):
        return f"{value.prefix} {in_flow(value.value)}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{in_flow(key)}: {in_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(in_flow, value)) + "]"
    if isinstance(value, float):
        return {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}.get(repr(value), repr(value))
    return json.dumps(value) if not isinstance(value, int) or abs(value) < 10**4000 else hex(value)


NUMBERS = (0, -1, 1, 2, 3, 0.5, -0.5, 1e-300, 1e300, 2**31, 2**63, -(2**63), 10**30, 10**400)
SPECIAL = (
    *(".nan", ".inf", "-.inf", "0x" + "f" * 5000, "0o777", "0b11", "1_000", "1e3", "1e999", "0x", "-0", "+1", "1:30"),
    *("2020-01-01", "2020-01-01T00:00:00Z", "~", "yes", "off", "NULL", "=", "<<", "???", "''", '""', "*a", "&a x"),
    *(
        '"\\UFFFFFFFF"',
        '"\\uD800"',
        '"\\0"',
        '"\\x9b2J"',
        '"\\N\\_\\L\\P"',
        "'it''s'",
        "!!str 5",
        "!!int x",
        "!!float y",
    ),
    *(
        "!!binary aGk=",
        "!!binary '***'",
        "!!set {a, b}",
        "!!omap [a: 1]",
        "!!timestamp x",
        "!!null x",
        "!!bool x",
        "!x 1",
    ),
    *(
        "!!merge x",
        "!!map [1]",
        "!!seq {a: 1}",
        "!!value x",
        "! x",
        "!<x> y",
        "!!python/none",
        "|",
        ">",
        "? x",
        "- x",
        "%x",
    ),
)
TEXTS = (
    *(
        "",
        " ",
        "x",
        "auto",
        "none",
        "true",
        "5",
        "1e-3",
        "/",
        ".",
        "..",
        "../x",
        "/proc/x",
        "a/b",
        "x" * 5000,
        "ä" * 300,
    ),
    *(
        "${seed}",
        "${model}",
        "${nothing}",
        "${",
        "${}",
        "${${seed}}",
        "${oc.env:HOME}",
        "${oc.env:NOTHING}",
        "${model.type}",
    ),
    *(
        "${oc.env:NOTHING,x}",
        "${.seed}",
        "${train.dataloader}",
        "\\${seed}",
        "$${seed}",
        "${seed}${seed}",
        "${optim[0]}",
    ),
    *(
        "os:system",
        "os.system",
        "subprocess:Popen",
        "builtins:eval",
        "mynet:Net",
        "mynet:Data",
        "mynet:loss_of",
        "mynet",
    ),
    *(
        "mynet:os.system",
        "torch.nn:Linear",
        "torch:load",
        "hookline:Hook",
        ":",
        "a:",
        ":b",
        "a:b:c",
        "SGD",
        "Adam",
        "StepLR",
    ),
    *(
        "accuracy",
        "Accuracy",
        "MulticlassAccuracy",
        "LoggerHook",
        "EMAHook",
        "jsonl",
        "csv",
        "cpu",
        "cuda:0",
        "meta",
        "cpu:1",
    ),
    *(
        "fp32",
        "fp16",
        "bf16",
        "epoch",
        "iter",
        "step",
        "val",
        "train/loss",
        "*.bias",
        "layers.*",
        "[",
        "(",
        "*",
        "{}",
        "{}{}",
    ),
    *("{0}", "{}.pth", ".lock", "epoch_1.pth", "run.log", "\ufeff", "\u202e", "\u2028", "e\u0301", "\U0001f9ea", EVIL),
    *(
        f"touch {CANARY}",
        f"__import__('os').system('touch {CANARY}')",
        "%s%s%n",
        "\t",
        "a\nb",
        "NaN",
        "inf",
        "-1",
        "1d",
        "2h",
    ),
)


def value_of(chance: random.Random, depth: int = 0) -> Any:
    """Return a random value of any type."""
    kind = chance.randrange(9 if depth < 3 else 6)
    if kind == 0:
        return chance.choice((None, True, False))
    if kind == 1:
        return chance.choice(NUMBERS)
    if kind == 2:
        return Raw(chance.choice(SPECIAL))
    if kind in (3, 4, 5):
        return chance.choice(TEXTS)
    if kind == 6:
        return [value_of(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind == 7:
        return {chance.choice(TEXTS): value_of(chance, depth + 1) for _ in range(chance.randrange(4))}
    return {
        "type": chance.choice(TEXTS),
        chance.choice(("x", "lr", "interval", "dataset")): value_of(chance, depth + 1),
    }


def misspelled(name: str, chance: random.Random) -> str:
    """Return a name with one letter missing, doubled, swapped or replaced."""
    at = chance.randrange(len(name))
    return chance.choice(
        (
            name[:at] + name[at + 1 :],
            name[:at] + name[at] + name[at:],
            name[: max(at - 1, 0)] + name[at] + name[max(at - 1, 0) : at] + name[at + 1 :],
            name[:at] + "q" + name[at + 1 :],
            name + "s",
            name.upper(),
        )
    )
