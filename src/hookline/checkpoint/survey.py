"""Surveys the checkpoints of a folder: which one a resume takes, and why not a newer one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hookline.checkpoint import folders, seal, store
from hookline.common.files import PARTIAL
from hookline.errors import StorageError

#: The end of the reason why a file is not used that a save has not finished.
UNFINISHED = "a save that was interrupted; the next run removes it"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of a folder."""

    name: str
    size: int
    #: The iteration and the finished validations; None if the file does not say so.
    step: int | None
    validations: int | None
    #: The damage to its bytes, in words; empty if they are as they were written.
    damage: str
    #: Why a run cannot resume from it although it is intact: `saved without its optimizer`; empty if it can.
    gap: str

    @property
    def order(self) -> tuple[int, int]:
        """Return a sort key in the order of the run. A file that does not tell comes first."""
        return (-1, 0) if self.step is None else (self.step, self.validations or 0)

    @property
    def condition(self) -> str:
        """Return the state of the file in a few words."""
        return self.damage or (f"intact, {self.gap}" if self.gap else "intact")


@dataclass(frozen=True)
class Survey:
    """The checkpoints of a folder in the order of the run, and what a resume would do."""

    folder: Path
    checkpoints: list[Checkpoint]
    #: The name of the checkpoint that a resume takes; None if there is none.
    chosen: str | None
    #: The files that a resume does not take although they are newer, or may be, with the reasons.
    passed_over: dict[str, str]
    #: Why a resume is refused; empty if it is not.
    refusal: str = ""

    def as_data(self) -> dict[str, Any]:
        """Return the survey as data for JSON."""
        return {
            "folder": str(self.folder),
            "resumes_from": self.chosen,
            "passed_over": self.passed_over,
            "refusal": self.refusal,
            "checkpoints": [asdict(checkpoint) for checkpoint in self.checkpoints],
        }


def survey(folder: Path) -> Survey:
    """Look at all checkpoints of a folder. A folder without any is refused."""
    files = list(filter(folders.exists, folders.find_all(folder)))
    if not files:
        raise StorageError(f"there is no checkpoint in {folder}")
    found = sorted(map(_look_at, files), key=lambda each: (each.order, each.name))
    try:
        newest, refusal = store.newest_intact([folder], lambda text: None), ""
    except StorageError as error:
        newest, refusal = None, str(error)
    chosen = next((each for each in found if newest is not None and each.name == newest.name), None)
    passed_over = {}
    limit = (0, 0) if chosen is None else chosen.order
    for each in found if chosen is not None else ():
        if each.step is None:
            passed_over[each.name] = f"whose iteration is unknown: {each.damage}"
        elif each.order > limit:
            passed_over[each.name] = f"which is newer: {each.damage or f'it was {each.gap}'}"
    for path in sorted(folder.glob(f".*{PARTIAL}")):
        passed_over[path.name] = f"which is {UNFINISHED}"
    if problem := store.find_pointer_problem(folder):
        passed_over[store.POINTER] = f"which is not needed to find it: {problem}"
    return Survey(folder, found, chosen.name if chosen is not None else None, passed_over, refusal)


def _look_at(path: Path) -> Checkpoint:
    note, damage = seal.read_note(path), seal.damage(path)
    gap = "" if damage or (note is not None and note.complete) else f"saved {store.find_gap(path)}"
    return Checkpoint(
        path.name,
        folders.size_of(path),
        note.step if note is not None else None,
        note.validations if note is not None else None,
        damage,
        gap,
    )
