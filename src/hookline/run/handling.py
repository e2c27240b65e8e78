"""The windows and validations of a host, as `handle_requests` in `hookline.engine.loops` sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hookline.run.requests import Requests


class Windows:
    """The windows of a run that has none: every iteration is a whole step. `Optims` has the windows of a Runner."""

    @property
    def accumulating(self) -> bool:
        """Return whether a window is open, so that requests have to wait for its end."""
        return False

    def clear_skip(self) -> None:
        """Clear a skip at the end of its iteration."""

    def reset(self) -> None:
        """Discard unfinished windows and their gradients."""


class Validations:
    """The validations of a host that has none."""

    @property
    def possible(self) -> bool:
        """Return whether there is a validation to run."""
        return False

    def run_if_due(self) -> bool:
        """Run a validation if one is due or was requested, and return whether it did."""
        return False

    def remember(self) -> None:
        """Remember a validation that is due inside an accumulation window, to be run at the end of the window."""

    def rewind(self, states: dict[str, Any]) -> None:
        """Replace states that half a validation has changed: a resumed run repeats it."""


class RequestedValidations(Validations):
    """The validations of a host whose own loop or hooks run those that are due: here, those that were requested."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def due(self) -> bool:
        """Return whether a validation was requested."""
        return self._requests.validate and self.possible

    def validate(self) -> None:
        """Run a validation now."""
        raise NotImplementedError

    def run_if_due(self) -> bool:
        """Run a validation that was requested, and return whether it did."""
        if not self.due():
            return False
        self._requests.validate = False
        self.validate()
        return True
