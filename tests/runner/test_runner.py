from __future__ import annotations

import copy
import json
import logging
import random
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hookline
from hookline import EvalLoop, Hook, Optim, Runner, TrainLoop
from hookline.common import rng
from hookline.errors import ConfigError, HookError, HooklineError, StorageError
from hookline.strategies.base import pick_device
from hookline.testing import MemoryWriter, Recorder, toy_data, toy_model, toy_runner
from tests.run_files import USUAL, files_in


def test_the_public_names_are_sorted_there_and_no_more() -> None:
    assert hookline.__all__ == sorted(
        hookline.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name)
    )
    assert [name for name in hookline.__all__ if not hasattr(hookline, name)] == []
    assert dir(hookline) == sorted(hookline.__all__)
    with pytest.raises(AttributeError, match="module 'hookline' has no attribute 'Runer'"):
        _ = hookline.Runer


def test_importing_hookline_and_its_hooks_does_not_import_torch() -> None:
    code = "import sys, hookline, hookline.hooks, hookline.plan.plan, hookline.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "hookline.common.version.VERSION"}
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", hookline.__version__)
    cited = re.search(r"^version: (.+)$", (Path(__file__).parents[2] / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited is not None
    assert cited[1] == hookline.__version__


# ------------------------------------------------------------------------------------------------- assembling


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        (
            {"default_hooks": {"checkpont": None}},
            HookError,
            "unknown default hook 'checkpont'; did you mean 'checkpoint'?",
        ),
        (
            {"default_hooks": {"logger": {"intervall": 5}}},
            ConfigError,
            "LoggerHook has no parameter 'intervall'; did you mean 'interval'?",
        ),
        (
            {"custom_hooks": [{"type": "LogerHook"}]},
            ConfigError,
            "unknown hook 'LogerHook'; did you mean 'LoggerHook'?",
        ),
        (
            {"custom_hooks": [{"interval": 5}]},
            ConfigError,
            "a hook given as a dict needs a 'type'; this one has ['interval']",
        ),
        ({"custom_hooks": [3]}, ConfigError, "a hook must be an object, a name or a dict with 'type', not 3"),
        (
            {"custom_hooks": [{"type": dict}]},
            HookError,
            "dict is not a hook: it creates a dict, which does not inherit from hookline.Hook",
        ),
        (
            {"custom_hooks": [{"type": "ProgressHook", "priority": "LOWEXT"}]},
            HookError,
            "ProgressHook: unknown priority 'LOWEXT'; did you mean 'LOWEST'?",
        ),
        ({"writers": ["jsnl"]}, ConfigError, "unknown writer 'jsnl'; did you mean 'jsonl'?"),
        ({"precision": "fp61"}, ConfigError, "unknown precision 'fp61'; did you mean 'fp16'?"),
        ({"strategy": "singel"}, ConfigError, "unknown strategy 'singel'; did you mean 'single'?"),
        ({"val": [1]}, ConfigError, "val must be an EvalLoop or a dict of them by name, not a list"),
        ({"optim": "SGD"}, ConfigError, "optim must be an Optim, a torch optimizer, or a dict of them, not 'SGD'"),
    ],
)
def test_invalid_parts_are_refused_when_the_runner_is_made(
    parts: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as refused:
        toy_runner(**parts)
    assert str(refused.value) == message


def test_a_device_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="^unknown device 'gpu': "):
        toy_runner(device="gpu")


def test_several_processes_are_refused_rather_than_trained_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError) as refused:
        toy_runner(strategy="single")
    assert str(refused.value) == (
        "the strategy 'single' trains in one process, but this one is one of 2 (WORLD_SIZE), which would all write to "
        "the same folder; use 'ddp' or 'auto'"
    )


def test_the_callers_dicts_are_never_changed() -> None:
    default_hooks: dict[str, Any] = {"checkpoint": {"interval": 2, "priority": "LOWEST"}, "timer": None}
    custom_hooks: list[Any] = [{"type": "ProgressHook", "priority": 30, "on_error": "disable"}]
    points = {"after_render": ["image"]}
    before = copy.deepcopy((default_hooks, custom_hooks, points))
    runner = toy_runner(default_hooks=default_hooks, custom_hooks=custom_hooks, points=points, max_epochs=1)
    runner.register_hook(custom_hooks[0], priority=20)
    runner.train()
    assert (default_hooks, custom_hooks, points) == before
    assert [(entry.name, entry.priority) for entry in runner.plan][:3] == [
        *[("RuntimeInfoHook", 10), ("ProgressHook#2", 20), ("ProgressHook", 30)]
    ]


