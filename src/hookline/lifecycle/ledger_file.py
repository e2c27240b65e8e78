"""hooks.json: the ledger of a training in the folder of its run.

It is written when training starts, after saves and validations, when a record is written, and at the end, also if the
run fails. It is replaced as a whole, so a reader never sees half of it. Only the main process writes it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hookline.common.durations import clock
from hookline.common.files import write_text
from hookline.common.pace import Pace
from hookline.errors import StorageError
from hookline.plan.cost_report import report_costs
from hookline.plan.ledger import do_nothing
from hookline.rundir import ownership

if TYPE_CHECKING:
    from hookline.state.host import Host

log = logging.getLogger("hookline")

NAME = "hooks.json"
#: The seconds between two writes for records.
GAP = 5.0


@contextmanager
def keeping(host: Host) -> Iterator[None]:
    """Keep the ledger of a training, and write it into the folder of the run."""
    ledger, file = host.plan.ledger, LedgerFile(host)
    ledger.roots = host.contents.tensor_holders
    ledger.open(host.position)
    try:
        if host.strategy.is_main:
            file.write()
            ledger.refresh = file.write_if_due
        yield
    finally:
        ledger.refresh = do_nothing
        ledger.close()
        if host.strategy.is_main:
            file.write_or_warn()


class LedgerFile:
    """The file of one session."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._pace = Pace(GAP)
        self._failed = False

    def write(self) -> None:
        """Replace the file. A StorageError says why it cannot be written."""
        began, plan = clock(), self._host.plan
        with plan.ledger.working():
            data = report_costs(plan, plan.ledger).to_dict()
            write_text(self._host.work_dir / NAME, json.dumps(data, allow_nan=False) + "\n")
        self._pace.done(began, clock())

    def write_if_due(self, soon: bool = False) -> None:
        """Replace the file if it is old enough, and if writing takes no more than a small share of the time."""
        if self._pace.is_due(clock(), 0.0 if soon else GAP):
            self.write_or_warn()

    def write_or_warn(self) -> None:
        """Replace the file. If this fails, the run continues; a run whose folder was deleted reports that itself."""
        try:
            if not ownership.is_lost(self._host.work_dir):
                self.write()
        except StorageError as error:
            if not self._failed:
                self._failed = True
                log.warning("%s. The run continues.", error)
