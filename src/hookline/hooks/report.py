"""ReportHook: writes report.html, a page about the run, when it has ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hookline.common.checks import check_number
from hookline.rundir.names import PAGE
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from hookline.plan.milestones import Milestone
    from hookline.runner.runner import Runner
    from hookline.screen.terminal import Terminal


class ReportHook(Hook):
    """Writes `report.html`, a page about the run, when it has ended.

    docs/report.md describes the page. It is written after everything else is closed, also if the run failed or was
    stopped. After a kill, `hookline report RUN` writes the same page.

    A failure of this hook never ends a run.

    Cost: nothing during training. At the end, about 20 ms for a short run, and a second per 30 MB of records.

    Example:
        from hookline.hooks import ReportHook
        from hookline.testing import toy_runner

        toy_runner(default_hooks={"report": ReportHook(max_mb=10)}).train()

    YAML:
        default_hooks:
          report: {max_mb: 500}

    Args:
        max_mb: Write no page, and say so, if the records are larger than this, in megabytes.
    """

    priority = "LOWEST"
    role = "observer"
    ranks = "main"
    draws_random_numbers = False

    def __init__(self, max_mb: float = 100.0) -> None:
        check_number("ReportHook: max_mb", max_mb, least=0.0)
        self.max_mb = max_mb

    def must_reach(self, runner: Runner) -> list[Milestone]:
        """Return nothing: every run ends."""
        return []

    def when_closed(self, runner: Runner) -> None:
        """Write the page."""
        write_report(runner.work_dir, runner.terminal, self.max_mb)


def write_report(folder: Path, terminal: Terminal, max_mb: float = 100.0) -> None:
    """Write the page of a run, unless its records are too large."""
    from hookline.report.gather import gather, records_size
    from hookline.report.page import make_page, write_page

    size = records_size(folder)
    if size > max_mb * 1e6:
        terminal.say(
            f"ReportHook: {PAGE} was not written, because the records have {size / 1e6:.0f} MB; to write it, use: "
            f"hookline report {folder}"
        )
        return
    write_page(folder / PAGE, make_page(gather(folder)))
