"""Host: the owner of a loop, as a session and checkpoint saving see it.

`Runner` is a host, and so is a trainer of a dialect that has its own loop. A host has the objects below, and a map of
named stateful parts. A snapshot is then `{name: part.state_dict()}`, and a new stateful part of a run is one entry.

    plan        the hooks
    position    counters of what is finished
    requests    requests of hooks, signals and threads
    terminal    the screen and run.log
    strategy    processes and devices
    saving      writes checkpoints
    loading     the checkpoint that the run continues from
    journal     the events of a training
    parts       the contents of a checkpoint, by name
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from hookline.checkpoint.names import NAMES
from hookline.common import forks
from hookline.common.files import real_path, write_text
from hookline.plan.callers import call_in_progress
from hookline.run.keep import Keep
from hookline.rundir.journal import NOWHERE, Journal

if TYPE_CHECKING:
    from hookline.plan.plan import Plan
    from hookline.run.position import Position
    from hookline.run.requests import Action, Requests, SaveRequest
    from hookline.screen.terminal import Terminal
    from hookline.state.loading import Loading
    from hookline.state.saving import Saving
    from hookline.strategies import Strategy
    from hookline.writers.base import Outcome

Verb = Literal["train", "val", "test"]


class Part:
    """One named piece of the state of a run.

    A part is loaded before the first point of training, or, if it is `late`, where the run continues: after scopes were
    entered and `before_` points were called, because these may change it.
    """

    late: ClassVar[bool] = False
    #: True if a run can be resumed only from a checkpoint that has this part.
    needed: ClassVar[bool] = False
    #: True if a part that is not needed is loaded with None when the checkpoint does not have it.
    loads_without_state: ClassVar[bool] = False
    #: True if code of users restores the state. Its errors are shown as they are.
    runs_user_code: ClassVar[bool] = False
    #: True if every process has its own state. A process that was not there when it was saved gets None.
    per_rank: ClassVar[bool] = False
    #: The option of a save that includes this part; empty for a part that every checkpoint has.
    option: ClassVar[Literal["", "optimizer", "schedulers"]] = ""

    def state_dict(self) -> Any:
        """Return the state: tensors and plain data."""
        raise NotImplementedError

    def load_state_dict(self, state: Any, checkpoint: Mapping[str, Any]) -> None:
        """Restore the state. `checkpoint` is the whole file, for parts that depend on another one."""
        raise NotImplementedError

    def malformed(self, state: Any) -> list[str]:
        """Return the paths of entries in a saved state that have the wrong type; `""` is the state itself."""
        return []

    def misfits(self, state: Any, checkpoint: Mapping[str, Any]) -> list[str]:
        """Return the reasons why a saved state does not fit this run. If any part has one, nothing is loaded."""
        return []


class HostPart(Part):
    """A part that needs the host."""

    def __init__(self, host: Any) -> None:
        self._host = host


class CustomPart(Part):
    """A part that a user added: any object with `state_dict` and `load_state_dict`."""

    late = True
    runs_user_code = True

    def __init__(self, part: Any) -> None:
        #: The user's object.
        self.part = part

    def state_dict(self) -> Any:
        """Return the state of the user's object."""
        return self.part.state_dict()

    def load_state_dict(self, state: Any, checkpoint: Mapping[str, Any]) -> None:
        """Restore the state of the user's object."""
        self.part.load_state_dict(state)