def test_a_default_hook_can_be_left_out_changed_or_replaced() -> None:
    class MyLogger(Hook): ...

    runner = toy_runner(default_hooks={"timer": None, "logger": MyLogger(), "checkpoint": {"interval": 7}})
    names = [type(hook).__name__ for hook in runner.hooks]
    assert names == [
        *("RuntimeInfoHook", "DistSamplerSeedHook", "MyLogger", "ParamSchedulerHook", "CheckpointHook", "ReportHook")
    ]
    assert runner.hooks[-2].interval == 7


def test_a_compiled_or_wrapped_model_is_used_and_its_own_module_is_the_runners() -> None:
    inner = toy_model()
    runner = toy_runner(model=nn.DataParallel(inner), optim=Optim(torch.optim.SGD(inner.parameters(), lr=0.1)))
    assert runner.model is inner
    assert isinstance(runner.wrapped, nn.DataParallel)
    runner.train()
    checkpoint = torch.load(runner.work_dir / "epoch_2.pth", weights_only=True)
    assert list(checkpoint["state_dict"]) == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_points_of_ones_own_are_called_from_a_step() -> None:
    seen: list[str] = []
    runner = toy_runner(max_epochs=1, batches=2, points={"after_render": ("image",)})
    runner.add_point("after_blur")

    @runner.on("after_render")
    def show(runner: Runner, image: str) -> None:
        seen.append(image)
        runner.call_hook("after_blur")

    runner.on("after_blur", every=2)(lambda runner: seen.append("blur"))
    plain = runner.train_loop.step

    def step(model: nn.Module, batch: Any) -> Any:
        runner.call_hook("after_render", image="sky")
        return plain(model, batch)

    runner.train_loop.step = step
    runner.train()
    assert seen == ["sky", "sky", "blur"]
    with pytest.raises(HookError, match="unknown point 'after_rendr'; did you mean 'after_render'\\?"):
        runner.call_hook("after_rendr", image="sky")


def test_hooks_come_and_go_while_training() -> None:
    recorder = Recorder("after_train_iter")
    runner = toy_runner(max_epochs=1, batches=5, val=None)

    @runner.on("after_train_iter")
    def manage(runner: Runner) -> None:
        if runner.iter == 1:
            runner.register_hook(recorder, priority="LOWEST")
        if runner.iter == 3:
            runner.remove_hook(recorder)
            runner.remove_hook(manage)

    runner.train()
    assert [event.iter for event in recorder.events] == [2, 3]
    assert recorder not in runner.hooks


# ---------------------------------------------------------------------------------------------------- failing


def test_a_failing_hook_ends_the_run_with_its_own_error_and_a_note_and_the_others_see_it() -> None:
    class Fails(Hook):
        def after_train_iter(self, runner: Any) -> None:
            if runner.iter == 5:
                raise KeyError("mine")

    recorder = Recorder()
    runner = toy_runner(max_epochs=3, custom_hooks=[recorder, Fails()])
    with pytest.raises(KeyError, match="mine") as failed:
        runner.train()
    assert [note.split(" (")[0] for note in failed.value.__notes__] == [
        "in hook Fails, at after_train_iter, epoch=1 iter=5 rank=0"
    ]
    assert recorder.names[-6:] == [
        *["after_train_iter", "fail train_iter", "fail train_epoch", "fail train", "on_exception", "fail run"]
    ]
    assert recorder.arguments[-2]["error"] is failed.value
    assert runner.running is None


def test_a_step_that_fails_has_a_note_that_says_where_and_a_hook_in_it_its_own() -> None:
    def fails(model: Any, batch: Any) -> Any:
        if runner.iter == 5:
            raise KeyError("mine")
        return model(batch[0]).sum()

    class Fails(Hook):
        def before_backward(self, runner: Any) -> None:
            if runner.iter == 4:
                raise ValueError("mine")

    runner = toy_runner(max_epochs=3, step=fails)
    with pytest.raises(KeyError) as failed:
        runner.train()
    assert failed.value.__notes__ == ["in the step, epoch=1 iter=5 rank=0"]
    runner = toy_runner(max_epochs=3, step=fails, custom_hooks=[Fails()])
    with pytest.raises(ValueError, match="mine") as of_hook:
        runner.train()
    assert [note.split(" (")[0] for note in of_hook.value.__notes__] == [
        "in hook Fails, at before_backward, epoch=1 iter=4 rank=0"
    ]


def test_a_hook_that_fails_at_on_exception_does_not_hide_the_error() -> None:
    class Fails(Hook):
        def before_train(self, runner: Any) -> None:
            raise KeyError("first")

        def on_exception(self, runner: Any, error: BaseException) -> None:
            raise ValueError("second")

    with pytest.raises(KeyError) as failed:
        toy_runner(custom_hooks=[Fails()]).train()
    assert failed.value.__notes__[-1] == "a hook failed at on_exception: ValueError: second"


