"""What repeats steps of a run in this process: `hookline.replay` sets it, and every session of a Runner asks for it.

So a config, a script, a loop of the user's own and the processes that a script starts all go through the same door.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from hookline.errors import HooklineError

if TYPE_CHECKING:
    from hookline.state.host import Verb


class Rerun(Protocol):
    """Repeats steps of one run, in a scratch folder."""

    def around(self, host: Any, verb: Verb) -> AbstractContextManager[None]:
        """Return the context of a session, before anything of it has begun. It changes what the session does."""


#: The environment variable that is set while steps of a run are repeated, for processes that do not know more.
VARIABLE = "HOOKLINE_REPLAY"
#: What repeats steps in this process, and in the processes that are forked from it; None outside of a replay.
active: Rerun | None = None


def refuse(folder: object) -> None:
    """Refuse to train for real in a process that the code of a run has started while its steps are repeated."""
    raise HooklineError(
        f"a replay cannot follow the code of this run into a new process, which would train for real in {folder}; "
        "start the run with hookline train --nproc, torchrun or hookline.launch"
    )
