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
from tests.faults.fuzz_bases import BASES, OPTIONS
from tests.faults.fuzz_yaml import TEXTS, Draft, Prefixed, Raw, in_flow, misspelled, value_of
from tests.faults.fuzzing import Recipe, Target
from tests.faults.project import MYNET

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


def nudge(draft: Draft, chance: random.Random) -> None:
    """Replace a number, a flag or a text by another one of the same type."""
    path = chance.choice(
        [path for path in draft.places() if isinstance(draft.get(path), (int, float, str))] or draft.places()
    )
    draft.put(path, _similar(draft.get(path), chance))
    draft.long = draft.long or path[-1] in COSTLY


def add_option(draft: Draft, chance: random.Random) -> None:
    """Add an option that exists, with a value of the right type or any other."""
    section = chance.choice(sorted(OPTIONS))
    name, like = chance.choice(sorted(OPTIONS[section].items(), key=str))
    place = draft.tree
    for key in section.split("."):
        place = place.setdefault(key, {}) if isinstance(place, dict) else {}
    if isinstance(place, dict):
        place[name] = chance.choice((like, _similar(like, chance), value_of(chance)))
    draft.long = True


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
        *(replace_value, nudge, add_option, misspell_key, add_key, remove, nest, move, tag, anchor, interpolate),
        *(inherit, override, add_hook, break_text),
    )
}
#: The edits to draw from: the first ones are drawn more often.
DRAWN = (*("replace_value",) * 4, *("nudge",) * 4, *("add_option",) * 4, *("add_hook",) * 3, "override", *EDITS)


def _similar(value: Any, chance: random.Random) -> Any:
    """Return another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice((0, 1, 2, 3, 7, 100, -1, 2**31, 2**63))
    if isinstance(value, float):
        return chance.choice((0.0, -0.0, 1.0, 5.0, 1e-30, 1e30, 1e308, -1.0, float("nan"), float("inf")))
    return chance.choice(TEXTS) if isinstance(value, str) else value


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
