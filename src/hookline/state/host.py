"""Host: the owner of a loop, as a session and checkpoint saving see it: a few objects with one job each.

`RunnerHost` is a host, and so is a trainer of a dialect that has its own loop.

    plan        the hooks
    position    counters of what is finished
    current     the current batch
    requests    requests of hooks, signals and threads
    windows     the accumulation windows, while which requests wait
    evaluation  the validations that requests may run
    strategy    processes and devices
    contents    what a checkpoint holds
    saving      writes checkpoints
    loading     the checkpoint that the run continues from
    records     the numbers that writers get
    terminal    the screen and run.log
    journal     the events of a training
    hints       what messages tell the user to write
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from hookline.checkpoint.names import NAMES
from hookline.common import forks
from hookline.common.files import real_path
from hookline.plan.callers import call_in_progress
from hookline.rundir.journal import NOWHERE, Journal

if TYPE_CHECKING:
    from hookline.plan.plan import Plan
    from hookline.run.handling import Validations, Windows
    from hookline.run.hints import Hints
    from hookline.run.position import Current, Position
    from hookline.run.requests import Requests
    from hookline.run.save_request import SaveRequest
    from hookline.screen.terminal import Terminal
    from hookline.state.contents import Contents
    from hookline.state.loading import Loading
    from hookline.state.saving import Saving
    from hookline.strategies import Strategy
    from hookline.writers.base import Records

Verb = Literal["train", "val", "test"]


class Host:
    """Base class of everything that owns a loop."""

    plan: Plan
    position: Position
    current: Current
    requests: Requests
    windows: Windows
    evaluation: Validations
    strategy: Strategy
    contents: Contents
    saving: Saving
    loading: Loading
    records: Records
    terminal: Terminal
    #: The events of the session. Only the main process of a training keeps them.
    journal: Journal = NOWHERE
    hints: Hints

    work_dir: Path
    experiment_name: str
    #: The verb that is running; None outside a session.
    running: Verb | None = None

    #: True if signals become requests. Otherwise they end the process as usual.
    catches_signals: bool = True

    #: The pattern of the file names of checkpoints.
    checkpoint_names: ClassVar[re.Pattern[str]] = NAMES

    def checkpoint_name(self, request: SaveRequest) -> str:
        """Return the file name of a requested checkpoint at the current position."""
        raise NotImplementedError

    def disown(self) -> None:
        """Let a process that was forked during this run end as soon as it would continue the loop."""
        forks.note_copy(self.plan.host)  # hooks see this object
        call = call_in_progress(self.plan.host)
        self.requests.disown(f" in hook {call.who}, at {call.point.name}," if call is not None else "")

    @property
    def folders(self) -> list[Path]:
        """Return the folders of this run's checkpoints: the folders of hooks, and the folder of the run."""
        own = [folder for entry in self.plan if (folder := entry.checkpoint_folder(self.plan.host)) is not None]
        return list({real_path(folder): folder for folder in [*own, self.work_dir]}.values())
