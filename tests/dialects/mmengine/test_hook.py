"""Hook: its helpers, its points, and its place in the order."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hookline.dialects.mmengine import hooks
from hookline.dialects.mmengine.hooks import Hook
from hookline.dialects.mmengine.registry import HOOKS
from hookline.dialects.mmengine.runner import Priority, get_priority
from hookline.errors import HookError
from hookline.plan.points import POINTS
from tests.dialects.mmengine.parts import Seen, runner_of


@pytest.fixture(autouse=True)
def own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HOOKS, "_registered", dict(HOOKS._registered))


def test_the_22_stages_are_points_of_the_loop_in_its_order() -> None:
    assert len(Hook.stages) == len(set(Hook.stages)) == 22
    assert [stage for stage in POINTS if stage in Hook.stages] == list(Hook.stages)
    assert all(callable(getattr(Hook, stage)) for stage in Hook.stages)


@pytest.mark.parametrize(
    ("n", "start", "expected"),
    [(3, 2, "FTFFTFFTF"), (2, 0, "FTFTFTFTF"), (0, 0, "FFFFFFFFF"), (1, 5, "FFFFTTTTT")],
)
def test_every_n_counts_from_its_start(n: int, start: int, expected: str) -> None:
    counted = [SimpleNamespace(epoch=number, iter=number) for number in range(9)]
    assert "".join("FT"[Hook().every_n_epochs(at, n, start)] for at in counted) == expected
    assert "".join("FT"[Hook().every_n_train_iters(at, n, start)] for at in counted) == expected


def test_inner_iterations_and_the_ends() -> None:
    hook = Hook()
    assert [hook.every_n_inner_iters(index, 2) for index in range(4)] == [False, True, False, True]
    assert [hook.end_of_epoch([1, 2, 3], index) for index in range(3)] == [False, False, True]
    by_epoch = SimpleNamespace(epoch=2, iter=11, max_epochs=3, max_iters=12, train_loop=SimpleNamespace(by_epoch=True))
    assert hook.is_last_train_epoch(by_epoch)
    assert hook.is_last_train_iter(by_epoch)
    by_iter = SimpleNamespace(epoch=2, max_epochs=1, train_loop=SimpleNamespace(by_epoch=False))
    assert hook.is_last_train_epoch(by_iter)


def test_triggered_stages_are_those_that_are_overridden_in_the_order_of_the_loop() -> None:
    class Own(Hook):
        def _after_iter(self, runner: Any, *args: Any, **kwargs: Any) -> None: ...
        def before_train(self, runner: Any) -> None: ...
        def after_run(self, runner: Any) -> None: ...

    assert Own().get_triggered_stages() == [
        *("before_train", "after_train_iter", "after_val_iter", "after_test_iter", "after_run")
    ]
    assert Hook().get_triggered_stages() == []
    assert hooks.CheckpointHook().get_triggered_stages() == [
        *("before_train", "after_train_iter", "after_train_epoch", "after_val_epoch", "before_save_checkpoint"),
        *("after_train", "after_run"),
    ]


def test_a_plan_has_only_what_is_overridden(tmp_path: Path) -> None:
    hook = Seen()
    runner = runner_of(tmp_path / "run", custom_hooks=[hook])
    (entry,) = [entry for entry in runner.plan if entry.hook is hook]
    assert [call.point.name for call in entry.calls] == [
        f"{when}_{stage}_epoch" for stage in ("train", "val", "test") for when in ("before", "after")
    ]


def test_a_method_set_on_the_object_is_called_even_if_the_hook_looks_only_at_its_class(tmp_path: Path) -> None:
    seen: list[str] = []

    class AsInMMEngine(Hook):
        def get_triggered_stages(self) -> list[str]:
            return []

    hook = AsInMMEngine()
    vars(hook)["_before_iter"] = lambda runner, batch_idx, data_batch, mode: seen.append(mode)
    vars(hook)["after_train_epoch"] = lambda runner: seen.append("after the epoch")
    runner_of(tmp_path, train_cfg={"by_epoch": True, "max_epochs": 1}, custom_hooks=[hook]).train()
    assert seen == ["train"] * 4 + ["after the epoch"] + ["val"] * 2


def test_methods_that_cover_several_points_are_called_with_the_mode(tmp_path: Path) -> None:
    hook = Seen()
    runner = runner_of(tmp_path / "run", custom_hooks=[hook])
    runner.train()
    runner.test()
    assert hook.seen == [
        ("before train epoch", 0, 0),
        ("after train epoch", 0, 4),
        ("before val epoch", 1, 4),
        ("after val epoch", 1, 4),
        ("before train epoch", 1, 4),
        ("after train epoch", 1, 8),
        ("before val epoch", 2, 8),
        ("after val epoch", 2, 8),
        ("before test epoch", 2, 8),
        ("after test epoch", 2, 8),
    ]


def test_iterations_get_batch_and_outputs(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Looks(Hook):
        def _before_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, mode: str = "train") -> None:
            seen.append((mode, batch_idx, tuple(data_batch[0].shape)))

        def _after_iter(
            self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None, mode: str = "train"
        ) -> None:
            seen.append((mode, batch_idx, list(outputs) if mode == "train" else len(outputs)))

    runner_of(tmp_path / "run", custom_hooks=[Looks()], train_cfg={"max_epochs": 1}).train()
    assert seen[:4] == [("train", 0, (8, 4)), ("train", 0, ["loss"]), ("train", 1, (8, 4)), ("train", 1, ["loss"])]
    assert seen[8:] == [("val", 0, (8, 4)), ("val", 0, 8), ("val", 1, (8, 4)), ("val", 1, 8)]


def test_the_order_is_by_priority_and_then_as_registered(tmp_path: Path) -> None:
    for name in "abcdef":
        HOOKS.register_module(name=name, module=type(name, (Hook,), {}))
    given = {"a": None, "b": 0, "c": "LOWEST", "d": None, "e": "very_high", "f": 55}
    custom = [{"type": name} if level is None else {"type": name, "priority": level} for name, level in given.items()]
    runner = runner_of(tmp_path / "run", custom_hooks=custom)
    assert [type(hook).__name__ for hook in runner.hooks] == [
        *("b", "RuntimeInfoHook", "e", "IterTimerHook", "DistSamplerSeedHook", "a", "d", "f"),
        *("LoggerHook", "ParamSchedulerHook", "CheckpointHook", "c"),
    ]
    assert isinstance(runner.hooks, list)
    assert custom[1] == {"type": "b", "priority": 0}
    runner.register_hook({"type": "a", "priority": "LOWEST"}, priority="HIGHEST")
    assert [type(hook).__name__ for hook in runner.hooks][:2] == ["b", "a"]


def test_a_priority_that_contradicts_the_order_of_the_default_hooks_is_refused(tmp_path: Path) -> None:
    early = {"checkpoint": {"type": "CheckpointHook", "priority": "HIGH"}}
    with pytest.raises(HookError, match=r"^the order of the hooks is contradictory: CheckpointHook declares runs_af"):
        runner_of(tmp_path / "run", default_hooks=early)


def test_a_misspelled_point_is_refused_and_a_custom_point_runs_when_it_is_called(tmp_path: Path) -> None:
    class Misspelled(Hook):
        def after_trian_iter(self, runner: Any) -> None: ...

    with pytest.raises(HookError, match="unknown point 'after_trian_iter'; did you mean 'after_train_iter'"):
        runner_of(tmp_path / "run", custom_hooks=[Misspelled()])

    seen = []

    class Own(Hook):
        def after_render(self, runner: Any, image: str) -> None:
            seen.append((image, runner.iter))

    runner = runner_of(tmp_path / "run", custom_hooks=[Own()])
    runner.call_hook("after_render", image="a")
    runner.call_hook("nobody_has_this", image="a")
    assert seen == [("a", 0)]
    with pytest.raises(HookError, match="did you mean 'after_train_iter'"):
        runner.call_hook("after_trian_iter")


def test_a_failure_keeps_its_type_and_names_the_hook(tmp_path: Path) -> None:
    class Fails(Hook):
        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
            raise TypeError("no such thing")

    with pytest.raises(TypeError, match="^no such thing") as caught:
        runner_of(tmp_path / "run", custom_hooks=[Fails()]).train()
    assert caught.traceback[-1].name == "after_train_iter"
    (note,) = [note for note in caught.value.__notes__ if "in hook" in note]
    assert note.startswith("in hook Fails, at after_train_iter, epoch=0 iter=0 rank=0 (")


def test_a_hook_may_store_the_runner_itself(tmp_path: Path) -> None:
    class Keeps(Hook):
        def before_run(self, runner: Any) -> None:
            self.runner = runner

    hook = Keeps()
    runner = runner_of(tmp_path / "run", custom_hooks=[hook])
    assert hook.runner is runner
    runner.val()
    assert hook.runner is runner


@pytest.mark.parametrize(
    ("given", "kind"), [(101, ValueError), (-1, ValueError), ("HIGHER", KeyError), (1.5, TypeError), (None, TypeError)]
)
def test_an_invalid_priority_raises_the_original_error_type(given: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        get_priority(given)
    assert isinstance(caught.value, HookError)
    assert [get_priority(each) for each in ("low", 55, Priority.HIGH)] == [70, 55, 30]


@pytest.mark.parametrize("given", [3, {"interval": 3}, object()])
def test_an_object_that_is_not_a_hook_is_refused(tmp_path: Path, given: Any) -> None:
    with pytest.raises((TypeError, KeyError)):
        runner_of(tmp_path / "run", custom_hooks=[given])


def test_a_method_may_have_an_extra_parameter_with_a_default(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Own(Hook):
        def after_train_iter(
            self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None, every: int = 2
        ) -> None:
            if self.every_n_inner_iters(batch_idx, every):
                seen.append((batch_idx, every, sorted(outputs)))

        def before_run(self, runner: Any, verbose: bool = True) -> None:
            seen.append(verbose)

    runner = runner_of(tmp_path, custom_hooks=[Own()])
    runner.train()
    assert seen[0] is True
    assert {each[:2] for each in seen[1:]} == {(1, 2), (3, 2)}

    class NearMiss(Hook):
        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, output: Any = None) -> None: ...

    with pytest.raises(HookError, match="has no argument 'output'; did you mean 'outputs'"):
        runner_of(tmp_path / "other", custom_hooks=[NearMiss()])


def test_helpers_need_only_the_counters_that_they_read() -> None:
    fake: Any = SimpleNamespace(epoch=4, max_epochs=5, iter=9, max_iters=10)
    hook = Hook()
    assert (hook.is_last_train_epoch(fake), hook.is_last_train_iter(fake)) == (True, True)
    assert (hook.every_n_epochs(fake, 5), hook.every_n_train_iters(fake, 3)) == (True, False)
    assert hook.end_of_epoch([1, 2, 3], 2)
    fake.epoch = 3
    assert not hook.is_last_train_epoch(fake)
    assert hook.is_last_train_epoch(SimpleNamespace(train_loop=SimpleNamespace(by_epoch=False), epoch=0, max_epochs=9))
