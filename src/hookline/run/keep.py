"""`keep`: who wins where a checkpoint and the config differ.

--keep config              the config wins wherever there is a choice
--keep lr=config           only for the learning rate
Runner(..., resume=True, keep={"lr": "config", "schedule": "checkpoint"})

A key without a choice, a misspelled key and a contradiction are refused before the run starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast, get_args

from hookline.errors import ConfigError, did_you_mean

Side = Literal["checkpoint", "config"]
SIDES: tuple[str, ...] = get_args(Side)

#: The keys with a choice, and who wins if nobody chose.
DEFAULTS: dict[str, Side] = {
    "lr": "checkpoint",
    "optimizer": "checkpoint",
    "schedule": "checkpoint",
    "max_epochs": "config",
    "max_iters": "config",
    "accumulate": "config",
}
#: What to do if the config wins and there is no choice.
CHANGE = "to use the checkpoint's, change the config"
#: The keys without a choice, and the reason.
FIXED = {
    "seed": f"the data is built with it; {CHANGE}",
    "batch_size": f"the loader is built with it; {CHANGE}",
    "batches": "the loader decides",
    "samples": "the data decides",
    "skip": f"the data is built with it; {CHANGE}",
    "precision": f"the run is built with it; {CHANGE}",
    "clip": f"it has no state; {CHANGE}",
    "hooks": "hooks are built from the config, and their states come from the checkpoint",
    "parts": "parts are built by your code",
    "frozen": "the model is built by your code",
    "modes": "the model is built by your code",
    "dtype": "the model is built with it",
    "processes": "they are already running",
    "device": "the run is already on it",
    "threads": "they belong to this process",
    **dict.fromkeys(("hookline", "torch", "numpy", "python"), "it is installed here"),
}


@dataclass(frozen=True)
class Keep:
    """The winner of each difference, config or checkpoint: for all keys, or for single ones."""

    everywhere: Side | None = None
    by_key: Mapping[str, Side] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether anything was chosen."""
        return self.everywhere is not None or bool(self.by_key)

    def side(self, key: str) -> Side | None:
        """Return who was chosen to win at a key; None if nobody was."""
        return self.by_key.get(key, self.everywhere)

    def winner(self, key: str) -> Side:
        """Return who wins at a key."""
        return self.side(key) or DEFAULTS[key]

    @property
    def words(self) -> list[str]:
        """Return the choices as they are written: `config`, `lr=config`."""
        own = [f"{key}={side}" for key, side in self.by_key.items()]
        return own if self.everywhere is None else [self.everywhere, *own]


@dataclass
class Choices:
    """What the user chose for the start of a run."""

    #: True resumes from the newest intact checkpoint of the folder. A path resumes from that checkpoint.
    resume: bool | str | Path = False
    #: The checkpoint whose weights training starts with.
    load_from: str | Path | None = None
    #: Who wins where a checkpoint and this run differ.
    keep: Keep = field(default_factory=Keep)
    #: False if the seed was drawn. A resumed run then takes the seed of its checkpoint.
    seed_is_chosen: bool = True


def parse_keep(given: str | Mapping[str, str] | Iterable[str] | Keep | None, who: str = "keep") -> Keep:
    """Read what a user chose: a side, `key=side` (several with commas or in a list), or a mapping of keys to sides.

    >>> parse_keep("lr=config,schedule=checkpoint").words
    ['lr=config', 'schedule=checkpoint']
    """
    if given is None or isinstance(given, Keep):
        return given or Keep()
    items = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    sides = list(given.values()) if isinstance(given, Mapping) else []
    if not all(isinstance(item, str) for item in [*items, *sides]):
        raise ConfigError(f"{who} must be a text such as 'lr=config', a list of them, or a mapping, not {given!r}")
    if isinstance(given, Mapping):
        pairs = [(key, side) for key, side in given.items()]
    else:
        words = [word.strip() for item in items for word in item.split(",")]
        pairs = [(key, side) if equals else ("", key) for key, equals, side in (word.partition("=") for word in words)]
    return _checked(pairs, who)


def refuse_without_resume(keep: Keep) -> None:
    """Refuse choices in a run that does not resume, because they would have no effect."""
    if keep:
        raise ConfigError(
            f"keep {', '.join(keep.words)}: this chooses between a checkpoint and the config, so it needs a resume; "
            "set resume as well, or remove keep"
        )


def _checked(pairs: list[tuple[str, str]], who: str) -> Keep:
    everywhere: Side | None = None
    by_key: dict[str, Side] = {}
    for key, side in pairs:
        if key in FIXED:
            raise ConfigError(f"{who} {key}={side}: there is no choice for '{key}': {FIXED[key]}")
        if key and key not in DEFAULTS:
            raise ConfigError(f"{who} {key}={side}: unknown key '{key}'; {did_you_mean(key, DEFAULTS)}")
        if side not in SIDES:
            shown = f"{key}={side}" if key else side
            what = "unknown side" if key else "expected a side, or key=side, but found"
            raise ConfigError(f"{who} {shown}: {what} '{side}'; {did_you_mean(side, SIDES)}")
        chosen = cast("Side", side)
        before = by_key.get(key) if key else everywhere
        if before not in (None, chosen):
            raise ConfigError(f"{who} was given twice{f' for {key}' if key else ''}: {before} and {chosen}; use one")
        if key:
            by_key[key] = chosen
        else:
            everywhere = chosen
    return Keep(everywhere, by_key)
