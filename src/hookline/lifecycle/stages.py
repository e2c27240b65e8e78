"""Stages: what a host adds to the stages of a session, from its beginning until everything is closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from hookline.common import forks, worker_errors
from hookline.common.files import write_text
from hookline.errors import blame, described
from hookline.lifecycle import places
from hookline.rundir import names

if TYPE_CHECKING:
    from hookline.state.host import Host, Verb


class Stages:
    """The stages of a session of a host."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def begun(self, verb: Verb) -> AbstractContextManager[None]:
        """Return the context of a session. Entering it gets the host ready to run: seed, devices, late parts."""
        return nullcontext()

    def describe(self) -> None:
        """Write what describes the run into its folder: the plan, and the config if there is one."""
        write_text(self._host.work_dir / names.PLAN, f"{self._host.plan.explain()}\n")

    @contextmanager
    def points(self) -> Iterator[None]:
        """Call the points of a run around its work. Show a failure to hooks, and raise it again."""
        host, plan = self._host, self._host.plan
        with plan.around("run"):
            try:
                plan.before_run()
                yield
                plan.after_run()
            except BaseException as error:
                forks.end_if_copy(host, error)
                with worker_errors.put_off():  # torch may notice only now that a worker has died
                    here = worker_errors.explain(error)
                    explained = host.strategy.explain(places.explain_exit(host, here))
                    try:
                        plan.on_exception(explained)
                    except Exception as another:
                        blame(explained, f"a hook failed at on_exception: {described(another)}")
                    if explained is error:
                        raise
                    raise explained from (None if explained is here else here)

    def before_training(self) -> None:
        """Run the checks that are possible before the first step."""

    def when_closed(self) -> None:
        """Do what is left when everything of a run is closed, in the main process. A failure is only a warning."""


# -- the last work of hooks, when everything of a run is closed


class Closing:
    """Remembers whether a run has its folder and its records. Before that, hooks have nothing to look at."""

    has_begun = False


@contextmanager
def telling_hooks(host: Host, stages: Stages) -> Iterator[Closing]:
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
        if closing.has_begun and host.terminal.has_log_at(host.work_dir / names.LOG):
            host.terminal.flush()
            for entry in list(host.plan):
                if host.strategy.is_main or not entry.alone:
                    _tell(host, entry.name, getattr(entry.hook, "when_closed", None), host.plan.host)
            if host.strategy.is_main:
                _tell(host, type(host).__name__, type(stages).when_closed, stages)


def _tell(host: Host, name: str, call: Callable[[Any], None] | None, run: Any) -> None:
    try:
        if call is not None:
            call(run)
    except Exception as error:
        host.terminal.say(f"warning: {name}: {type(error).__name__}: {error}", "yellow")
