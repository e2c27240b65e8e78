"""Loading: the part of a checkpoint that is loaded late, where a resumed run continues.

`hookline.resume.start` finds the checkpoint, compares it with the run, and loads what comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.data.batches import refuse_data_of_later, refuse_other_data
from hookline.state import snapshot

if TYPE_CHECKING:
    from hookline.state.host import Host


class Loading:
    """The checkpoint that a host was loaded from."""

    def __init__(self, host: Host) -> None:
        self._host = host
        #: The checkpoint that is being resumed, until its position is reached.
        self.pending: dict[str, Any] | None = None
        #: The iteration of the checkpoint that the run was resumed from.
        self.resumed_at = -1
        #: The checkpoint that was loaded last.
        self.source: Path | None = None
        #: True once a run of this host has begun. A second call of `train` then continues from the current state.
        self.started = False
        #: True if the run in this folder was not resumed, because its checkpoint does not fit or a decision is missing.
        self.refused = False
        #: Returns whether a part or a hook that only one side has was reported: `was_reported("parts", name)`.
        self.was_reported: Callable[[str, str], bool] = lambda kind, name: False
        #: The data that was replaced when the checkpoint was saved, until a pass of the resumed run begins with it.
        self.data: dict[str, int] = {}
        #: The data that was replaced when the pass of the checkpoint began, until it continues; None if it is unknown.
        self.data_of_saved_pass: dict[str, int] | None = None
        #: The data that was replaced when the running pass began.
        self.data_of_pass: dict[str, int] = {}
        #: Returns the data that was replaced in this run.
        self.replaced_data: Callable[[], dict[str, int]] = dict
        self._loader_state: tuple[bool, dict[str, Any] | None] = (False, None)

    def restore(self) -> bool:
        """Load the late parts of a run that is being resumed, once, where it continues; return whether it did."""
        checkpoint, self.pending = self.pending, None
        if checkpoint is None:
            return False
        snapshot.load_late(self._host, checkpoint, str(self.source))
        return True

    def check_data(self, in_epoch: bool) -> None:
        """Refuse other data than when the checkpoint was saved, before a pass begins, or continues `in_epoch`.

        Data that was replaced inside an epoch is for the next pass, so it is looked for there.
        """
        self.data_of_pass = now = self.replaced_data()
        of_pass, self.data_of_saved_pass = self.data_of_saved_pass, None
        if in_epoch and of_pass is not None:
            refuse_data_of_later(of_pass, now)
            refuse_other_data(of_pass, now, in_epoch)
            if of_pass != self.data:
                return
        then, self.data = self.data, {}
        refuse_other_data(then, now, in_epoch)

    def resume_loader(self, state: dict[str, Any] | None) -> None:
        """Let the first pass of the resumed run start from this state of its loader."""
        self._loader_state = (True, state)

    def take_loader_state(self) -> tuple[bool, dict[str, Any] | None]:
        """Return whether this pass over the data is the first of a resumed run, and the loader state to resume with."""
        taken, self._loader_state = self._loader_state, (False, None)
        return taken
