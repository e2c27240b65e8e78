"""Windows: the accumulation windows of a run. Requests wait until none is open."""

from __future__ import annotations


class Windows:
    """The windows of a run that has none: every iteration is a whole step. `Optims` has those of a Runner."""

    @property
    def accumulating(self) -> bool:
        """Return whether a window is open, so that requests have to wait for its end."""
        return False

    def clear_skip(self) -> None:
        """Clear a skip at the end of its iteration."""

    def reset(self) -> None:
        """Discard unfinished windows and their gradients."""
