from __future__ import annotations

import re
from pathlib import Path

import pytest

from hookline.checkpoint import inspection, store
from hookline.checkpoint.survey import survey
from hookline.errors import StorageError
from hookline.testing import toy_runner


@pytest.fixture
def run(tmp_path: Path) -> Path:
    toy_runner(max_epochs=4, val=None, work_dir=tmp_path).train()
    return tmp_path


def damage(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:999] + bytes([data[999] ^ 1]) + data[1000:])


def test_the_newest_intact_checkpoint_is_taken_and_each_newer_one_has_a_reason(run: Path) -> None:
    damage(run / "epoch_4.pth")
    data = (run / "epoch_3.pth").read_bytes()
    (run / "epoch_3.pth").write_bytes(data[:-300])
    runner = toy_runner(max_epochs=5, val=None, work_dir=run / "other", default_hooks={"checkpoint": {
        "save_optimizer": False, "interval": 5
    }})  # fmt: skip
    runner.train()
    (run / "other" / "epoch_5.pth").rename(run / "epoch_5.pth")
    (run / ".epoch_6.pth.partial").write_text("half")
    found = survey(run)
    cut = "it does not end with a seal, so it was cut short, damaged, or written by something else"
    assert (found.chosen, found.refusal) == ("epoch_2.pth", "")
    assert found.passed_over == {
        "epoch_3.pth": f"whose iteration is unknown: {cut}",
        "epoch_4.pth": "which is newer: its bytes do not match its SHA-256",
        "epoch_5.pth": "which is newer: it was saved without its optimizer",
        ".epoch_6.pth.partial": "which is a save that was interrupted; the next run removes it",
    }
    assert [(each.name, each.step, each.condition) for each in found.checkpoints] == [
        ("epoch_3.pth", None, cut),
        ("epoch_1.pth", 4, "intact"),
        ("epoch_2.pth", 8, "intact"),
        ("epoch_4.pth", 16, "its bytes do not match its SHA-256"),
        ("epoch_5.pth", 20, "intact, saved without its optimizer"),
    ]
    assert inspection.describe_folder(run).splitlines()[5:] == [
        "a run with --resume continues from epoch_2.pth",
        f"  not from epoch_3.pth, whose iteration is unknown: {cut}",
        "  not from epoch_4.pth, which is newer: its bytes do not match its SHA-256",
        "  not from epoch_5.pth, which is newer: it was saved without its optimizer",
        "  not from .epoch_6.pth.partial, which is a save that was interrupted; the next run removes it",
    ]
    assert toy_runner(max_epochs=4, val=None, work_dir=run, resume=True).train() is not None
    assert "resumed from " + str(run / "epoch_2.pth") in (run / "run.log").read_text()


def test_a_damaged_pointer_does_not_matter_but_is_mentioned(run: Path) -> None:
    (run / store.POINTER).write_text('{"name": "epoch_9.pth"}')
    found = survey(run)
    assert found.chosen == "epoch_4.pth"
    problem = f"{run / store.POINTER} names epoch_9.pth, which does not exist"
    assert found.passed_over == {"last_checkpoint": f"which is not needed to find it: {problem}"}


def test_a_survey_is_data_and_says_why_a_resume_is_refused(run: Path) -> None:
    for path in run.glob("*.pth"):
        damage(path)
    data = survey(run).as_data()
    assert (data["resumes_from"], data["passed_over"]) == (None, {})
    assert re.match(
        "cannot resume: there is no intact checkpoint to continue from:\n  .*epoch_4.pth is dam", data["refusal"]
    )
    assert data["checkpoints"][0] == {
        "name": "epoch_1.pth",
        "size": (run / "epoch_1.pth").stat().st_size,
        "step": 4,
        "validations": 0,
        "damage": "its bytes do not match its SHA-256",
        "gap": "",
    }
    with pytest.raises(StorageError, match="cannot resume"):
        inspection.describe_folder(run)
