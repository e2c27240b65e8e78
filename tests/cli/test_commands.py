from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hookline
from hookline.cli import main
from tests.run_files import USUAL, files_in

SHORT = ["train.max_epochs=1", "train.limit_batches=3", "val.limit_batches=1"]


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


BUNDLED = Path(hookline.__file__).parent / "data" / "digits.yaml"


def run(*words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the command in this process and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["hookline", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_train_without_a_config_trains_the_digits_and_shows_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", "train.max_epochs=12", monkeypatch=monkeypatch) == 0
    out = capsys.readouterr().out
    assert out.startswith("digits: 12 epochs of 17 iterations on cpu, fp32, seed 0\n")
    cells = [[cell.strip() for cell in line.split("│")[1:3]] for line in out.splitlines() if line.startswith("│")]
    rows = {label: text for label, text in cells if label}  # a long text continues in the next line
    assert list(rows) == [
        *[
            "trained",
            "train loss",
            "val accuracy",
            "val loss",
            "test accuracy",
            "per step",
            "time",
            "hooks",
            "last checkpoint",
            "run",
            "report",
        ]
    ]
    assert rows["trained"].startswith("12 epochs, 204 iterations in 0:0")
    assert float(rows["test accuracy"]) >= 0.97
    assert rows["last checkpoint"] == "runs/digits/epoch_12.pth"
    folder = tmp_path / "runs" / "digits"
    assert files_in(folder) == sorted(["config.yaml", "epoch_10.pth", "epoch_12.pth", *USUAL])
    assert rows["test accuracy"] in (folder / "run.log").read_text()


def test_train_with_trace_writes_a_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("train", "train.max_epochs=1", "train.limit_batches=3", "--trace", "traces/t.json", "--trace-steps", "2")
    assert run(*words, monkeypatch=monkeypatch) == 0
    events = json.loads(Path("traces/t.json").read_text())["traceEvents"]
    assert [event["name"] for event in events if event.get("cat") == "step"] == ["step 1", "step 2"]
    assert {event.get("cat") for event in events} == {None, "step", "part", "point", "hook"}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ["train", "--trace", "mine.txt"],
            5,
            "hookline: mine.txt exists and is not a trace, so it is not replaced; give another name to the trace\n",
        ),
        (["train", "--trace", "/proc/t.json"], 5, "hookline: /proc/t.json cannot be written: "),
        (["train", "--trace-steps", "3"], 2, "--trace-steps says how much a trace holds, so it needs --trace FILE"),
        (["train", "--dry-run", "--trace", "t"], 2, "--dry-run leaves no files, so it cannot write a trace; leave out"),
        (
            ["train", "budget=50"],
            2,
            "override 'budget=50'  budget: a budget must be a share of the training time, such as 5% or 0.05, not 50",
        ),
    ],
)
def test_a_wrong_trace_or_budget_is_refused_before_training(
    words: list[str], code: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.txt").write_text("mine")
    assert run(*words, monkeypatch=monkeypatch) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert not Path("runs").exists()
    assert Path("mine.txt").read_text() == "mine"


def test_train_continues_with_resume(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", *SHORT, monkeypatch=monkeypatch) == 0
    longer = ["train", "train.max_epochs=2", *SHORT[1:], "--resume", "--keep", "schedule=checkpoint"]
    assert run(*longer, monkeypatch=monkeypatch) == 0
    assert "resumed from runs/digits/epoch_1.pth: epoch 1, iteration 3" in capsys.readouterr().out
    records = [json.loads(line) for line in Path("runs/digits/metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records if "train/loss" in record] == [3, 6]


def test_a_dry_run_trains_validates_tests_saves_reloads_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", "--dry-run", monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.splitlines() == [
        "dry run: batches trained: 2, validations: 1",
        "dry run: tested at most 2 batches of each test set",
        "dry run: saved a checkpoint, and loaded it into a second run; everything works",
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_shows_what_the_whole_run_never_reaches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hooks = "custom_hooks=[{type: EMAHook, begin_iter: 256}, {type: EMAHook, begin_iter: 255}, GradNormHook]"
    assert run("train", "--dry-run", hooks, monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.splitlines() == [
        "dry run: warning: EMAHook: begin_iter=256 needs 256 iterations, but this run has 255, so nothing is averaged; "
        "set begin_iter to at most 255, or train longer",
        "dry run: batches trained: 2, validations: 1",
        "dry run: tested at most 2 batches of each test set",
        "dry run: saved a checkpoint, and loaded it into a second run; everything works",
    ]


def test_a_config_can_turn_the_trial_before_training_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("wrong_steps.py").write_text("def wrong(model, batch):\n    raise KeyError('labels')\n")
    words = [*SHORT, "test.step=wrong_steps:wrong"]
    config = Path("config.yaml")
    config.write_text((Path(__file__).parents[2] / "src" / "hookline" / "data" / "digits.yaml").read_text())
    assert run("train", str(config), *words, monkeypatch=monkeypatch) == 1
    shown = capsys.readouterr().err
    assert "KeyError: 'labels'\n" in shown
    assert (
        "in the trial of test before training, batch 0, epoch=0 iter=0 rank=0\n"
        "one batch of every validation and test set is tried before the first step; to train without this trial, set "
        "trial_batch: false (in Python: Runner(..., trial_batch=False))\n"
    ) in shown
    assert not Path("runs/digits/epoch_1.pth").exists()
    assert run("train", str(config), *words, "trial_batch=false", monkeypatch=monkeypatch) == 1
    assert "in the step of test, batch 0, epoch=1 iter=3 rank=0\n" in capsys.readouterr().err
    assert Path("runs/digits/epoch_1.pth").exists()


def test_test_evaluates_a_checkpoint(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("train", *SHORT, monkeypatch=monkeypatch)
    capsys.readouterr()
    assert run("test", "--checkpoint", "runs/digits/epoch_1.pth", monkeypatch=monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "weights from runs/digits/epoch_1.pth"
    assert lines[-1].startswith("accuracy  0.")
    assert run("test", monkeypatch=monkeypatch) == 2


def test_init_creates_a_project_that_is_ready_to_train(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("init", "mine", monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.splitlines() == [
        "created mine: config.yaml, mynet.py, my_hooks.py, README.md, hookline.schema.json",
        "to train it: cd mine && hookline train config.yaml",
    ]
    import jsonschema

    from hookline.config import load

    schema = json.loads(Path("mine/hookline.schema.json").read_text())
    jsonschema.validate(load("mine/config.yaml").data, schema)
    created = sorted(path.name for path in Path("mine").iterdir())
    assert created == ["README.md", "config.yaml", "hookline.schema.json", "my_hooks.py", "mynet.py"]
    command = [
        sys.executable,
        "-c",
        "from hookline.cli import main; main()",
        "train",
        "config.yaml",
        "train.max_epochs=4",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, cwd="mine", capture_output=True, text=True, check=False, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")
    records = [json.loads(line) for line in Path("mine/runs/my_run/metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records if "train/weight_norm" in record] == [61]
    assert run("init", "mine", monkeypatch=monkeypatch) == 2
    assert capsys.readouterr().err == (
        "hookline: mine already contains config.yaml, mynet.py, my_hooks.py, README.md; nothing was changed; choose "
        "another folder\n"
    )


def test_hooks_lists_one_line_per_hook_or_shows_one_in_full(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("hooks", monkeypatch=monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(line.split()[0] for line in lines)
    assert any(re.match(r"CheckpointHook +VERY_LOW \(90\) +Saves checkpoints", line) for line in lines)
    assert run("hooks", "LoggerHook", monkeypatch=monkeypatch) == 0
    out = capsys.readouterr().out
    assert out.startswith("LoggerHook  priority BELOW_NORMAL (60), observer, from hookline\n")
    assert "  interval: int, default 10\n      Log every `interval` iterations of an epoch.\n" in out
    assert "Points\n  before_train, after_train_iter, after_train_epoch, after_val_epoch, after_train, " in out
    assert "runs_after: RuntimeInfoHook, IterTimerHook\n" in out
    assert out.endswith(
        "Example\n"
        "  from hookline.testing import MemoryWriter, toy_runner\n"
        "\n"
        "  writer = MemoryWriter()\n"
        '  toy_runner(default_hooks={"logger": {"interval": 2}}, writers=[writer]).train()\n'
        "  print(writer.records[0])\n"
        "\n"
        "In YAML\n"
        "  default_hooks:\n"
        "    logger:\n"
        "      interval: 20\n"
        "      out_dir: all_logs\n"
        "      smoothing: [{match: train/loss, window_size: epoch, log_name: train/loss_of_epoch}]\n"
    )
    assert run("hooks", "LogerHook", monkeypatch=monkeypatch) == 2
    assert capsys.readouterr().err == "hookline: unknown hook 'LogerHook'; did you mean 'LoggerHook'?\n"


def test_hooks_of_another_package_are_listed_and_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "other_package.py").write_text(
        'from hookline import Hook\n\n\nclass PluginHook(Hook):\n    "Does what a plugin does."\n\n'
        "    def __init__(self, times: int = 1) -> None:\n        self.times = times\n\n"
        "    def before_train(self, runner): ...\n"
    )
    info = tmp_path / "other_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[hookline.hooks]\nPluginHook = other_package:PluginHook\n")

    def hookline(*words: str) -> Any:
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-c", "from hookline.cli import main; main()", *words]
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    line = next(line for line in hookline("hooks").stdout.splitlines() if line.startswith("PluginHook"))
    assert line.split() == [
        *["PluginHook", "NORMAL", "(50)", "Does", "what", "a", "plugin", "does"],
        *["[other-package", "(other_package:PluginHook)]"],
    ]
    shown = hookline("plan", "custom_hooks=[{type: PluginHook, times: 2}]")
    assert "PluginHook" in shown.stdout
    refused = hookline("plan", "custom_hooks=[{type: PluginHook, tims: 2}]")
    assert refused.returncode == 2
    assert "custom_hooks[0].tims: PluginHook has no parameter 'tims'; did you mean 'times'?" in refused.stderr
    assert "PluginHook" in hookline("schema").stdout


def test_plan_shows_which_hooks_run_where_without_building_anything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("plan", "default_hooks.timer=null", monkeypatch=monkeypatch) == 0
    out = capsys.readouterr().out
    assert (
        "\nafter_train_epoch(runner)\n"
        "   1  LoggerHook          BELOW_NORMAL (60)  every epoch  priority from the class, after RuntimeInfoHook\n"
        "   2  ParamSchedulerHook  LOW (70)           every epoch  priority from the class\n"
    ) in out
    assert "IterTimerHook" not in out
    assert run("plan", "--tree", monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.startswith("8 hooks\n├── before_run\n")
    assert run("plan", "default_hooks.logger.priority=5", monkeypatch=monkeypatch) == 2
    assert "the order of the hooks is contradictory: LoggerHook declares runs_after" in capsys.readouterr().err


def test_schema_goes_to_the_screen_or_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("schema", monkeypatch=monkeypatch) == 0
    shown = json.loads(capsys.readouterr().out)
    assert run("schema", "--out", "schema.json", monkeypatch=monkeypatch) == 0
    assert json.loads(Path("schema.json").read_text()) == shown


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["train", "nowhere.yaml"], 2, "hookline: nowhere.yaml: file not found"),
        (["train", "train.max_epoch=1"], 2, "train.max_epoch: unknown key 'max_epoch'; did you mean 'max_epochs'?"),
        (
            ["train", "custom_hooks.0.type=ProgresHook"],
            2,
            "unknown hook 'ProgresHook'; did you mean 'ProgressHook'?",
        ),
        (["train", "default_hooks.checkpoint.intervall=1"], 2, "did you mean 'interval'?"),
        (["train", "custom_hooks.0.priority=LOWW"], 2, "unknown priority 'LOWW'; did you mean 'LOW'?"),
        (["train", "model.type=os:system"], 2, "--allow os"),
        (["train", "--resum"], 2, "No such option: --resum (Possible options: --resume)"),
        (
            ["train", "--train.max_epochs=3"],
            2,
            "No such option: --train.max_epochs; to override a value of the config, write train.max_epochs=3\n",
        ),
        (
            ["plan", "--custom_hooks[0].priority", "LOW"],
            2,
            "No such option: --custom_hooks[0].priority; to override a value of the config, write "
            "custom_hooks[0].priority=LOW\n",
        ),
        (
            ["test", "--checkpoint", "x.pth", "--seed", "model.hidden=3"],
            2,
            "No such option: --seed; to override a value of the config, write seed=VALUE\n",
        ),
        (
            ["train", "--modle.hidden=3"],
            2,
            "No such option: --modle.hidden; to override a value of the config, write model.hidden=3\n",
        ),
        (["train", "--lr=3"], 2, "No such option: --lr (Possible options: --help)\n"),
        (["hooks", "--seed=3"], 2, "No such option: --seed\n"),
        (
            ["train", "--resume=runs/a/epoch_3.pth"],
            2,
            "Error: Option '--resume' does not take a value; to resume from a certain checkpoint, write "
            "resume=runs/a/epoch_3.pth\n",
        ),
        (
            ["train", "--resume="],
            2,
            "Error: Option '--resume' does not take a value; to resume from a certain checkpoint, write resume=FILE\n",
        ),
        (
            ["train", "--resume", "runs/a/epoch_3.pth"],
            2,
            "hookline: --resume does not take a value; to resume from a certain checkpoint, write "
            "resume=runs/a/epoch_3.pth\n",
        ),
        (
            ["train", "config.yaml", "--resume", "runs/a/iter_8.dcp"],
            2,
            "hookline: --resume does not take a value; to resume from a certain checkpoint, write "
            "resume=runs/a/iter_8.dcp\n",
        ),
        (["trian"], 2, "Did you mean 'train'?"),
    ],
)
def test_a_mistake_ends_with_one_message_the_right_code_and_no_traceback(
    words: list[str], code: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words, monkeypatch=monkeypatch) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert not Path("runs").exists()


def test_an_error_in_user_code_shows_its_traceback_with_the_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.py").write_text(
        "from hookline import HOOKS, Hook\n\n@HOOKS.register(force=True)\nclass BadHook(Hook):\n"
        "    def after_train_iter(self, runner):\n        raise ValueError('mine')\n"
    )
    words = ["train", "imports=[bad]", "custom_hooks=[{type: BadHook}]"]
    assert run(*words, monkeypatch=monkeypatch) == 1
    error = capsys.readouterr().err
    assert "ValueError: mine\nin hook BadHook, at after_train_iter, epoch=0 iter=0 rank=0 (bad.py:5)\n" in error


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(runner: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("hookline.runner.runner.Runner.train", interrupt)
    assert run("train", monkeypatch=monkeypatch) == 130
    assert capsys.readouterr().err == "hookline: interrupted\n"


@pytest.mark.parametrize("command", [[], ["train"], ["test"], ["plan"], ["hooks"], ["compare"], ["schema"], ["init"]])
def test_help_answers_without_torch(command: list[str]) -> None:
    code = (
        "import sys; from hookline.cli import main; sys.argv = ['hookline', *sys.argv[1:]]\n"
        "try: main()\nfinally: assert 'torch' not in sys.modules"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, *command, "--help"], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "Usage: hookline" in ended.stdout
    assert ("Examples:" in ended.stdout) == bool(command)


@pytest.mark.parametrize("command", [["hooks"], ["hooks", "CheckpointHook"], ["schema"], ["plan"]])
def test_commands_that_do_not_need_torch_do_not_import_it(command: list[str]) -> None:
    code = (
        "import sys; from hookline.cli import main; sys.argv = ['hookline', *sys.argv[1:]]\n"
        "try: main()\nfinally: assert 'torch' not in sys.modules"
    )
    ended = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_overhead_benchmark_runs_and_prints_json() -> None:
    script = Path(__file__).parent.parent.parent / "benchmarks" / "overhead.py"
    command = [sys.executable, str(script), "--json", "--steps", "3", "--rounds", "1"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert list(json.loads(ended.stdout)) == [
        *["bare loop", "hookline, no hooks", "hookline, 100 epoch hooks", "hookline, six default hooks"]
    ]


def test_the_benchmark_of_the_ledger_runs_and_prints_json() -> None:
    script = Path(__file__).parent.parent.parent / "benchmarks" / "ledger.py"
    command = [sys.executable, str(script), "--json", "--steps", "62", "--rounds", "1"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["calls_per_step"]["on"] > found["calls_per_step"]["off"] > 0
    assert found["limit"] == 0.005


def test_a_runner_can_be_built_from_a_mapping(tmp_path: Path) -> None:
    from hookline import Runner

    config = {
        "model": {"type": "Linear", "in_features": 4, "out_features": 2},
        "work_dir": str(tmp_path / "here"),
    }
    runner = Runner.from_config(config, ["seed=3"])
    assert runner.seed == 3
    assert runner.experiment_name == "here"


def test_a_run_that_reaches_its_time_limit_is_not_tested_and_ends_with_the_given_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = "custom_hooks=[{type: TimeLimitHook, limit: 1s, exit_code: 75}]"
    assert run("train", *SHORT, limit, monkeypatch=monkeypatch) == 75
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines if "TimeLimitHook" in line] == [
        *["stopped by TimeLimitHook", "│ stopped         │ by TimeLimitHook", "Continue with"]
    ]
    assert "not tested, because training is not finished" in lines
    assert lines[-1] == f"Continue with: hookline train {' '.join(SHORT)} '{limit}' --resume"
    assert not any("test accuracy" in line for line in lines)
    assert run("train", *SHORT, "--resume", monkeypatch=monkeypatch) == 0
    assert "test accuracy" in capsys.readouterr().out


@pytest.mark.parametrize(
    "refused",
    [
        "custom_hooks=[{type: FreezeHook, patterns: nope.*}]",
        "custom_hooks=[{type: EarlyStoppingHook, monitor: acuracy, strict: true}]",
    ],
)
def test_a_run_that_is_refused_leaves_the_earlier_one_where_it_was(
    refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs" / "digits"
    assert run("train", *SHORT, monkeypatch=monkeypatch) == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert run("train", *SHORT, refused, monkeypatch=monkeypatch) == 2
    assert "restored the files of the earlier run in runs/digits" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


BROKEN = {
    'experiment_name="\\UFFFFFFFF"': "the escape \\UFFFFFFFF stands for no character; the last one is \\U0010FFFF",
    'experiment_name="\\uD800"': "the text has a character that files cannot store (NUL or an unpaired surrogate)",
    'experiment_name="\\xZZ"': "expected escape sequence of 2 hexdecimal numbers, but found 'Z'",
    "seed=0x" + "F" * 100_000: "the number has 100000 digits, too many to read",
    "seed=" + "9" * 100_000: "the number has 100000 digits, too many to read",
    "device=meta": "the device 'meta' holds no data, so it cannot train; available: cpu",
    "device=vulkan": "the device 'vulkan' is not available with this torch on this machine; available: cpu",
    "optim.optimizer.lr=.nan": "optim.optimizer.lr: expected a finite number, found .nan",
    "optim.optimizer.lr=-1": (
        "optim.optimizer: AdamW(...) failed: ValueError: Invalid learning rate: -1.0 (override 'optim.optimizer.lr=-1')"
    ),
    "custom_hooks=[{type: EMAHook, momentum: .nan}]": "EMAHook: momentum must be above 0 and at most 1, not nan",
    "writers=[{type: csv, filename: .lock}]": (
        "CsvWriter would write .lock, which the run itself already writes; give it another filename"
    ),
    "writers=[{type: csv, filename: epoch_1.pth}]": (
        "CsvWriter would write epoch_1.pth, which the run itself already writes; give it another filename"
    ),
}


@pytest.mark.parametrize("override", BROKEN, ids=[override[:50] for override in BROKEN])
@pytest.mark.parametrize("words", [(), ("--dry-run",)], ids=["train", "dry run"])
def test_a_value_that_cannot_work_ends_with_2_and_one_message_and_leaves_no_folder(
    override: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", *SHORT, override, *words, monkeypatch=monkeypatch) == 2
    out, err = capsys.readouterr()
    assert (out, err.endswith(f"{BROKEN[override]}\n"), "Traceback" in err) == ("", True, False)
    assert not Path("runs").exists()


def test_unused_averaged_weights_are_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("train", *SHORT, "custom_hooks=[EMAHook]", monkeypatch=monkeypatch)
    capsys.readouterr()
    assert run("test", "--checkpoint", "runs/digits/epoch_1.pth", monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "weights from runs/digits/epoch_1.pth",
        "the averaged weights in it (EMAHook) are not used without that hook",
    ]


def test_the_recording_benchmark_runs_and_prints_json() -> None:
    script = Path(__file__).parent.parent.parent / "benchmarks" / "recording.py"
    words = ["--steps", "10", "--rounds", "1", "--updates", "1000", "--json"]
    ended = subprocess.run([sys.executable, str(script), *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert list(found) == ["microseconds per scalar", "bare step", "share of a step"]
    assert list(found["share of a step"]) == [
        *["ten scalars per step", "jsonl and TensorBoard every 10 steps", "the progress display"]
    ]


def test_the_dialects_benchmark_runs_and_prints_json() -> None:
    script = Path(__file__).parent.parent.parent / "benchmarks" / "dialects.py"
    words = ["--steps", "51", "--rounds", "1", "--json"]
    ended = subprocess.run([sys.executable, str(script), *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    rows = json.loads(ended.stdout)
    assert {name: list(row["of"]) for name, row in rows.items() if row["of"]} == {
        "mmengine, no hooks": ["hookline, no hooks"],
        "pointrix, no hooks": ["hookline, no hooks"],
        "hookline, recording, gradients kept": ["hookline, recording"],
        "imix, minimal hooks": ["hookline, recording, gradients kept"],
        "mmengine, default hooks": ["hookline, default hooks"],
        "robo_orchard, minimal hooks": ["hookline, no hooks", "by hand, accelerate"],
    }
    robo, accelerate = rows["robo_orchard, minimal hooks"], rows["by hand, accelerate"]
    assert robo["of"]["by hand, accelerate"] == robo["microseconds"] / accelerate["microseconds"]
