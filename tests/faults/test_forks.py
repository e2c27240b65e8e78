"""A run belongs to the process that started it: a process that a hook forks leaves its files alone."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from hookline import EvalLoop, Hook, Optim, Runner, TrainLoop, runs
from hookline.data.loader import ResumableLoader
from hookline.engine.metrics import accuracy
from hookline.engine.steps import cross_entropy, predict
from hookline.errors import StorageError
from hookline.testing import toy_model, toy_runner
from tests.faults.children import command, running
from tests.faults.kills import wait_until
from tests.faults.project import MYNET, config, write
from tests.run_files import USUAL, files_in

POINTS = (
    *("before_run", "before_train", "before_train_epoch", "before_train_iter", "before_backward", "after_train_iter"),
    *("before_val", "before_val_epoch", "before_val_iter", "after_val_iter", "after_val_epoch", "after_train_epoch"),
    *("before_save_checkpoint", "after_train", "after_run"),
)


Reference = Callable[[str], dict[str, Any]]


def leave() -> None:
    sys.exit(0)


def fail() -> None:
    raise ValueError("in the forked process")


def go_on() -> None:
    pass


def end_at_once() -> None:
    os._exit(0)


def leave_with_a_text() -> None:
    sys.exit("good bye")


#: How a forked process behaves, and the exit code that it must have.
WAYS: dict[str, tuple[Callable[[], None], int]] = {
    "leaves": (leave, 0),
    "fails": (fail, 1),
    "goes_on": (go_on, 2),
    "ends_at_once": (end_at_once, 0),
    "leaves_with_a_text": (leave_with_a_text, 1),
}


class Forks(Hook):
    """Forks the process at one point of a run, once, and waits for the new process."""

    def __init__(self, point: str, way: str | None) -> None:
        # not under the names of the parameters: checkpoints have these, and their sizes are compared
        self._point, self._way, self.calls = point, way, 0
        self.exit_code: int | None = None

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass

    def fork(self) -> None:
        self.calls += 1
        if self._way is None or self.exit_code is not None or (self.calls < 2 and self._point in REPEATED):
            return
        print("a line that waits in the buffer", end="")
        self.exit_code = -1
        pid = os.fork()
        if pid == 0:
            WAYS[self._way][0]()
        else:
            self.exit_code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def at(point: str) -> Any:
    def method(self: Forks) -> None:
        if self._point == point:
            self.fork()

    return method


#: Points at which LoggerHook then records something.
RECORDING = ("after_train_iter", "after_val_epoch")
REPEATED = [point for point in POINTS if "iter" in point or "backward" in point]
for _point in POINTS:
    setattr(Forks, _point, at(_point))


def build(folder: str, kind: str, hook: Forks) -> Runner:
    """Build a run with workers in its loaders, without the clock in its records."""
    torch.manual_seed(3)
    model = toy_model()
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(24, 4, generator=generator)
    data = TensorDataset(inputs, (inputs.sum(1) > 0).long())
    options: dict[str, Any] = {
        "num_workers": 2 if kind in ("workers", "persistent", "window") else 0,
        "persistent_workers": kind == "persistent",
    }
    loader, checking = (ResumableLoader(data, size, **options) for size in (4, 8))
    length: dict[str, Any] = {"max_iters": 12, "val_interval": 4} if kind == "iterations" else {"max_epochs": 2}
    return Runner(
        model,
        train=TrainLoop(loader, cross_entropy, **length),
        val=EvalLoop(checking, predict, metrics={"accuracy": accuracy}),
        optim=Optim(torch.optim.SGD(model.parameters(), lr=0.1), accumulate=2 if kind == "window" else 1),
        default_hooks={
            "logger": {"interval": 1},
            "timer": None,
            "checkpoint": {"save_on_exception": 1, "async_save": kind == "background", "save_best": "accuracy"},
        },
        custom_hooks=[hook],
        writers=["jsonl", "csv", *(["tensorboard"] if kind == "plain" else [])],
        work_dir=folder,
        device="cpu",
        quiet=True,
    )


def train(root: str, kind: str, point: str, ways: list[str | None]) -> None:
    """Train once for each way, with a hook that forks. Print how the forked process ended; called in a child."""
    torch.set_num_threads(1)
    for way in ways:
        hook = Forks(point, way)
        runner = build(str(Path(root, str(way), kind)), kind, hook)
        runner.train()
        print(f"\n{way}: trained {runner.iter}, forked {hook.exit_code}")


def contents(folder: Path) -> dict[str, Any]:
    """Return everything that a run wrote, without times and process ids."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = re.sub(r"tfevents\..*", "tfevents", str(path.relative_to(folder)))
        data = path.read_bytes()
        if name in ("hooks.json", "report.html"):  # full of times
            data = b""
        if name == "run.log":
            data = re.sub(rb"(?m)^\S+ \S+  ", b"", data).replace(str(folder).encode(), b"RUN")
        if name == "last_checkpoint":
            data = json.dumps({key: value for key, value in json.loads(data).items() if key != "sha256"}).encode()
        if name in ("hooks.json", "report.html"):  # mostly times
            data = b""
        if name == "events.jsonl":
            data = re.sub(rb'"time": [0-9.]+', b'"time": 0', data)
        if name in ("run.log", "events.jsonl") and folder.name == "background":  # a thread writes some of the lines
            data = b"\n".join(sorted(data.splitlines()))
        known = name.endswith((".pth", "tfevents"))
        found[name] = len(data) if known else data.hex() if name == "loss_bits.bin" else data.decode()
    return found


