"""Fuzz checkpoints: damaged bytes, and archives, pickles and trees that were changed and sealed again."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.faults import hostile_bombs as bombs
from tests.faults.forked import Input, run_input
from tests.faults.fuzz_pickles import change_archive, change_pickle
from tests.faults.fuzzing import Recipe, Target
from tests.faults.hostile_checkpoints import Calls
from tests.faults.project import MYNET, config, sealed
from tests.faults.raw_texts import EVIL

FILE = "runs/run/epoch_1.pth"
#: Configs whose checkpoints are changed: a small one, and one with every part that a checkpoint can have.
BASES = {
    "small": config(),
    "full": config(
        optim="{optimizer: {type: AdamW, lr: 0.1}, schedulers: [{type: StepLR, step_size: 1}], accumulate: 2}",
        custom_hooks="[{type: EMAHook, momentum: 0.1}, {type: EarlyStoppingHook, monitor: accuracy, patience: 9}]",
        default_hooks="{checkpoint: {save_best: accuracy}}",
        precision="fp16",
        writers="[jsonl, csv]",
    ),
}
COMMANDS: dict[str, tuple[str, ...]] = {
    "inspect": ("inspect", FILE),
    "inspect_run": ("inspect", "runs/run"),
    "export": ("export", FILE, "--out", "runs/weights.safetensors"),
    "export_averaged": ("export", FILE, "--averaged", "--out", "runs/weights.safetensors"),
    "load_from": ("train", "config.yaml", f"load_from={FILE}", "work_dir=runs/other"),
    "resume": ("train", "config.yaml", "train.max_epochs=2", f"resume={FILE}"),
    "newest": ("train", "config.yaml", "train.max_epochs=2", "--resume"),
    "test": ("test", "config.yaml", "--checkpoint", FILE),
}
#: The commands that use the content of a checkpoint: none of them may use a damaged one.
USING = ("export", "load_from", "resume", "newest", "test")


@cache
def trained(base: str) -> dict[str, bytes]:
    """Return the files of a finished run of a config, by name."""
    files = {"mynet.py": MYNET.encode(), "config.yaml": BASES[base].encode()}
    with tempfile.TemporaryDirectory(prefix="hookline-trained-") as name:
        ended = run_input(Input(files, ("train", "config.yaml")), Path(name), stays_inside=True)
        assert ended.code == 0, ended.shown.decode()
        run = Path(name, "project", "runs", "run")
        # There is one checkpoint, so that no other one can be used instead of it.
        return {path.name: path.read_bytes() for path in run.iterdir() if not path.name.startswith("best_")}


# -- edits of bytes


def damage(content: bytes, chance: random.Random) -> bytes:
    """Return the content with other bytes somewhere, shorter, or longer."""
    changed, way = bytearray(content), chance.randrange(7)
    at = chance.choice((chance.randrange(len(changed)), max(len(changed) - chance.randrange(1, 400), 0)))
    if way <= 2:
        changed[at] ^= 1 << chance.randrange(8)
    elif way == 3:
        del changed[at:]
    elif way == 4:
        changed[at : at + chance.randrange(1, 600)] = b""
    elif way == 5:
        changed[at:at] = bytes(changed[at : at + chance.randrange(1, 600)])
    else:
        length = chance.randrange(1, 600)
        changed[at : at + length] = chance.choice((bytes(length), b"\xff" * length))
    return bytes(changed)


# -- edits of the tree


def change_tree(content: bytes, chance: random.Random) -> bytes:
    """Return a checkpoint in which a value was replaced, removed, added or moved, with a valid seal."""
    tree: Any = torch.load(BytesIO(content), weights_only=True)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        places = list(_places(tree, depth=0))
        container, key = chance.choice(places)
        way = chance.randrange(6)
        try:
            if way == 0:
                del container[key]
            elif way == 1 and isinstance(container, dict):
                container[chance.choice(_KEYS)] = _value(chance)
            elif way == 2:
                other, name = chance.choice(places)
                container[key], other[name] = other[name], container[key]
            else:
                container[key] = _like(container[key], chance) if way == 3 else _value(chance)
        except (KeyError, IndexError, TypeError):  # another edit removed the place, or it is a tuple
            continue
    return sealed(tree)


def _places(value: Any, depth: int) -> Any:
    """Yield the place of every value: its container and its key."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items if depth < 6 else ():
        yield value, key
        yield from _places(inner, depth + 1)


