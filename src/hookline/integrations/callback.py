"""GuestCallback: what the HooklineCallback of every engine has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hookline.integrations.guest import Guest

if TYPE_CHECKING:
    from hookline.integrations.host import GuestRunner
    from hookline.integrations.refusals import Engine


class GuestCallback:
    """A callback of an engine that runs hooks.

    Args:
        hooks: Hooks that look, record, save or stop: objects, names, or dicts with `type`.
        work_dir: The folder of the run.
        default_hooks: Changes to the default hooks (runtime_info, timer, logger, report): parameters, or None.
        weigh: A function of a batch that returns how much it counts in means. By default, its samples.
        options: Options of a Runner: `writers`, `budget`, `experiment_name`, `config`, `points`, `quiet`.
    """

    _engine: ClassVar[Engine]

    def __init__(
        self,
        hooks: Iterable[Any] = (),
        work_dir: str | Path = "runs/run",
        default_hooks: Mapping[str, Any] | None = None,
        weigh: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> None:
        self._guest = Guest(self._engine, hooks, work_dir, default_hooks, weigh, options)

    @property
    def runner(self) -> GuestRunner | None:
        """Return the Runner that hooks see; None before training."""
        return self._guest.runner