@pytest.fixture(scope="module")
def without_fork(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """Return the contents of the folder of a run in which nothing is forked, by its kind."""
    known: dict[str, dict[str, Any]] = {}

    def get(kind: str) -> dict[str, Any]:
        if kind not in known:
            root = tmp_path_factory.mktemp(kind)
            with running(train, str(root), kind, "", [None]) as child:
                assert child.wait() == 0, child.output()
            known[kind] = contents(root / "None" / kind)
        return known[kind]

    return get


def trained(root: Path, kind: str, point: str, ways: list[str], expected: dict[str, Any]) -> dict[str, str]:
    """Train once for each way, compare what the runs wrote, and return what was printed during each."""
    with running(train, str(root), kind, point, ways) as child:
        assert child.wait() == 0, child.output()
        output = child.output()
    printed = {}
    for way in ways:
        printed[way], ended, output = output.partition(f"\n{way}: trained 12, forked {WAYS[way][1]}\n")
        assert ended, printed[way]
        assert printed[way].count("a line that waits in the buffer") == 1
        assert contents(root / way / kind) == expected
    return printed


@pytest.mark.parametrize("point", POINTS)
def test_whatever_a_forked_process_does_the_run_is_the_same(
    tmp_path: Path, point: str, without_fork: Reference
) -> None:
    printed = trained(tmp_path, "plain", point, list(WAYS), without_fork("plain"))
    says = (
        "during the run, and only the process that started a run writes its records; end it in the code that forks it, "
        "with os._exit(0)"
        if point in RECORDING
        else f"in hook Forks, at {point}, and must not continue the run, which belongs to another process; end it in "
        "the code that forks it, with os._exit(0)"
    )
    line = "a line that waits in the buffer"
    assert re.fullmatch(rf"{line}hookline: process \d+ was forked {re.escape(says)}\n", printed["goes_on"])
    assert printed["fails"].startswith(f"{line}Traceback (most recent call last):\n")
    assert printed["fails"].endswith("\nValueError: in the forked process\n")
    assert (printed["leaves"], printed["ends_at_once"]) == (line, line)
    assert printed["leaves_with_a_text"] == f"{line}good bye\n"


@pytest.mark.parametrize("point", ["before_train_epoch", "before_train_iter", "after_train_iter", "after_val_iter"])
@pytest.mark.parametrize("kind", ["workers", "persistent", "iterations", "window", "background"])
def test_the_workers_of_loaders_and_saves_in_the_background_stay_with_the_run(
    tmp_path: Path, kind: str, point: str, without_fork: Reference
) -> None:
    trained(tmp_path, kind, point, ["leaves", "fails", "goes_on"], without_fork(kind))


# -- forks outside of hooks, and other kinds of runs


def forks_in_step(folder: str) -> None:
    for way in ("leaves", "fails", "goes_on"):
        codes: list[int] = []

        def step(model: Any, batch: Any, way: str = way, codes: list[int] = codes) -> Any:
            if not codes:
                codes.append(-1)
                pid = os.fork()
                if pid == 0:
                    WAYS[way][0]()
                else:
                    codes[0] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            return cross_entropy(model, batch)

        runner = toy_runner(work_dir=Path(folder, way), step=step, max_epochs=1)
        runner.on("on_exception")(lambda runner: print("a hook sees the failure of another process"))
        runner.train()
        print(way, runner.iter, codes, (runner.work_dir / "metrics.jsonl").read_text().count("\n"))


def test_a_step_that_forks_is_no_different(tmp_path: Path) -> None:
    with running(forks_in_step, str(tmp_path)) as child:
        assert child.wait() == 0, child.output()
        lines = child.output().splitlines()
    ends = [line for line in lines if line.startswith(("leaves", "fails", "goes_on", "hookline", "a hook"))]
    assert [re.sub("process [0-9]+ ", "", line) for line in ends] == [
        "leaves 4 [0] 2",
        "fails 4 [1] 2",
        "hookline: was forked and must not continue the run, which belongs to another process; end it in the code that "
        "forks it, with os._exit(0)",
        "goes_on 4 [2] 2",
    ]


def forks_in_evaluation(folder: str) -> None:
    for verb in ("val", "test"):
        for way in ("leaves", "fails", "goes_on"):
            hook = Forks(f"before_{verb}" if verb == "val" else "before_run", way)
            runner = toy_runner(work_dir=Path(folder, verb, way), custom_hooks=[hook])
            metrics = getattr(runner, verb)()
            print("ended", verb, way, list(metrics), hook.exit_code, sorted(os.listdir(runner.work_dir)))


def test_an_evaluation_that_forks_returns_once(tmp_path: Path) -> None:
    with running(forks_in_evaluation, str(tmp_path)) as child:
        assert child.wait() == 0, child.output()
        lines = [line for line in child.output().splitlines() if "ended" in line]
    codes = {"leaves": 0, "fails": 1, "goes_on": 2}
    assert [line[line.index("ended") :] for line in lines] == [
        f"ended {verb} {way} ['accuracy'] {code} ['metrics.jsonl', 'report.html', 'run.log']"
        for verb in ("val", "test")
        for way, code in codes.items()
    ]


FORKING = """
import os, sys
from hookline import Hook

class Forks(Hook):
    def before_train(self):
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        print("forked", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def test_a_forked_process_never_returns_to_the_command_line(tmp_path: Path) -> None:
    shown = {}
    for name, hooks in (("plain", "[]"), ("forking", '[{type: "forking:Forks"}]')):
        write(tmp_path / name, "mynet.py", MYNET)
        write(tmp_path / name, "forking.py", FORKING)
        write(tmp_path / name, "config.yaml", config())
        code, output = command("train", "config.yaml", f"custom_hooks={hooks}", cwd=tmp_path / name)
        assert code == 0, output
        assert "hookline: " not in output
        shown[name] = [line[:6] for line in output.splitlines()]
    assert shown["forking"].count("forked") == 1
    assert [line for line in shown["forking"] if line != "forked"] == shown["plain"]


# -- the lock


def hold_after_fork(folder: str) -> None:
    runner = toy_runner(work_dir=folder, custom_hooks=[Forks("before_train", "leaves")], max_epochs=1)

    @runner.on("before_train_epoch")
    def wait() -> None:
        print("\nready", flush=True)
        while not Path(folder, "go").exists():
            time.sleep(0.01)

    runner.train()


def test_the_lock_stays_until_the_run_ends(tmp_path: Path) -> None:
    with running(hold_after_fork, str(tmp_path)) as child:
        assert wait_until(lambda: "ready" in child.output())
        holder = json.loads((tmp_path / ".lock").read_text())
        assert (holder["pid"], runs.load(tmp_path).running) == (child.pid, True)
        with pytest.raises(StorageError) as refused:
            toy_runner(work_dir=tmp_path).train()
        assert str(refused.value).startswith(f"{tmp_path} is in use by process {child.pid} on ")
        (tmp_path / "go").touch()
        assert child.wait() == 0, child.output()
    assert not (tmp_path / ".lock").exists()


# -- multiprocessing


def trains_between_runs(folder: str) -> None:
    """Validate, and then train in a forked process: nothing is running when it is forked."""
    runner = toy_runner(work_dir=folder, max_epochs=1)
    runner.val()
    process = multiprocessing.get_context("fork").Process(target=runner.train)
    process.start()
    process.join()
    print("code", process.exitcode, (Path(folder) / "metrics.jsonl").read_text().count("\n"))


def test_a_process_that_is_forked_between_two_runs_may_use_everything(tmp_path: Path) -> None:
    with running(trains_between_runs, str(tmp_path)) as child:
        assert (child.wait(), child.output()) == (0, "code 0 2\n")
    assert "epoch_1.pth" in (tmp_path / "run.log").read_text()


def train_elsewhere(folder: str) -> None:
    runner = toy_runner(work_dir=folder, max_epochs=1)
    runner.train()
    print("trained elsewhere", runner.iter, sorted(os.listdir(folder)))


def train_in_the_same_folder(folder: str) -> None:
    try:
        toy_runner(work_dir=folder).train()
    except StorageError as error:
        print("refused", str(error).partition(" on ")[0])


def use_the_run(runner: Runner, how: str) -> None:
    if how == "writes":
        runner.writers.write_scalar("mine", 1.0, 1)
    elif how == "logs":
        logging.getLogger("hookline").warning("from the other process")
        runner.terminal.say("a line of the other process")
    elif how == "saves":
        runner.saving.write_now(runner.work_dir / "mine.pth", complete=False)
    else:
        runner.stop("enough")


def with_processes(folder: str) -> None:
    runner = toy_runner(work_dir=Path(folder, "run"), max_epochs=1, quiet=False)
    context = multiprocessing.get_context("fork")

    @runner.on("before_train")
    def start() -> None:
        work: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
            (train_elsewhere, (str(Path(folder, "elsewhere")),)),
            (train_in_the_same_folder, (str(runner.work_dir),)),
            *((use_the_run, (runner, how)) for how in ("writes", "logs", "saves", "stops")),
        ]
        for target, arguments in work:
            process = context.Process(target=target, args=arguments)
            process.start()
            process.join()
            print("code", process.exitcode, flush=True)

    runner.train()


def test_a_process_of_multiprocessing_may_train_elsewhere_but_not_use_the_run(tmp_path: Path) -> None:
    with running(with_processes, str(tmp_path)) as child:
        assert child.wait() == 0, child.output()
        output, pid = re.sub(r"process [0-9]+ was", "process N was", child.output()), child.pid
    starts = ("code", "trained", "refused", "hookline: ", "warning", "a line")
    shown = [line for line in output.splitlines() if line.startswith(starts)]
    copy = (
        "hookline: process N was forked in hook start, at before_train, and must not continue the run, which belongs "
        "to another process; end it in the code that forks it, with os._exit(0)"
    )
    assert shown == [
        "trained elsewhere 4 ['epoch_1.pth', 'events.jsonl', 'hooks.json', 'last_checkpoint', 'loss_bits.bin', "
        "'metrics.jsonl', 'plan.txt', 'report.html', 'run.log']",
        "code 0",
        f"refused {tmp_path}/run is in use by process {pid}",
        "code 0",
        "code 1",
        "warning: from the other process",
        "a line of the other process",
        "code 0",
        *(copy, "code 2"),
        *(copy, "code 2"),
    ]
    assert (
        "hookline.errors.HookError: process N was forked during the run, and only the process that started a run "
        "writes its records; end it in the code that forks it, with os._exit(0)\n"
    ) in output
    assert files_in(tmp_path / "run") == sorted(["epoch_1.pth", *USUAL])
    assert "mine" not in (tmp_path / "run" / "metrics.jsonl").read_text()
    assert "the other process" not in (tmp_path / "run" / "run.log").read_text()
