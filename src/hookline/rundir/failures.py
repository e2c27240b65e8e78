"""The failures of a run at one step, over all attempts: `.failures` in its folder.

A run that fails at the same step again and again would do so for ever if a job scheduler started it each time. So the
third failure in a row has a special exit code. The file is removed once the step is passed.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hookline.common.files import PARTIAL, owned, regular
from hookline.errors import StorageError
from hookline.rundir import capsule

NAME = ".failures"
#: After this many failures at the same step, a run should not be started again.
LIMIT = 3
# Files that a run writes are far smaller. A larger file was not written by a run.
_MOST_BYTES = 4096


@dataclass(frozen=True)
class Failures:
    """The failures at one step.

    Args:
        step: The number of the step that failed.
        count: How many attempts in a row have failed there.
        attempt: The last one. Several processes of it may note the same failure.
        kind: The type of the last error.
        near: True if the step is known only by another process, which may be one step ahead.
    """

    step: int
    count: int
    attempt: str
    kind: str
    near: bool = False


def note(folder: Path, step: int, attempt: str, kind: str, near: bool = False) -> int:
    """Note a failure, and return how many attempts in a row have failed at this step."""
    before, new = read(folder), Failures(step, 1, attempt, kind, near)
    if before is not None and before.attempt == attempt:
        new = before if near or not before.near else replace(new, count=before.count)
    elif before is not None and abs(step - before.step) <= (near or before.near):
        new = replace(new, count=before.count + 1, step=before.step if near else step, near=near and before.near)
    if new != before:
        with suppress(OSError, StorageError):  # the error that ends the run is more important
            _write(folder, new)
    return new.count


def read(folder: Path) -> Failures | None:
    """Return the failures that are noted in a folder; None if there are none, or if the file is not ours."""
    try:
        with open(folder / NAME, "rb", opener=regular) as file:
            data = json.loads(file.read(_MOST_BYTES))
        failures = Failures(**data)
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    numbers = (failures.step, failures.count)
    texts = (failures.attempt, failures.kind)
    fine = all(type(entry) is int and 0 < entry < 2**63 for entry in numbers) and all(
        type(entry) is str for entry in texts
    )
    return failures if fine and type(failures.near) is bool else None


def forget(folder: Path, passed: int | None = None) -> None:
    """Remove the file, if the run has passed the step, or in any case if `passed` is not given.

    A failure that the run has passed leaves no capsule, either.
    """
    if passed is not None and os.path.lexists(folder / capsule.NAME):
        capsule.forget(folder, passed)
    if not os.path.lexists(folder / NAME):
        return
    before = read(folder)
    if passed is None or before is None or passed >= before.step:
        with suppress(OSError):
            (folder / NAME).unlink(missing_ok=True)


def _write(folder: Path, failures: Failures) -> None:
    """Replace the file. Another process may do the same at this moment."""
    temporary = folder / f"{NAME}-{os.getpid()}{PARTIAL}"
    try:
        with open(temporary, "w", encoding="utf-8", opener=owned) as file:
            json.dump(asdict(failures), file)
        os.replace(temporary, folder / NAME)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
