"""Fuzz configs and overrides: edits of good configs, from misspelled keys to tags, anchors, bases and broken text."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

from hookline.config.signature import signature_of
from hookline.plan.registry import HOOKS
from tests.faults.cases import CANARY
from tests.faults.forked import Input
from tests.faults.fuzz_yaml import TEXTS, Draft, Prefixed, Raw, in_flow, misspelled, value_of
from tests.faults.fuzzing import Recipe, Target
from tests.faults.project import MYNET

_LOADER = {"dataset": {"type": "mynet:Data"}, "batch_size": 4}
_EVALUATION = {"dataloader": _LOADER, "step": "mynet:predict", "metrics": {"accuracy": "accuracy"}}

#: Good configs. Together they have every section.
BASES: dict[str, dict[str, Any]] = {
    "usual": {
        "model": {"type": "mynet:Net", "hidden": 3},
        "train": {"dataloader": _LOADER, "step": "mynet:loss_of", "max_epochs": 1},
        "val": _EVALUATION,
        "test": _EVALUATION,
        "optim": {"optimizer": {"type": "SGD", "lr": 0.1}},
        "work_dir": "runs/run",
        "seed": 1,
    },
    "by_iterations": {
        "model": {"type": "mynet:Net"},
        "train": {
            "dataloader": {**_LOADER, "shuffle": True, "drop_last": True},
            "step": "mynet:loss_of",
            "max_iters": 3,
            "val_interval": 2,
            "val_begin": 1,
        },
        "val": {**_EVALUATION, "limit_batches": 1, "loss": "mynet:loss_of"},
        "optim": {
            "optimizer": {"type": "AdamW", "lr": 0.001},
            "schedulers": [{"type": "CosineAnnealingLR", "T_max": "auto", "when": "step"}],
            "param_groups": [{"match": "*.bias", "weight_decay": 0}],
            "accumulate": 2,
            "clip_norm": 1.0,
        },
        "default_hooks": {"logger": {"interval": 1}, "checkpoint": {"interval": 2, "save_best": "accuracy"}},
        "custom_hooks": [{"type": "EMAHook", "momentum": 0.1}, {"type": "CheckInvalidLossHook", "priority": "LOW"}],
        "writers": ["jsonl", {"type": "csv", "filename": "metrics.csv"}],
        "work_dir": "runs/run",
    },
    "several": {
        "imports": ["mynet"],
        "model": {"type": "mynet:Net"},
        "train": {"dataloader": _LOADER, "step": "mynet:loss_of", "max_epochs": 1, "limit_batches": 1},
        "val": {"a": _EVALUATION, "b": _EVALUATION},
        "optim": {"optimizer": {"type": "SGD", "lr": 0.1}},
        "points": {"after_render": ["image"]},
        "work_dir": "runs/run",
        "experiment_name": "several",
        "device": "cpu",
        "strategy": "auto",
        "precision": "bf16",
        "resume": False,
    },
}
COMMANDS = {
    "plan": ("plan", "config.yaml"),
    "dry_run": ("train", "config.yaml", "--dry-run"),
    "train": ("train", "config.yaml"),
}
#: Keys below which any name is allowed.
FREE = ("metrics", "points")
#: Keys whose values start that many processes, or decide how much is trained.
COSTLY = ("num_workers", "prefetch_factor", "samples", "max_epochs", "max_iters", "hidden", "batch_size")


# -- edits


def replace_value(draft: Draft, chance: random.Random) -> None:
    """Replace a value by any other."""
    path = chance.choice(draft.places())
    if path[-1] in COSTLY:
        draft.long = True
    draft.put(path, value_of(chance))


def misspell_key(draft: Draft, chance: random.Random) -> None:
    """Misspell a key. A config with it must be refused, unless any name is allowed there."""
    path = _key(draft, chance)
    name = misspelled(path[-1], chance)
    if not name or name in draft.get(path[:-1]):
        return
    draft.rename(path, name)
    if not any(key in FREE for key in path) and not _names_a_data_set(draft, path):
        draft.must_fail = f"the key '{path[-1]}' of {'.'.join(map(str, path[:-1])) or 'the config'} is misspelled"


def add_key(draft: Draft, chance: random.Random) -> None:
    """Add a key that does not exist."""
    path = _key(draft, chance)[:-1]
    name = chance.choice(("surplus", "enabled", "kwargs", "_target_", "__class__", "self", "runner"))
    if not isinstance(draft.get(path), dict) or any(key in FREE for key in path) or name in draft.get(path):
        return
    draft.get(path)[name] = value_of(chance)
    if path != ("val",):
        draft.must_fail = f"{'.'.join(map(str, path)) or 'the config'} has the unknown key '{name}'"


def remove(draft: Draft, chance: random.Random) -> None:
    """Remove a value."""
    path = chance.choice(draft.places())
    del draft.get(path[:-1])[path[-1]]


def nest(draft: Draft, chance: random.Random) -> None:
    """Wrap a value in lists or mappings."""
    path = chance.choice(draft.places())
    value = draft.get(path)
    for _ in range(chance.choice((1, 1, 2, 3, 99, 120, 3000))):
        value = Raw(f"[{in_flow(value)}]" if chance.random() < 0.5 else f"{{a: {in_flow(value)}}}")
    draft.put(path, value)


def move(draft: Draft, chance: random.Random) -> None:
    """Copy a value to another place."""
    source, target = chance.choice(draft.places()), chance.choice(draft.places())
    draft.put(target, copy.deepcopy(draft.get(source)))


def tag(draft: Draft, chance: random.Random) -> None:
    """Put a tag in front of a value."""
    path = chance.choice(draft.places())
    tags = ("!!python/object/apply:os.system", "!!python/name:os.system", "!!str", "!!int", "!!set", "!x", "!", "!!map")
    chosen = chance.choice(tags)
    draft.put(path, Prefixed(chosen, [f"touch {CANARY}"] if "apply" in chosen else draft.get(path)))


def anchor(draft: Draft, chance: random.Random) -> None:
    """Use the value of one place at another one, by an alias, a merge, or an alias to itself."""
    first, second = chance.choice(draft.places()), chance.choice(draft.places())
    way = chance.randrange(4)
    if way == 0:
        draft.put(first, Prefixed("&a", draft.get(first)))
        _try_put(draft, second, Raw("*a"))
    elif way == 1:
        draft.put(first, Prefixed("&a", [Raw("*a")]))
    elif way == 2:
        mapping = draft.get(first[:-1])
        if isinstance(mapping, dict):
            mapping[Raw("<<")] = chance.choice((Raw("*a"), {"type": "x"}, [{"a": 1}, {"b": 2}], 5, [Raw("*a")]))
        draft.head += "a: &a {type: x}\n" if chance.random() < 0.5 else ""
    else:
        bomb = "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]\n" for n in range(1, 9))
        draft.head += f"x0: &x0 [{', '.join('x' * 9)}]\n{bomb}"


def interpolate(draft: Draft, chance: random.Random) -> None:
    """Refer from one value to another, also in circles."""
    path = chance.choice(draft.places())
    target = ".".join(map(str, chance.choice(draft.places())))
    own = ".".join(map(str, path))
    texts = (f"${{{target}}}", f"x${{{target}}}", f"${{{own}}}", f"${{{target}}}${{{own}}}", f"${{{target}.x}}")
    draft.put(path, chance.choice(texts))


def inherit(draft: Draft, chance: random.Random) -> None:
    """Inherit from other files, also in circles."""
    part = chance.choice([key for key in draft.tree if isinstance(key, str)] or ["model"])
    base = f"{part}: {in_flow(value_of(chance))}\n"
    draft.files["base.yaml"] = chance.choice((base, f"_base_: config.yaml\n{base}", base * 2, "", "[]", "\0")).encode(
        errors="surrogatepass"
    )
    names: tuple[Any, ...] = (
        "base.yaml",
        ["base.yaml", "base.yaml"],
        "config.yaml",
        ".",
        "none.yaml",
        5,
        [],
        [[]],
        None,
    )
    draft.tree = {"_base_": chance.choice(names), **draft.tree}
    section = draft.tree.get(part)
    if isinstance(section, dict) and chance.random() < 0.3:
        section["_delete_"] = chance.choice((True, False, "x", None))


def override(draft: Draft, chance: random.Random) -> None:
    """Override a value on the command line."""
    path = chance.choice(draft.places())
    key = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path).strip(".")
    if chance.random() < 0.3:
        key = chance.choice(
            (misspelled(key, chance), f"{key}.x", f"{key}[0]", f"{key}[-1]", f"{key}[9]", "", ".", "[0]")
        )
    if path[-1] in COSTLY:
        draft.long = True
    value = chance.choice((in_flow(value_of(chance)), chance.choice(TEXTS)))
    draft.overrides.append(f"{key}={value}".replace("\0", ""))


def add_hook(draft: Draft, chance: random.Random) -> None:
    """Add a built-in hook with a random value for one of its parameters."""
    name = chance.choice(sorted(HOOKS.builtin))
    parameters = list(signature_of(HOOKS.get(name)).parameters)
    options = {chance.choice(parameters): value_of(chance)} if parameters else {}
    hooks = draft.tree.setdefault("custom_hooks", [])
    if isinstance(hooks, list):
        hooks.append({"type": name, **options})


def break_text(draft: Draft, chance: random.Random) -> None:
    """Add lines that are not YAML, or not a config."""
    lines = (
        "\t",
        "- x",
        "? x",
        "---\n",
        "...\n",
        "%YAML 1.3\n---",
        "\ufeff",
        "\0",
        "a: b: c",
        "'",
        '"',
        "{",
        "#",
        "\x85",
        "&a",
    )
    if chance.random() < 0.5:
        draft.head += chance.choice(lines) + chance.choice(("\n", "", "\r\n"))
    else:
        draft.tail += chance.choice(lines)


EDITS: dict[str, Callable[[Draft, random.Random], None]] = {
    edit.__name__: edit
    for edit in (
        *(replace_value, replace_value, misspell_key, add_key, remove, nest, move, tag, anchor, interpolate, inherit),
        *(override, add_hook, break_text),
    )
}
#: The edits to draw from: the first ones are drawn more often.
DRAWN = (*("replace_value",) * 5, *("override",) * 2, *("add_hook",) * 3, *EDITS)


def _key(draft: Draft, chance: random.Random) -> tuple[Any, ...]:
    return chance.choice([path for path in draft.places() if isinstance(path[-1], str) and path[-1]])


def _names_a_data_set(draft: Draft, path: tuple[Any, ...]) -> bool:
    return len(path) == 2 and path[0] == "val" and isinstance(draft.get(path[:1]), dict)


def _try_put(draft: Draft, path: tuple[Any, ...], value: Any) -> None:
    try:
        draft.put(path, value)
    except (KeyError, IndexError, TypeError):  # the place is gone, because the other value was above it
        draft.tree["x"] = value


# -- the target


def draw(chance: random.Random) -> Recipe:
    """Draw a base, up to three edits and a command."""
    edits = tuple((chance.choice(DRAWN), chance.randrange(1 << 32)) for _ in range(chance.choice((1, 1, 2, 3))))
    command = chance.choice(("plan", "dry_run", "dry_run", "dry_run", "train"))
    return Recipe(chance.choice(list(BASES)), edits, command)


def make(recipe: Recipe) -> Input:
    """Return the project of a recipe."""
    draft = Draft(copy.deepcopy(BASES[recipe.base]))
    for name, seed in recipe.edits:
        draft.must_fail = ""
        if draft.tree and draft.places():
            EDITS[name](draft, random.Random(seed))
    # `hookline plan` checks only the hooks.
    dry = (draft.long and recipe.command == "train") or (draft.must_fail and recipe.command == "plan")
    words = COMMANDS["dry_run" if dry else recipe.command]
    files = {"mynet.py": MYNET.encode(), "config.yaml": draft.text().encode(errors="surrogatepass"), **draft.files}
    return Input(files, (*words, *draft.overrides), draft.must_fail)


TARGET = Target("configs", draw, make, stays_inside=False, memory=1 << 40)
