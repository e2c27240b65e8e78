"""Stages: what a host adds to the stages of a session, from its beginning until everything is closed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from hookline.common import forks
from hookline.common.files import write_text
from hookline.errors import DataError, blame, described
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
                if isinstance(error, RuntimeError) and str(error).startswith("DataLoader worker"):
                    # When a worker dies, torch raises this error at an arbitrary place.
                    blame(error, "a worker process of a loader died", exit_code=DataError.exit_code)
                first, error = error, host.strategy.explain(places.explain_exit(host, error))
                try:
                    plan.on_exception(error)
                except Exception as another:
                    blame(error, f"a hook failed at on_exception: {described(another)}")
                if error is first:
                    raise
                raise error from first

    def before_training(self) -> None:
        """Run the checks that are possible before the first step."""

    def when_closed(self) -> None:
        """Do what is left when everything of a run is closed, in the main process. A failure is only a warning."""
