"""SaveRequest: one checkpoint that somebody asks for, and the options of `runner.request_save`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from hookline.errors import HookError, did_you_mean

if TYPE_CHECKING:
    from hookline.run.position import Position


@dataclass(frozen=True)
class SaveRequest:
    """A request for a checkpoint. The file gets its number when it is written, after the counters have advanced."""

    #: The file name, with `{}` for the number of the epoch or iteration.
    template: str | None = None
    #: Returns the file name for the position at which it is written; used instead of a template.
    name: Callable[[Position], str] | None = None
    by_epoch: bool | None = None
    folder: Path | None = None
    #: Put before the file name: `best_accuracy_`.
    prefix: str = ""
    optimizer: bool = True
    schedulers: bool = True
    #: The entries of the model to save: all, or those that training changes. By default, as the hooks of the run do.
    params: Literal["all", "trainable"] | None = None
    #: More facts for the `meta` of this checkpoint: tensors and plain data.
    meta: Mapping[str, Any] = field(default_factory=dict)
    #: Replace a file of this name, and write nothing if it no longer exists.
    replaces: bool = False
    #: Write in the background, from a copy of the state.
    background: bool = False
    #: Keep a copy in memory instead of writing a file; it is written only if the run fails.
    in_memory: bool = False
    #: End the run if the file cannot be written. Otherwise warn, and continue without it.
    needed: bool = True
    #: Called with the path once the file is on disk and verified; for a large file, in the thread that verifies it.
    done: Callable[[Path], None] | None = None
    #: Called if the file was not needed and could not be written.
    failed: Callable[[], None] | None = None
    #: True if all processes ask for this at the same iteration by themselves, so that they need not agree on it.
    together: bool = False

    def for_others(self) -> SaveRequest:
        """Return the request in a form for other processes: only the one that asked is called back."""
        if self.name is not None:
            raise HookError(
                "with several processes, request_save(name=...) must be a text, not a function, unless all of them ask "
                "for it at the same iteration (together=True)"
            )
        return replace(self, done=None, failed=None)


class SaveOptions(TypedDict, total=False):
    """The options of `runner.request_save`, besides the name: see the fields of `SaveRequest`."""

    by_epoch: bool | None
    folder: str | Path | None
    prefix: str
    optimizer: bool
    schedulers: bool
    params: Literal["all", "trainable"] | None
    meta: Mapping[str, Any]
    background: bool
    in_memory: bool
    needed: bool
    done: Callable[[Path], None] | None
    failed: Callable[[], None] | None
    together: bool


#: The name of a checkpoint: with `{}` for a number, or a function from the position to the name.
FileName: TypeAlias = "str | Callable[[Position], str] | None"


def build_save_request(name: FileName, options: SaveOptions) -> SaveRequest:
    """Build a request from the arguments of `runner.request_save`; an unknown option is refused."""
    known = SaveOptions.__optional_keys__
    for option in options:
        if option not in known:
            raise HookError(f"request_save has no option '{option}'; {did_you_mean(option, sorted(known))}")
    folder = options.get("folder")
    given: dict[str, Any] = {**options, "folder": Path(folder) if folder is not None else None}
    return SaveRequest(name=name, **given) if callable(name) else SaveRequest(template=name, **given)