_KEYS = (
    "x",
    "",
    EVIL,
    "state_dict",
    "averaged",
    "type",
    "windows",
    "loader",
    0,
    5,
    -1,
    None,
    True,
    (1, 2),
    1.5,
    "stopped",
)
_VALUES: tuple[Callable[[], Any], ...] = (
    *(lambda: None, lambda: True, lambda: 0, lambda: -1, lambda: 3, lambda: 10**9, lambda: 2**63, lambda: 2**2000),
    *(
        lambda: -(2**63),
        lambda: 0.5,
        lambda: -1.0,
        lambda: float("nan"),
        lambda: float("inf"),
        lambda: 1e308,
        lambda: 1j,
    ),
    *(
        lambda: "",
        lambda: "x",
        lambda: EVIL,
        lambda: "x" * 100_000,
        lambda: "\ud800",
        lambda: "cuda:0",
        lambda: b"x",
        lambda: b"",
    ),
    *(
        lambda: [],
        lambda: {},
        lambda: (),
        lambda: [1],
        lambda: {"a": 1},
        lambda: {1: 2},
        lambda: [[[]]],
        lambda: [None] * 9,
    ),
    *(bombs.shared_lists, bombs.shared_dicts, bombs.cyclic_list, bombs.cyclic_dict, bombs.endless, bombs.quantized),
    *(bombs.nested, lambda: bombs.sparse(3, 4), lambda: bombs.sparse(10**6, 10**6), lambda: torch.zeros(0)),
    *(
        lambda: torch.zeros(()),
        lambda: torch.zeros(3, 4),
        lambda: torch.ones(2, dtype=torch.int8),
        lambda: torch.zeros(1, 1, 1),
    ),
    *(
        lambda: torch.tensor([float("nan")] * 2),
        lambda: torch.zeros(2, dtype=torch.bool),
        lambda: torch.zeros(2, dtype=torch.complex64),
    ),
    *(
        lambda: torch.empty(2, device="meta"),
        lambda: torch.Size([1, 2]),
        lambda: torch.float64,
        lambda: torch.device("cuda", 3),
    ),
    *(lambda: torch.nn.Parameter(torch.zeros(3, 4)), lambda: Calls(os.system, "touch ran-code")),
)


def _value(chance: random.Random) -> Any:
    return chance.choice(_VALUES)()


def _like(value: Any, chance: random.Random) -> Any:
    """Return a value of the same type that is different in another way."""
    if isinstance(value, Tensor):
        ways: list[Callable[[], Any]] = [
            *(value.double, value.half, value.long, value.bool, value.flatten, value.tolist),
            *(value.to_sparse, lambda: value.to("meta"), lambda: value[..., None], lambda: value.to(torch.complex64)),
            *(lambda: value.reshape(-1)[:1].expand(10**6, 10**6), lambda: value.new_full(value.shape, -1)),
            lambda: torch.cat([value, value]),
        ]
        try:
            return chance.choice(ways)()
        except (RuntimeError, NotImplementedError):
            return value
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return chance.choice(
            (-value, value + 1, value - 1, value * 10**6, str(value), [value], float(value), int(value))
        )
    if isinstance(value, str):
        return chance.choice((value + "x", value.upper(), [value], value.encode(), EVIL))
    if isinstance(value, dict):
        return chance.choice((list(value.items()), list(value), {str(key): None for key in value}, {}))
    return chance.choice(([value], {"x": value}, None))


# -- the target

EDITS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    edit.__name__: edit for edit in (damage, change_archive, change_pickle, change_tree)
}


def draw(chance: random.Random) -> Recipe:
    """Draw a base, one kind of edit, and a command."""
    name = chance.choice(("damage", "change_archive", "change_pickle", "change_pickle", "change_tree", "change_tree"))
    weights = {"inspect": 3, "inspect_run": 1, "export": 2, "export_averaged": 1, "resume": 3}
    command = chance.choice([each for each in COMMANDS for _ in range(weights.get(each, 1))])
    return Recipe(chance.choice(("small", "full")), ((name, chance.randrange(1 << 32)),), command)


def make(recipe: Recipe) -> Input:
    """Return the project of a recipe."""
    files = {f"runs/run/{name}": content for name, content in trained(recipe.base).items()}
    good = content = files[FILE]
    for name, seed in recipe.edits:
        content = EDITS[name](content, random.Random(seed))
    files |= {FILE: content, "mynet.py": MYNET.encode(), "config.yaml": BASES[recipe.base].encode()}
    damaged = content != good and all(name == "damage" for name, _ in recipe.edits)
    must_fail = "bytes of the checkpoint were changed" if damaged and recipe.command in USING else ""
    return Input(files, COMMANDS[recipe.command], must_fail)


TARGET = Target("checkpoints", draw, make, stays_inside=True)
