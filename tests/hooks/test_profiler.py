"""ProfilerHook: which iterations are in which trace, how a trace is output, and that the profiler always stops."""

from __future__ import annotations

import gzip
import json
import resource
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import profiler
from torch.autograd import profiler as legacy

from hookline import Hook, Runner
from hookline.errors import ConfigError, HookError
from hookline.hooks import ProfilerHook
from hookline.hooks.profiling import LABEL, Profile
from hookline.hooks.traces import SORTED_BY
from hookline.testing import toy_runner


@pytest.fixture(autouse=True)
def _no_profiler_is_left() -> Any:
    """Check that torch can profile again, whatever happened."""
    yield
    assert not torch.autograd._profiler_enabled()  # type: ignore[attr-defined]  # what torch itself asks
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU]) as another:
        torch.ones(3).sum()
    assert "aten::sum" in [event.key for event in another.key_averages()]


def labels(path: Path) -> list[int]:
    """Return the numbers of the iterations in a trace."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    names = [event["name"] for event in json.loads(text)["traceEvents"]]
    assert "aten::addmm" in names
    return [int(name.removeprefix(LABEL)) for name in names if name.startswith(LABEL)]


def traces(folder: Path, stem: str = "profile") -> list[list[int]]:
    """Return the iterations in each trace of a run, in the order in which they were written."""
    numbered = [folder / f"{stem}{f'_{number}' if number > 1 else ''}.json" for number in range(1, 10)]
    found = [path for path in numbered if path.exists()]
    assert sorted(found) == sorted(folder.glob(f"{stem}*.json"))
    return [labels(path) for path in found]


def log_of(runner: Runner) -> str:
    return (runner.work_dir / "run.log").read_text()


# ------------------------------------------------------------------------------------- which iterations

NO_VAL: dict[str, Any] = {"val": None}
ONE_TO_EIGHT = [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("parameters", "parts", "found"),
    [
        # Two epochs of four iterations, with a validation of two batches after each.
        ({}, {}, [[1, 2, 3, 4]]),
        ({"profile_times": 2}, {}, [[1, 2, 3, 4], [5, 6, 7, 8]]),
        ({"profile_times": 9}, NO_VAL, [[1, 2, 3, 4], [5, 6, 7, 8]]),
        ({"by_epoch": False}, {}, [[1]]),
        ({"by_epoch": False, "profile_times": 3}, {}, [[1, 2, 3]]),
        ({"by_epoch": False, "profile_times": 6}, {}, [[1, 2, 3, 4], [5, 6]]),
        ({"by_epoch": False, "profile_times": 6}, NO_VAL, [[1, 2, 3, 4, 5, 6]]),
        ({"by_epoch": False, "profile_times": 99}, NO_VAL, [ONE_TO_EIGHT]),
        # Training by iterations: an epoch is a pass over the data.
        ({}, {"max_iters": 6}, [[1, 2, 3, 4]]),
        ({"profile_times": 2}, {"max_iters": 6}, [[1, 2, 3, 4], [5, 6]]),
        ({"by_epoch": False, "profile_times": 5}, {"max_iters": 6, "train": {"val_interval": 2}},
         [[1, 2], [3, 4], [5]]),
        # Other stages.
        ({"stages": ["val"]}, {}, [[1, 2]]),
        ({"stages": ["val"], "profile_times": 2}, {}, [[1, 2], [3, 4]]),
        ({"stages": ["val"], "by_epoch": False, "profile_times": 3}, {}, [[1, 2], [3]]),
        ({"stages": ["val", "train"]}, {}, [[1, 2, 3, 4], [1, 2]]),
        ({"stages": ["train", "val"], "by_epoch": False, "profile_times": 5}, {}, [[1, 2, 3, 4], [1, 2], [5], [3, 4]]),
        ({"stages": ["test"]}, {}, []),
    ],
)  # fmt: skip
def test_exactly_these_iterations_are_in_the_traces(
    parameters: dict[str, Any], parts: dict[str, Any], found: list[list[int]]
) -> None:
    runner = toy_runner(custom_hooks=[ProfilerHook(**parameters, json_trace_path="profile.json")], **parts)
    runner.train()
    assert traces(runner.work_dir) == found


@pytest.mark.parametrize(
    ("schedule", "parameters", "parts", "found"),
    [
        ({"wait": 1, "warmup": 1, "active": 2}, {"profile_times": 8}, NO_VAL, [[3, 4], [7, 8]]),
        ({"wait": 1, "warmup": 1, "active": 2}, {"profile_times": 7}, NO_VAL, [[3, 4], [7]]),
        ({"wait": 1, "warmup": 1, "active": 2, "repeat": 1}, {"profile_times": 8}, NO_VAL, [[3, 4]]),
        ({"wait": 1, "warmup": 1, "active": 1, "repeat": 2, "skip_first": 2}, {"profile_times": 8}, NO_VAL, [[5], [8]]),
        ({"active": 3}, {"profile_times": 7}, NO_VAL, [[1, 2, 3], [4, 5, 6], [7]]),
        # A validation ends a trace, and the schedule continues where it was.
        ({"wait": 2, "active": 4}, {"profile_times": 8}, {}, [[3, 4], [5, 6]]),
        ({"wait": 3, "warmup": 1, "active": 2}, {"profile_times": 8}, {}, [[5, 6]]),
        ({"warmup": 3, "active": 1}, {"by_epoch": True}, {}, [[4]]),
        ({"warmup": 1, "active": 1, "repeat": 1}, {"by_epoch": True, "profile_times": 2}, {}, [[2]]),
        ({"warmup": 1, "active": 1, "repeat": 1}, {"by_epoch": True, "stages": ["val"]}, {}, [[2]]),
        ({"warmup": 2, "active": 1, "repeat": 1}, {"by_epoch": True, "profile_times": 2, "stages": ["val"]}, {}, [[3]]),
    ],
)  # fmt: skip
def test_with_a_schedule_exactly_these_are(
    schedule: dict[str, int], parameters: dict[str, Any], parts: dict[str, Any], found: list[list[int]]
) -> None:
    given = {"by_epoch": False, "json_trace_path": "profile.json", **parameters}
    runner = toy_runner(custom_hooks=[ProfilerHook(schedule=schedule, **given)], **parts)
    runner.train()
    assert traces(runner.work_dir) == found


def test_a_validation_that_a_hook_asks_for_is_not_in_the_trace_of_training() -> None:
    runner = toy_runner(max_epochs=1, custom_hooks=[ProfilerHook(json_trace_path="profile.json")])
    runner.on("after_train_iter")(lambda runner: runner.request_val() if runner.iter == 1 else None)
    runner.train()
    assert traces(runner.work_dir) == [[1, 2], [3, 4]]


def test_a_schedule_that_records_nothing_is_a_warning() -> None:
    hook = ProfilerHook(schedule={"wait": 9, "active": 1}, json_trace_path="profile.json")
    runner = toy_runner(custom_hooks=[hook])
    runner.train()
    assert traces(runner.work_dir) == []
    warning = (
        "warning: ProfilerHook: there is no trace of train, because the schedule records none of its first 4 iterations"
    )
    assert log_of(runner).count(warning) == 1


# ------------------------------------------------------------------------------------- output of a trace


def test_by_default_a_table_is_shown_and_a_trace_written_and_both_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    runner = toy_runner(max_epochs=1, custom_hooks=["ProfilerHook"], quiet=False)
    runner.train()
    assert traces(runner.work_dir) == [[1, 2, 3, 4]]
    for text in (log_of(runner), capsys.readouterr().out):
        rows = text.splitlines()
        title = next(
            number for number, row in enumerate(rows) if "ProfilerHook: train iterations 1 to 4, sorted" in row
        )
        assert rows[title].endswith("ProfilerHook: train iterations 1 to 4, sorted by self_cpu_time_total")
        keys = [key.strip() for key in rows[title + 2].split("  ") if key.strip()]
        assert keys == [*("Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg", "# of Calls")]
        steps = [row.split() for row in rows[title + 4 : title + 24] if row.split()[0] == "ProfilerStep*"]
        assert [row[-1] for row in steps] == ["4"]
        assert [number - title for number, row in enumerate(rows) if row.startswith("-----")] == [1, 3, 24]
        assert f"ProfilerHook: train iterations 1 to 4: the trace is in {runner.work_dir / 'profile.json'}" in text


def test_a_table_has_as_many_rows_as_asked_for_in_the_order_asked_for() -> None:
    handler = {"type": "log_trace", "sort_by": "count", "row_limit": 3}
    runner = toy_runner(max_epochs=1, custom_hooks=[ProfilerHook(on_trace_ready=handler)])
    runner.train()
    rows = log_of(runner).splitlines()
    title = next(number for number, row in enumerate(rows) if row.endswith("iterations 1 to 4, sorted by count"))
    counts = [int(row.split()[-1]) for row in rows[title + 4 : title + 7]]
    assert counts == sorted(counts, reverse=True)
    assert rows[title + 7].startswith("-----")
    assert [path.name for path in runner.work_dir.glob("*.json")] == ["hooks.json"]


@pytest.mark.parametrize("sort_by", SORTED_BY)
def test_every_order_of_a_table_is_one_that_torch_knows(sort_by: str) -> None:
    handler = {"type": "log_trace", "sort_by": sort_by, "row_limit": 2}
    hook = ProfilerHook(by_epoch=False, on_trace_ready=handler, profile_memory=True, record_shapes=True)
    runner = toy_runner(max_epochs=1, custom_hooks=[hook], val=None)
    runner.train()
    assert f"train iteration 1, sorted by {sort_by}\n-----" in log_of(runner)


@pytest.mark.parametrize(
    ("handler", "folder"), [("tb_trace", "tensorboard"), ({"type": "tb_trace", "dir_name": "a/b"}, "a/b")]
)
def test_tensorboard_finds_its_traces(handler: Any, folder: str) -> None:
    runner = toy_runner(custom_hooks=[ProfilerHook(profile_times=2, on_trace_ready=handler)])
    runner.train()
    found = sorted((runner.work_dir / folder).iterdir(), key=lambda path: path.name)
    assert [labels(path) for path in found] == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert all(path.name.endswith(".pt.trace.json") for path in found)
    assert f"train iterations 5 to 8: the trace for TensorBoard is in {runner.work_dir / folder}" in log_of(runner)
    assert [path.name for path in runner.work_dir.glob("*.json")] == ["hooks.json"]


def test_a_trace_can_be_written_several_times_and_compressed(tmp_path: Path) -> None:
    def twice(given: Profile) -> None:
        given.export_chrome_trace(str(tmp_path / "own.json"))
        given.export_chrome_trace(str(tmp_path / "own.json.gz"))

    runner = toy_runner(custom_hooks=[
        ProfilerHook(by_epoch=False, profile_times=2, on_trace_ready=twice, json_trace_path="deep/er/t.json.gz"),
    ])  # fmt: skip
    runner.train()
    paths = [tmp_path / "own.json", tmp_path / "own.json.gz", runner.work_dir / "deep/er/t.json.gz"]
    assert [labels(path) for path in paths] == [[1, 2]] * 3
    assert sorted(path.name for path in [*tmp_path.iterdir(), *paths[2].parent.iterdir()]) == sorted(
        path.name for path in paths
    )


def test_a_function_gets_the_profiler_and_its_options_are_those_asked_for() -> None:
    seen: list[Any] = []

    def look(given: Profile) -> None:
        seen.append((given.record_shapes, given.profile_memory, given.with_stack, given.with_flops, given.activities))
        seen.append(
            [event.key for event in given.key_averages(group_by_input_shape=True) if event.key == "aten::addmm"]
        )

    hook = ProfilerHook(
        by_epoch=False, on_trace_ready=look, record_shapes=True, profile_memory=True, with_stack=True, with_flops=True
    )
    toy_runner(custom_hooks=[hook]).train()
    assert seen == [(True, True, True, True, {profiler.ProfilerActivity.CPU}), ["aten::addmm"] * 2]


def test_no_file_is_overwritten(tmp_path: Path) -> None:
    for resume in (False, True):
        hook = ProfilerHook(by_epoch=False, json_trace_path="profile.json")
        runner = toy_runner(max_epochs=1 + resume, work_dir=tmp_path, custom_hooks=[hook], resume=resume)
        runner.train()
    # The resumed run profiles again, from the fifth iteration on.
    assert traces(tmp_path) == [[1], [5]]
    (tmp_path / "odd").write_text("mine")
    hook = ProfilerHook(stages=["val"], json_trace_path="odd")
    toy_runner(work_dir=tmp_path, custom_hooks=[hook]).val()
    assert (tmp_path / "odd").read_text() == "mine"
    assert labels(tmp_path / "odd_2") == [1, 2]


def test_a_trace_that_cannot_be_written_is_a_warning_and_the_run_continues(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for handler, path, why in (
        (None, "file/x.json", f"[Errno 17] File exists: '{tmp_path}/file'"),
        ({"type": "tb_trace", "dir_name": "file/x"}, None, f"[Errno 20] Not a directory: '{tmp_path}/file/x'"),
    ):
        hook = ProfilerHook(on_trace_ready=handler, json_trace_path=path)
        runner = toy_runner(work_dir=tmp_path, custom_hooks=[hook])
        runner.train()
        assert runner.epoch == 2
        said = (
            f"warning: ProfilerHook: the trace of train iterations 1 to 4 cannot be written: {why}; the run continues\n"
        )
        assert log_of(runner).count(said) == 1


def test_a_disk_that_is_full_is_a_warning_and_half_a_file_is_not_left(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # From now on, a trace does not fit into a file, but the log does.
    hook = ProfilerHook(
        on_trace_ready=lambda given: resource.setrlimit(resource.RLIMIT_FSIZE, (4000, before[1])),
        json_trace_path="profile.json",
    )
    runner = toy_runner(work_dir=tmp_path, custom_hooks=[hook])
    runner.on("after_train_epoch")(lambda runner: resource.setrlimit(resource.RLIMIT_FSIZE, before))
    try:
        runner.train()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert runner.epoch == 2
    assert "warning: ProfilerHook: the trace of train iterations 1 to 4 cannot be written: " in log_of(runner)
    assert "the disk may be full" in log_of(runner)
    assert [path.name for path in tmp_path.iterdir() if "profile" in path.name] == []


def test_half_a_file_that_torch_is_silent_about_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = profiler.profile.export_chrome_trace

    def half(self: profiler.profile, path: str) -> None:
        whole(self, path)
        text = Path(path).read_bytes()
        Path(path).write_bytes(text[: len(text) // 2])

    monkeypatch.setattr(profiler.profile, "export_chrome_trace", half)
    runner = toy_runner(work_dir=tmp_path, custom_hooks=[ProfilerHook(json_trace_path="profile.json")])
    runner.train()
    assert "cannot be written: torch wrote only a part of the trace" in log_of(runner)
    assert [path.name for path in tmp_path.iterdir() if "profile" in path.name] == []


# ------------------------------------------------------------------------------------- it always stops


class Failing(Hook):
    """Fails at a point of an iteration."""

    def __init__(self, point: str, error: type[BaseException], iter: int = 2) -> None:
        self.point, self.error, self.iter = point, error, iter

    def _fail(self, runner: Runner, point: str) -> None:
        if point == self.point and runner.iter == self.iter:
            raise self.error("broken")

    def before_backward(self, runner: Runner) -> None:
        self._fail(runner, "before_backward")

    def after_train_iter(self, runner: Runner) -> None:
        self._fail(runner, "after_train_iter")

    def after_train_epoch(self, runner: Runner) -> None:
        self._fail(runner, "after_train_epoch")

    def after_val_iter(self, runner: Runner) -> None:
        self._fail(runner, "after_val_iter")


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize(
    ("point", "iter", "found"),
    [
        ("before_backward", 2, [[1, 2, 3]]),
        ("after_train_iter", 2, [[1, 2, 3]]),
        ("after_train_epoch", 4, [[1, 2, 3, 4]]),
        ("after_val_iter", 4, [[1, 2, 3, 4], [1]]),
        ("before_backward", 4, [[1, 2, 3, 4], [1, 2], [5]]),
    ],
)
def test_a_failure_ends_it_and_what_it_saw_is_written(
    error: type[BaseException], point: str, iter: int, found: list[list[int]]
) -> None:
    hook = ProfilerHook(by_epoch=False, profile_times=99, stages=["train", "val"], json_trace_path="profile.json")
    runner = toy_runner(custom_hooks=[hook, Failing(point, error, iter)])
    with pytest.raises(error, match="broken"):
        runner.train()
    assert traces(runner.work_dir) == found


def test_a_loader_that_fails_leaves_no_trace_of_nothing() -> None:
    def broken() -> Any:
        raise RuntimeError("no data")
        yield

    class Loader:
        def __iter__(self) -> Any:
            return broken()

    runner = toy_runner(custom_hooks=[ProfilerHook(json_trace_path="profile.json")])
    runner.train_loop.dataloader = Loader()
    with pytest.raises(RuntimeError, match="no data"):
        runner.train()
    assert traces(runner.work_dir) == []


def test_a_function_that_fails_ends_the_run_with_its_name_or_is_left_out() -> None:
    def fail(given: Profile) -> None:
        raise ValueError("not this one")

    runner = toy_runner(custom_hooks=[ProfilerHook(by_epoch=False, on_trace_ready=fail)])
    with pytest.raises(ValueError, match="not this one") as failed:
        runner.train()
    assert "in hook ProfilerHook, at around_train_iter" in failed.value.__notes__[0]
    runner = toy_runner()
    runner.register_hook(ProfilerHook(by_epoch=False, on_trace_ready=fail), on_error="disable")
    runner.train()
    assert runner.epoch == 2


def test_a_stop_ends_it() -> None:
    runner = toy_runner(custom_hooks=[ProfilerHook(json_trace_path="profile.json")])
    runner.on("after_train_iter", every=3)(lambda runner: runner.stop("enough"))
    runner.train()
    assert traces(runner.work_dir) == [[1, 2, 3]]


def test_val_and_test_alone_are_profiled_if_asked_for() -> None:
    hook = ProfilerHook(stages=["val", "test"], json_trace_path="profile.json")
    runner = toy_runner(custom_hooks=[hook])
    for _ in range(2):  # the second time there is nothing left to profile
        runner.val()
        runner.test()
    assert traces(runner.work_dir) == [[1, 2], [1, 2]]
    assert "ProfilerHook: test iterations 1 to 2: the trace is in" in log_of(runner)
    only_training = toy_runner(custom_hooks=[ProfilerHook(json_trace_path="profile.json")])
    only_training.val()
    only_training.test()
    assert traces(only_training.work_dir) == []


def test_a_second_start_profiles_what_is_left_and_no_more() -> None:
    hook = ProfilerHook(by_epoch=False, profile_times=6, json_trace_path="profile.json")
    runner = toy_runner(max_epochs=1, val=None, custom_hooks=[hook])
    for epochs in (1, 2, 3):
        runner.train_loop.max_epochs = epochs
        runner.train()
    assert traces(runner.work_dir) == [[1, 2, 3, 4], [5, 6]]


@pytest.mark.parametrize("fails", [False, True])
def test_registered_while_training_it_profiles_from_there_on_and_ends(fails: bool) -> None:
    hook = ProfilerHook(by_epoch=False, profile_times=99, json_trace_path="profile.json")
    failing = Failing("before_backward", RuntimeError, 3 if fails else 9)
    runner = toy_runner(max_epochs=1, val=None, custom_hooks=[failing])

    @runner.on("after_train_iter")
    def register(runner: Runner) -> None:
        if runner.iter == 1:
            runner.register_hook(hook)

    with pytest.raises(RuntimeError, match="broken") if fails else nullcontext():
        runner.train()
    assert traces(runner.work_dir) == [[3, 4]]


# ------------------------------------------------------------------------------------- another profiler

MESSAGE = (
    "ProfilerHook: another torch profiler is active in this process, and torch allows one at a time; stop the "
    "other one first, or remove this hook"
)


def another(**given: Any) -> Any:
    return profiler.profile(activities=[profiler.ProfilerActivity.CPU], **given)


@pytest.mark.parametrize("kind", ["records", "waits", "warms up", "of autograd"])
@pytest.mark.parametrize("verb", ["train", "val"])
def test_a_profiler_that_is_active_is_refused_before_the_first_step(kind: str, verb: str) -> None:
    steps: list[int] = []
    runner = toy_runner(custom_hooks=[ProfilerHook(stages=["train", "val"])])
    runner.on("before_train_iter")(lambda runner: steps.append(runner.iter))
    runner.on("before_val_iter")(lambda runner: steps.append(runner.iter))
    waits = {"waits": {"wait": 1, "warmup": 1, "active": 1}, "warms up": {"wait": 0, "warmup": 1, "active": 1}}
    schedule = profiler.schedule(**waits[kind]) if kind in waits else None
    own = legacy.profile() if kind == "of autograd" else another(schedule=schedule)
    with own, pytest.raises(HookError) as refused:
        getattr(runner, verb)()
    assert (str(refused.value), steps) == (MESSAGE, [])
    getattr(runner, verb)()
    assert steps


def test_one_that_begins_in_the_middle_is_refused_too() -> None:
    runner = toy_runner(custom_hooks=[ProfilerHook(stages=["val"], by_epoch=False)])
    own = another()
    runner.on("before_val_epoch")(lambda runner: own.start())
    with pytest.raises(HookError) as refused:
        runner.train()
    own.stop()
    assert str(refused.value) == MESSAGE


# ------------------------------------------------------------------------------------- cost and effects


def test_when_it_is_done_it_is_out_of_the_plan() -> None:
    hook = ProfilerHook(by_epoch=False, profile_times=3, stages=["train", "val"], on_trace_ready=lambda given: None)
    runner = toy_runner(custom_hooks=[hook])
    scopes = [f"around_{stage}{unit}" for stage in ("train", "val", "test") for unit in ("", "_epoch", "_iter")]
    seen: list[list[str]] = []

    def where(runner: Runner) -> None:
        seen.append(
            [scope for scope in scopes if any(call.who == "ProfilerHook" for call in runner.plan.calls_at(scope))]
        )

    runner.on("before_train_iter")(where)
    runner.on("after_val_epoch")(where)
    runner.train()
    both = ["around_train", "around_train_iter", "around_val", "around_val_iter"]
    validation = ["around_val", "around_val_iter"]
    assert seen == [both, both, both, validation, validation, *[validation] * 4, []]
    runner.val()
    assert seen[-1] == []
    for point in ("on_exception", "after_run"):
        assert "ProfilerHook" not in [call.who for call in runner.plan.calls_at(point)]


def test_training_is_the_same_to_the_bit() -> None:
    options: dict[str, Any] = {"record_shapes": True, "profile_memory": True, "with_flops": True, "with_stack": True}
    having = toy_runner(custom_hooks=[ProfilerHook(profile_times=2, stages=["train", "val"], **options)])
    without = toy_runner()
    for runner in (having, without):
        model = runner.model
        model.insert(1, torch.nn.Dropout(0.5))  # type: ignore[operator]  # it is a Sequential
        runner.train()
    for name, value in without.model.state_dict().items():
        assert value.equal(having.model.state_dict()[name])
    assert having.hub.get_scalar("train/loss").last() == without.hub.get_scalar("train/loss").last()


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    def trained(folder: str, epochs: int, resume: bool = False) -> Runner:
        runner = toy_runner(
            max_epochs=epochs, work_dir=tmp_path / folder, resume=resume, custom_hooks=[ProfilerHook(by_epoch=False)]
        )
        runner.train()
        return runner

    whole = trained("whole", 2)
    trained("parts", 1)
    parts = trained("parts", 2, resume=True)
    assert whole.position == parts.position
    for name, value in whole.model.state_dict().items():
        assert value.equal(parts.model.state_dict()[name])


# ------------------------------------------------------------------------------------- without CUDA


def test_without_cuda_the_cpu_is_profiled_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    runner = toy_runner(custom_hooks=[ProfilerHook(activity_with_cuda=True, json_trace_path="profile.json")])
    runner.train()
    assert traces(runner.work_dir) == [[1, 2, 3, 4]]
    assert log_of(runner).count("warning: ProfilerHook: CUDA is not available, so only the CPU is profiled") == 1
    runner = toy_runner(custom_hooks=[ProfilerHook(activity_with_cpu=False, activity_with_cuda=True)])
    with pytest.raises(HookError) as refused:
        runner.train()
    assert str(refused.value) == (
        "ProfilerHook: activity_with_cpu is off and CUDA is not available, so there is nothing to profile"
    )
    assert runner.iter == 0


# ------------------------------------------------------------------------------------- constructing


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"profile_times": 0}, "profile_times must be an int of at least 1, not 0"),
        ({"profile_times": True}, "profile_times must be an int of at least 1, not True"),
        ({"activity_with_cpu": False}, "turn on activity_with_cpu or activity_with_cuda; with both off, there is nothing to profile"),  # noqa: E501  # whole
        ({"schedule": 3}, "schedule must be a mapping of wait, warmup, active, repeat, skip_first, not 3"),
        ({"schedule": {"wait": 1}}, "schedule needs 'active', the number of iterations to record"),
        ({"schedule": {"active": 0}}, "schedule: active must be an int of at least 1, not 0"),
        ({"schedule": {"active": 1, "wait": -1}}, "schedule: wait must be an int of at least 0, not -1"),
        ({"schedule": {"actve": 1}}, "a key of schedule cannot be 'actve'; did you mean 'active'?"),
        ({"schedule": {"wait": 1, "warmup": 2, "active": 2}, "by_epoch": False, "profile_times": 3},
         "the schedule records none of profile_times=3 iterations, because it first waits for 3; profile_times counts those, too: set it to at least 5"),  # noqa: E501  # whole
        ({"on_trace_ready": 3}, "on_trace_ready must be log_trace, tb_trace, a mapping with one of them as its type, or a function that takes the profiler, not 3"),  # noqa: E501  # whole
        ({"on_trace_ready": "log"}, "on_trace_ready: type cannot be 'log'; available: log_trace, tb_trace"),
        ({"on_trace_ready": {"type": "log_trase"}}, "on_trace_ready: type cannot be 'log_trase'; did you mean 'log_trace'?"),  # noqa: E501  # whole
        ({"on_trace_ready": {"sort_by": "count"}}, "on_trace_ready: type cannot be None; available: log_trace, tb_trace"),  # noqa: E501  # whole
        ({"on_trace_ready": {"type": "tb_trace", "dirname": "x"}}, "on_trace_ready: unknown setting 'dirname' of tb_trace; did you mean 'dir_name'?"),  # noqa: E501  # whole
        ({"on_trace_ready": {"type": "tb_trace", "dir_name": 3}}, "on_trace_ready: dir_name must be a folder, not 3"),
        ({"on_trace_ready": {"type": "log_trace", "row_limit": 0}}, "on_trace_ready: row_limit must be an int of at least 1, not 0"),  # noqa: E501  # whole
        ({"on_trace_ready": {"type": "log_trace", "sort_by": "cpu_times"}}, "on_trace_ready: sort_by cannot be 'cpu_times'; did you mean 'cpu_time'?"),  # noqa: E501  # whole
        ({"stages": "train"}, "stages must be a list of train, val, test, not 'train'"),
        ({"stages": []}, "stages must be a list of train, val, test, not []"),
        ({"stages": ["train", "validation"]}, "stages cannot be 'validation'; available: train, val, test"),
    ],
)  # fmt: skip
def test_wrong_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ProfilerHook(**parameters)
    assert str(refused.value) == f"ProfilerHook: {message}"


def test_it_is_built_from_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "looking.py").write_text(
        "from pathlib import Path\n\ndef look(given):\n    Path('seen').write_text(type(given).__name__)\n"
    )
    (tmp_path / "run.yaml").write_text(
        """
