"""The last work of hooks, when everything of a run is closed: records, checkpoints, and why it failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hookline.rundir.names import LOG

if TYPE_CHECKING:
    from hookline.state.host import Host


class Closing:
    """Remembers whether a run has its folder and its records. Before that, hooks have nothing to look at."""

    has_begun = False


@contextmanager
def telling_hooks(host: Host) -> Iterator[Closing]:
    """Call `when_closed` of the hooks at the end, whatever happens. The run is over: a failure is only a warning.

    If one of several processes fails, the hooks are not called: a launcher soon ends the others, which would then have
    no time to name the one that failed.
    """
    closing = Closing()
    try:
        yield closing
    except Exception:
        closing.has_begun &= host.strategy.acts_alone and not host.loading.refused
        raise
    finally:
        # The folder may have been deleted, and another run may use the path now.
        if closing.has_begun and host.terminal.has_log_at(host.work_dir / LOG):
            host.terminal.flush()
            for entry in list(host.plan):
                if host.strategy.is_main or not entry.alone:
                    _tell(host, entry.name, getattr(entry.hook, "when_closed", None), host.plan.host)
            if host.strategy.is_main:
                _tell(host, type(host).__name__, type(host).when_closed, host)


def _tell(host: Host, name: str, call: Callable[[Any], None] | None, run: Any) -> None:
    try:
        if call is not None:
            call(run)
    except Exception as error:
        host.terminal.say(f"warning: {name}: {type(error).__name__}: {error}", "yellow")
