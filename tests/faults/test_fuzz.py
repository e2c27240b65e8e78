"""The fuzzers: a few inputs of each have no finding, and what they look for is found."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults import fuzz_checkpoints, fuzz_configs
from tests.faults.cases import CANARY
from tests.faults.forked import Input
from tests.faults.fuzz_bases import BASES
from tests.faults.fuzz_pickles import split
from tests.faults.fuzzing import Recipe, Target, draw, fuzz
from tests.faults.project import MYNET, config

TARGETS = {"configs": fuzz_configs.TARGET, "checkpoints": fuzz_checkpoints.TARGET}


@pytest.mark.parametrize("name", TARGETS)
def test_a_few_inputs_have_no_finding(name: str) -> None:
    result = fuzz(TARGETS[name], seed=1, inputs=60)
    assert result.findings == [], "\n".join(map(str, result.findings))
    assert result.inputs == 60


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
def test_many_inputs_have_no_finding(name: str) -> None:
    result = fuzz(TARGETS[name], seed=2, inputs=300)
    assert result.findings == [], "\n".join(map(str, result.findings))
    assert result.inputs == 300


# The tests below check the test above.


def test_a_recipe_is_a_function_of_seed_and_number() -> None:
    for target in TARGETS.values():
        recipes = [draw(target, seed, number) for seed in (0, 1) for number in range(20)]
        assert recipes == [draw(target, seed, number) for seed in (0, 1) for number in range(20)]
        assert len(set(recipes)) == 40


def test_an_input_is_a_function_of_its_recipe() -> None:
    for number in range(200):
        recipe = draw(fuzz_configs.TARGET, 0, number)
        assert fuzz_configs.make(recipe) == fuzz_configs.make(recipe)


def test_every_edit_changes_configs() -> None:
    for base in BASES:
        good = fuzz_configs.make(Recipe(base, (), "plan"))
        for edit in fuzz_configs.EDITS:
            changed = [fuzz_configs.make(Recipe(base, ((edit, seed),), "plan")) for seed in range(20)]
            assert sum(each != good for each in changed) > 10


def test_a_pickle_is_split_into_its_operations() -> None:
    assert split(b"\x80\x02}q\x00X\x01\x00\x00\x00aK\x01s.") == [
        *(b"\x80\x02", b"}", b"q\x00", b"X\x01\x00\x00\x00a", b"K\x01", b"s", b".")
    ]


def draw_planted(chance: random.Random) -> Recipe:
    """Draw one of the planted problems, together with edits that do nothing."""
    edits = ("nothing", chance.choice(sorted(PLANTED)), "nothing")
    return Recipe("planted", tuple((name, 0) for name in edits), "train")


#: Modules that do what no input should do when they are imported.
PLANTED = {
    "code": f"open('{CANARY}', 'w').close()",
    "hang": "import time; time.sleep(600)",
    "memory": "import torch; kept = torch.ones(300 << 18)",
    "raw": "print('Traceback (most recent call last):')",
    "signal": "import os; os.kill(os.getpid(), 11)",
    "text": "print('\\x1b[31m')",
    "accepted": "",
}


def make_planted(recipe: Recipe) -> Input:
    """Return a project with a module that does what no input should do."""
    planted = "".join(PLANTED.get(name, "") for name, _ in recipe.edits)
    files = {"mynet.py": MYNET.encode(), "mine.py": planted.encode(), "config.yaml": config(imports="[mine]").encode()}
    must_fail = "it was planted" if ("accepted", 0) in recipe.edits else ""
    return Input(files, ("plan", "config.yaml"), must_fail)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("code", "it executed code"),
        ("hang", "it did not end within 2 s"),
        ("memory", "it took 3"),
        ("raw", "it printed 'Traceback (most recent call last)'"),
        ("signal", "it was ended by SIGSEGV"),
        ("text", "it printed the control character '\\x1b'"),
        ("accepted", "it was accepted, although it was planted"),
    ],
)
def test_a_planted_problem_is_found_made_smaller_and_written(name: str, problem: str, tmp_path: Path) -> None:
    target = Target("planted", draw_planted, make_planted, stays_inside=True, seconds=2.0 if name == "hang" else 60.0)
    number = next(number for number in range(1000) if (name, 0) in draw(target, 0, number).edits)
    result = fuzz(target, seed=0, only=number, folder=tmp_path)
    assert [finding.number for finding in result.findings] == [number]
    assert result.findings[0].problem.startswith(problem)
    assert result.findings[0].recipe == Recipe("planted", ((name, 0),), "train")
    (folder,) = tmp_path.iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["FINDING.txt", "config.yaml", "mine.py", "mynet.py"]
    assert (folder / "mine.py").read_text() == PLANTED[name]
    assert (folder / "FINDING.txt").read_text().startswith(f"{result.findings[0].problem}\n")
