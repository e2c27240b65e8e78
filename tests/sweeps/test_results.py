"""The table of trials, and the best config as a file that trains."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from hookline import Runner
from hookline.common.yaml_file import read
from hookline.config import load
from hookline.errors import ConfigError
from hookline.hooks.pruning import PRUNED
from hookline.sweeps.results import read_rows, to_data, write_best
from hookline.sweeps.studies import SECONDS
from tests.sweeps.fakes import CONFIG, End, FakeProcess, Runs, Starter, request, write_config

ENDS = {
    0: End(values=(0.5, 0.4)),
    1: End(4, (0.9,), None, "hookline: NaN"),
    2: End(values=(0.7,)),
    3: End(values=(0.6,), end=PRUNED),
}


def swept(config: Path, *words: str) -> Runs:
    runs = Runs(request(config, *words, trials=5))
    runs.sweep(Starter(lambda job, _: ENDS[job.number]), trials=4).run()
    interrupted = runs.sweep(Starter(lambda job, _: FakeProcess(End(), waits=True)))
    interrupted._fill()
    interrupted.claims.release_all()
    return runs


def test_the_best_trials_come_first_and_each_row_is_complete(tmp_path: Path) -> None:
    runs = swept(write_config(tmp_path))
    home = runs.sweep(Starter(lambda job, _: End())).home
    rows = read_rows(runs.settings, runs.study, home)
    assert [(row.number, row.state, row.value, row.reason) for row in rows] == [
        (2, "complete", 0.7, ""),
        (0, "complete", 0.5, ""),
        (3, "pruned", 0.6, ""),
        (4, "unfinished", None, ""),
        (1, "failed", 0.9, "exit code 4: NaN"),
    ]
    trials = runs.study.get_trials()
    assert [row.params for row in rows] == [trials[row.number].params for row in rows]
    assert [row.seconds for row in rows] == [trials[row.number].user_attrs.get(SECONDS) for row in rows]
    assert rows[0].folder == Path("runs/tiny-sweep/2")
    assert [row.folder for row in read_rows(runs.settings, runs.study, "another machine")] == [None] * 5
    data = to_data(runs.settings, rows, Path("best.yaml"))
    assert data["trials"][0] == {
        "number": 2,
        "state": "complete",
        "value": 0.7,
        "params": trials[2].params,
        "seconds": trials[2].user_attrs[SECONDS],
        "folder": "runs/tiny-sweep/2",
        "reason": None,
    }
    del data["trials"]
    assert data == {
        "study": "tiny-sweep",
        "storage": "journal:study.log",
        "metric": "val/accuracy",
        "direction": "maximize",
        "best_config": "best.yaml",
    }


def test_the_best_config_is_complete_and_trains_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "configs"
    folder.mkdir()
    (folder / "mynet.py").write_text(
        "from helper import WIDTH\nfrom hookline.data.digits import DigitsNet\n\n\n"
        "class Net(DigitsNet):\n    def __init__(self, width, name):\n        super().__init__(width + WIDTH)\n"
        "        self.name = name\n"
    )
    (folder / "helper.py").write_text("WIDTH = 1\n")
    text = CONFIG.replace("{type: DigitsNet, width: 2}", "{type: 'mynet:Net', width: 2, name: '\\${a}'}")
    config = write_config(folder, "work_dir: elsewhere\n")
    config.write_text(text + "work_dir: elsewhere\nsweep: {metric: accuracy}\n")
    runs = swept(Path("configs/tiny.yaml"), "model.width=2,3", "train.max_epochs=1")
    row = read_rows(runs.settings, runs.study, "")[0]
    path = write_best(runs.settings, row)
    assert path == Path("runs/tiny-sweep/best.yaml")
    expected = load(config, ["train.max_epochs=1", f"model.width={row.params['model.width']}"]).data
    del expected["sweep"]
    assert load(path).data == {**expected, "work_dir": "runs/tiny-sweep/best"}
    origin, about, *_ = path.read_text().splitlines()
    assert origin.startswith('# resolved from "configs/tiny.yaml" in ')
    assert about == "# The best of the study 'tiny-sweep': trial 2, val/accuracy 0.7000."
    runner = Runner.from_config(path)
    runner.terminal.quiet = True
    assert runner.model.name == "${a}"
    runner.train()
    assert read(Path("runs/tiny-sweep/best/config.yaml"))["model"]["width"] == row.params["model.width"]
    monkeypatch.chdir(tmp_path / "runs")  # modules outside of the working directory are not trusted
    with pytest.raises(ConfigError, match="the module 'mynet' is refused: it is neither next to the config nor under"):
        Runner.from_config("tiny-sweep/best.yaml")


def test_nan_is_no_value(tmp_path: Path) -> None:
    runs = Runs(request(write_config(tmp_path), trials=1))
    runs.sweep(Starter(lambda job, _: End(1, (math.nan,), None, "hookline: x"))).run()
    assert read_rows(runs.settings, runs.study, "")[0].value is None