class Host:
    """Base class of everything that owns a loop."""

    plan: Plan
    position: Position
    requests: Requests
    terminal: Terminal
    strategy: Strategy
    saving: Saving
    loading: Loading
    #: The contents of a checkpoint besides `meta`, by name, in the order in which they are loaded.
    parts: dict[str, Part]
    work_dir: Path
    experiment_name: str
    #: True resumes from the newest intact checkpoint of the folder. A path resumes from that checkpoint.
    resume: bool | str | Path = False
    load_from: str | Path | None = None
    #: Who wins where a checkpoint and this run differ, as far as the user chose.
    keep: Keep = Keep()
    #: True if the user chose the seed. Otherwise a resumed run takes the seed of its checkpoint.
    seed_is_chosen = True
    #: The command that continues this run; empty if it was not started by a command.
    command = ""
    #: The verb that is running; None outside a session.
    running: Verb | None = None

    #: The events of the session. Only the main process of a training keeps them.
    journal: Journal = NOWHERE

    #: The name of this attempt to train, the same in all processes; empty before training begins.
    attempt = ""

    #: The current batch. A `before_..._iter` may replace it.
    data_batch: Any = None
    #: True if the current batch is the last one of its pass.
    ends_epoch = False
    #: True if an accumulation window has to end with the current batch.
    ends_window = False
    #: The samples of the current batch relative to a usual one; None if every process has a usual one.
    batch_weight: float | None = None

    #: True if signals become requests. Otherwise they end the process as usual.
    catches_signals: bool = True

    #: The code that continues a run that no command has started.
    resume_hint: ClassVar[str] = "Runner(..., resume=True).train()"
    #: The hint, in messages, on how to load only the weights of a checkpoint.
    weights_hint: ClassVar[str] = "use load_from to start from its weights"
    #: The pattern of the file names of checkpoints.
    checkpoint_names: ClassVar[re.Pattern[str]] = NAMES

    # -- what differs between hosts

    @property
    def iter(self) -> int:
        """Return the number of finished iterations."""
        return self.position.iter

    @property
    def validations(self) -> int:
        """Return the number of finished validations."""
        return self.position.validations

    @property
    def accumulating(self) -> bool:
        """Return whether an accumulation window is open, so that requests have to wait."""
        return False

    @property
    def progress_text(self) -> str:
        """Return the progress of the run, for messages: `iteration 12`."""
        return f"iteration {self.position.iter}"

    def own_generators(self) -> AbstractContextManager[None]:
        """Return a context for the session in which the random generators of the process belong to the run."""
        return nullcontext()

    def begin_session(self, verb: Verb) -> None:
        """Get ready to run: seed, devices, and parts that are built late."""

    def before_training(self) -> None:
        """Run the checks that are possible before the first step, and record the config."""

    def continue_with(self, command: str) -> None:
        """Set the command that continues this run, for messages."""
        self.command = command

    def facts(self) -> dict[str, Any]:
        """Return the `meta` of a checkpoint: facts for readers. A resume needs none of them."""
        raise NotImplementedError

    def rewind(self, states: dict[str, Any]) -> None:
        """Replace states that were changed by something that a resumed run repeats, such as half a validation."""

    def check_loss(self) -> None:
        """Raise a NumericsError if the loss is not finite; called before a save."""

    def report_changes(self) -> None:
        """Warn about changes during training that have an effect nobody wants; called before a save."""

    def tensor_holders(self) -> Iterable[Any]:
        """Return the objects of the run that hold tensors: the model and the optimizers."""
        return ()

    def weight_names(self) -> list[str]:
        """Return the names of the model's parameters, which must be finite in a checkpoint."""
        return []

    def checkpoint_name(self, request: SaveRequest) -> str:
        """Return the file name of a requested checkpoint at the current position."""
        raise NotImplementedError

    def trained_names(self) -> Collection[str]:
        """Return the names of the parameters that optimizers train now."""
        return ()

    @property
    def can_validate(self) -> bool:
        """Return whether there is a validation to run."""
        return False

    def validate_now(self) -> None:
        """Run a validation that was requested. This is for hosts whose own loop runs those that are due."""
        raise NotImplementedError

    def validate_if_due(self) -> bool:
        """Run a validation if one is due or was requested, and return whether it did."""
        if not (self.requests.validate and self.can_validate):
            return False
        self.requests.validate = False
        self.validate_now()
        return True

    def refusal(self, action: Action) -> str:
        """Return why this host cannot do what somebody asks for from outside; empty if it can."""
        return "the run has no validation" if action == "validate" and not self.can_validate else ""

    def while_accumulating(self) -> None:
        """Handle work that cannot wait until the accumulation window ends, instead of handling requests."""

    def clear_skip(self) -> None:
        """Clear a skip at the end of its iteration."""
        self.requests.skip = ""

    def clear_requests(self) -> None:
        """Forget the requests of an earlier run of this host, and the gradients of an unfinished window."""
        self.requests.clear()

    def disown(self) -> None:
        """Let a process that was forked during this run end as soon as it would continue the loop."""
        forks.note_copy(self.plan.host)  # hooks see this object
        call = call_in_progress(self.plan.host)
        self.requests.disown(f" in hook {call.who}, at {call.point.name}," if call is not None else "")

    # -- files

    @property
    def folders(self) -> list[Path]:
        """Return the folders of this run's checkpoints: the folders of hooks, and the folder of the run."""
        own = [folder for entry in self.plan if (folder := entry.checkpoint_folder(self.plan.host)) is not None]
        return list({real_path(folder): folder for folder in [*own, self.work_dir]}.values())

    def write_description(self) -> None:
        """Write what describes the run into its folder: the plan and the config."""
        write_text(self.work_dir / "plan.txt", f"{self.plan.explain()}\n")

    def record_files(self) -> Iterable[str]:
        """Return the files and folders that the writers of this run create."""
        return ()

    def records_cut_back(self) -> Iterable[str]:
        """Return the record files that are cut back when a run resumes from an earlier checkpoint."""
        return ()

    def open_records(self, resuming: bool) -> None:
        """Open the records of the run."""

    def rejoin_records(self, state: Mapping[str, Any]) -> None:
        """Continue the records of the run whose checkpoint is evaluated."""

    def close_records(self, outcome: Outcome) -> None:
        """Close the records of the run."""

    def when_closed(self) -> None:
        """Do what is left when everything of a run is closed, in the main process. A failure is only a warning."""

    # -- points around a run

    def failures_shown(self) -> AbstractContextManager[Any]:
        """Return a context for the session that shows failures to hooks. For a Runner, `points_of_run` does this."""
        return nullcontext()

    def points_of_run(self) -> AbstractContextManager[None] | None:
        """Return the context with the points of a run; None for `before_run` and `after_run`."""
        return None
