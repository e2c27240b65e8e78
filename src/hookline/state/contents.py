"""Contents: what a checkpoint holds, as named parts, and what has to be known about them.

A snapshot is `{name: part.state_dict()}`, so a new stateful part of a run is one entry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar, Literal


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


class Contents:
    """The contents of the checkpoints of a host."""

    def __init__(self, parts: dict[str, Part]) -> None:
        #: Everything besides `meta`, by name, in the order in which it is loaded.
        self.parts = parts
        #: False if another engine owns the loop, so that no run can resume from the checkpoints.
        self.is_resumable = True

    def facts(self) -> dict[str, Any]:
        """Return the `meta` of a checkpoint: facts for readers. A resume needs none of them."""
        raise NotImplementedError

    def check(self) -> None:
        """Refuse to save after a loss that is not finite. Warn about changes that have an effect nobody wants."""

    def tensor_holders(self) -> Iterable[Any]:
        """Return the objects of the run that hold tensors: the model and the optimizers."""
        return ()

    def weight_names(self) -> list[str]:
        """Return the names of the model's parameters, which must be finite in a checkpoint."""
        return []

    def trained_names(self) -> Collection[str]:
        """Return the names of the parameters that optimizers train now."""
        return ()