def test_an_observer_that_fails_is_left_behind_and_the_log_says_so() -> None:
    class Watch(Hook):
        role = "observer"

        def after_train_iter(self, runner: Any) -> None:
            raise OSError("server away")

    runner = toy_runner(max_epochs=1, custom_hooks=[{"type": Watch, "on_error": "disable"}])
    runner.train()
    text = (runner.work_dir / "run.log").read_text()
    assert text.count("warning: Watch failed; the run continues without it:") == 1
    assert "OSError: server away" in text
    assert logging.getLogger("hookline").handlers == []


def test_a_run_inside_a_run_is_refused() -> None:
    runner = toy_runner(max_epochs=1)
    runner.on("after_train_iter")(lambda runner: runner.train())
    with pytest.raises(HooklineError, match=r"^runner.train\(\) was called inside runner.train\(\); inside a run, use"):
        runner.train()


# ----------------------------------------------------------------------------------------------------- folder


def test_a_run_leaves_its_config_plan_log_metrics_and_checkpoints() -> None:
    runner = toy_runner(max_epochs=2, batches=12, config={"model": {"type": "mynet:Net"}, "seed": 3})
    runner.train()
    assert files_in(runner.work_dir) == sorted(["config.yaml", "epoch_1.pth", "epoch_2.pth", *USUAL])
    assert (runner.work_dir / "config.yaml").read_text() == "model:\n  type: mynet:Net\nseed: 3\n"
    assert (runner.work_dir / "plan.txt").read_text() == runner.plan.explain() + "\n"
    records = [json.loads(line) for line in (runner.work_dir / "metrics.jsonl").read_text().splitlines()]
    assert [(record["step"], record["epoch"]) for record in records] == [(10, 1), (12, 1), (22, 2), (24, 2)]
    assert list(records[0]) == ["step", "epoch", "train/lr", "train/data_time", "train/time", "train/loss"]
    assert list(records[1]) == ["step", "epoch", "val/data_time", "val/time", "val/accuracy"]
    assert "\x1b" not in (runner.work_dir / "run.log").read_text()


def test_a_fresh_run_sets_the_files_of_an_earlier_one_aside_and_val_moves_nothing(tmp_path: Path) -> None:
    toy_runner(max_epochs=1, work_dir=tmp_path).train()
    (tmp_path / "mine.txt").write_text("stays")
    toy_runner(work_dir=tmp_path).val()
    assert not (tmp_path / "old-1").exists()
    for _ in range(2):
        runner = toy_runner(max_epochs=1, work_dir=tmp_path)
        runner.train()
    assert files_in(tmp_path / "old-2") == sorted(["epoch_1.pth", *USUAL])
    assert (tmp_path / "mine.txt").read_text() == "stays"
    assert (
        f"moved the files of an earlier run from {tmp_path} to {tmp_path / 'old-2'}"
        in (tmp_path / "run.log").read_text()
    )


def test_a_folder_that_cannot_be_written_is_refused_before_the_first_step(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    runner = toy_runner(work_dir=tmp_path / "file" / "run")
    with pytest.raises(StorageError, match=r"^work_dir .* cannot be written: Not a directory$"):
        runner.train()
    assert runner.iter == 0


def test_writers_get_every_record_and_several_can_be_given() -> None:
    first, second = MemoryWriter(), MemoryWriter()
    toy_runner(max_epochs=1, batches=10, writers=[first, second, "memory"]).train()
    assert [record["step"] for record in first.records] == [10, 10]
    assert first.records == second.records


# ------------------------------------------------------------------------------------------------------- seed


def noisy(seed: int) -> Runner:
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.1)
    return toy_runner(model=model, max_epochs=1, seed=seed)


def test_the_seed_decides_everything_random() -> None:
    results = []
    for seed in (0, 0, 1):
        runner = noisy(seed)
        torch.rand(7)
        runner.train()
        results.append(runner.model[2].weight.detach().clone())  # type: ignore[index]
    assert results[0].equal(results[1])
    assert not results[0].equal(results[2])


def test_training_again_continues_where_it_ended_when_there_is_more_to_do() -> None:
    runner = toy_runner(max_epochs=1)
    runner.train()
    runner.train()
    assert runner.iter == 4
    runner.train_loop.max_epochs = 2
    runner.train()
    assert runner.iter == 8
    assert sorted(path.name for path in runner.work_dir.glob("*.pth")) == ["epoch_1.pth", "epoch_2.pth"]