model: {type: DigitsNet}
train: {dataloader: {dataset: {type: Digits}, batch_size: 16}, step: cross_entropy, max_iters: 4, limit_batches: 4}
optim: {optimizer: {type: SGD, lr: 0.1}}
work_dir: work
custom_hooks:
  - type: ProfilerHook
    by_epoch: false
    profile_times: 4
    schedule: {wait: 1, warmup: 1, active: 1, repeat: 1}
    on_trace_ready: "looking:look"
    json_trace_path: profile.json
    stages: [train, val]
"""
    )
    Runner.from_config(tmp_path / "run.yaml").train()
    assert (tmp_path / "seen").read_text() == "Profile"
    assert traces(tmp_path / "work") == [[3]]


def test_a_second_one_is_refused_before_the_first_step_also_while_the_first_waits() -> None:
    waiting = ProfilerHook(by_epoch=False, profile_times=9, schedule={"wait": 3, "active": 1})
    runner = toy_runner(custom_hooks=[waiting, ProfilerHook(by_epoch=False)])
    steps: list[int] = []
    runner.on("after_train_iter")(lambda runner: steps.append(runner.iter))
    with pytest.raises(HookError, match="^ProfilerHook: another torch profiler is active in this process"):
        runner.train()
    assert steps == []
    again = toy_runner(custom_hooks=[ProfilerHook(by_epoch=False)])
    again.train()
    assert (again.work_dir / "profile.json").exists()