def test_the_readme_example_of_a_generator_hook_times_each_step(tmp_path: Path) -> None:
    class Trace(Hook):
        def __init__(self) -> None:
            self.steps = 0

        def around_train_iter(self, runner: Runner) -> Iterator[None]:
            yield
            self.steps += 1

    hook = Trace()
    data = toy_data(3)
    model = toy_model()
    runner = Runner(
        model,
        train=TrainLoop(data, max_epochs=1, step=lambda model, batch: model(batch[0]).sum()),
        val=EvalLoop(data, loss=lambda model, batch: model(batch[0]).sum()),
        optim=torch.optim.SGD(model.parameters(), lr=0.0),
        custom_hooks=[hook],
        quiet=True,
        work_dir=tmp_path,
    )
    assert runner.train() is model
    assert hook.steps == 3


def test_a_run_in_another_thread_is_not_held_up_by_this_one() -> None:
    other = toy_runner(max_epochs=1)
    runner = toy_runner(max_epochs=1)
    ended: list[bool] = []

    @runner.on("before_train")
    def start(runner: Runner) -> None:
        thread = threading.Thread(target=other.predict, args=(toy_data(2),))
        thread.start()
        thread.join(20)
        ended.append(not thread.is_alive())

    runner.train()
    assert ended == [True]


def test_validating_first_takes_nothing_from_the_training_after_it(tmp_path: Path) -> None:
    toy_runner(max_epochs=2, work_dir=tmp_path).train()
    resumed = toy_runner(max_epochs=3, work_dir=tmp_path, resume=True)
    resumed.val()
    resumed.train()
    assert resumed.iter == 12
    fresh = toy_runner(max_epochs=1, work_dir=tmp_path)
    fresh.val()
    fresh.train()
    assert (tmp_path / "old-1").is_dir()


def test_a_device_that_this_machine_lacks_is_refused() -> None:
    for name in ("xla:0", "vulkan"):
        message = f"^the device '{name}' is not available with this torch on this machine; available: "
        with pytest.raises(ConfigError, match=message):
            toy_runner(device=name)


def test_a_device_that_holds_no_data_is_refused() -> None:
    with pytest.raises(ConfigError, match="^the device 'meta' holds no data, so it cannot train; available: "):
        toy_runner(device="meta")


def test_a_number_of_a_device_that_this_machine_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    message = "the device 'cuda:99' is not available with this torch on this machine; available: cuda:0, cuda:1"
    with pytest.raises(ConfigError) as refused:
        pick_device("cuda:99")
    assert str(refused.value) == message
    assert [str(pick_device(name)) for name in ("cuda", "cuda:1", "cpu", "auto")] == ["cuda", "cuda:1", "cpu", "cuda"]


def test_a_device_of_another_type_is_refused() -> None:
    given: Any = 1.5
    with pytest.raises(ConfigError, match=r"^unknown device 1\.5: "):
        toy_runner(device=given)


class Drawing(Hook):
    """Keeps a number of each generator at every iteration."""

    def __init__(self) -> None:
        self.drawn: list[tuple[float, float, float]] = []

    def after_train_iter(self) -> None:
        self.drawn.append(draw())


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


@pytest.mark.parametrize("verb", ["train", "val", "test"])
def test_a_run_gives_the_random_generators_back_as_they_were(verb: str) -> None:
    rng.seed_everything(5)
    expected = [draw(), draw()]
    rng.seed_everything(5)
    assert draw() == expected[0]
    runner = toy_runner(max_epochs=1, custom_hooks=[Drawing()])
    getattr(runner, verb)()
    assert draw() == expected[1]


def test_a_run_that_fails_gives_the_random_generators_back() -> None:
    def fail(model: nn.Module, batch: Any) -> None:
        raise ValueError("no")

    rng.seed_everything(5)
    expected = draw()
    rng.seed_everything(5)
    with pytest.raises(ValueError, match="no"):
        toy_runner(step=fail, trial_batch=False).train()
    assert draw() == expected


def test_a_second_training_continues_with_the_random_numbers_of_the_first(tmp_path: Path) -> None:
    whole = Drawing()
    toy_runner(max_epochs=2, custom_hooks=[whole], val=None).train()
    parts = Drawing()
    runner = toy_runner(max_epochs=1, custom_hooks=[parts], val=None)
    runner.train()
    rng.seed_everything(99)
    runner.train_loop.max_epochs = 2
    runner.train()
    assert parts.drawn == whole.drawn
    assert len(set(parts.drawn)) == 8


def test_a_loader_with_far_too_many_workers_is_refused_before_it_starts_them() -> None:
    class Loader(list[Any]):
        num_workers = 100_000  # as a loader of torch has it

    runner = toy_runner()
    runner.train_loop.dataloader = Loader([1])
    with pytest.raises(ConfigError, match=r"^the loader of 'train': num_workers must be at most \d+, not 100000: "):
        runner.train()
