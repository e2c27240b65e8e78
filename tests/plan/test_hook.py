from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest

from hookline import Hook, Priority, every, not_a_point
from hookline.errors import HookError
from hookline.plan.plan import Plan
from hookline.testing import toy_runner


@pytest.mark.parametrize(
    ("given", "number"),
    [("HIGHEST", 0), ("very_high", 10), ("Normal", 50), (Priority.LOW, 70), (0, 0), (55, 55), (100, 100)],
)
def test_a_priority_is_a_name_in_any_case_a_number_or_a_member(given: Any, number: int) -> None:
    assert Priority.parse(given) == number


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("VERY_LO", "unknown priority 'VERY_LO'; did you mean 'VERY_LOW'?"),
        ("heighest", "unknown priority 'heighest'; did you mean 'HIGHEST'?"),
        (
            "zzz",
            "unknown priority 'zzz'; available: HIGHEST, VERY_HIGH, HIGH, ABOVE_NORMAL, NORMAL, BELOW_NORMAL, LOW, "
            "VERY_LOW, LOWEST",
        ),
        (101, "the priority 101 is outside 0..100; 0 runs first, NORMAL is 50, LOWEST is 100"),
        (-1, "the priority -1 is outside 0..100; 0 runs first, NORMAL is 50, LOWEST is 100"),
        (True, "a priority must be a name like 'LOW' or an int from 0 to 100, not True"),
        (1.5, "a priority must be a name like 'LOW' or an int from 0 to 100, not 1.5"),
    ],
)
def test_a_priority_that_is_none_is_refused(given: Any, message: str) -> None:
    with pytest.raises(HookError) as refused:
        Priority.parse(given)
    assert str(refused.value) == message


@pytest.mark.parametrize("often", [0, -1, 1.5, True, "10", "ep", "0ep", "2 ep", None])
def test_a_frequency_that_is_none_is_refused(often: Any) -> None:
    with pytest.raises(
        HookError, match=f"every={often!r} is not a valid frequency; use a positive int, or epochs such as '2ep'"
    ):
        every(often)


def host(**counters: Any) -> Any:
    return SimpleNamespace(**counters)


def test_every_n_counts_from_start_like_mmengine() -> None:
    expected = [False, True, False, False, True, False, False, True, False]
    assert [Hook.every_n_epochs(host(epoch=epoch), 3, start=2) for epoch in range(9)] == expected
    assert [Hook.every_n_train_iters(host(iter=i), 3, start=2) for i in range(9)] == expected
    assert [Hook.every_n_epochs(host(epoch=epoch), 2) for epoch in range(4)] == [False, True, False, True]
    assert [Hook.every_n_inner_iters(i, 2) for i in range(4)] == [False, True, False, True]
    assert not Hook.every_n_epochs(host(epoch=0), 0)
    assert not Hook.every_n_train_iters(host(iter=0), -1)


def test_the_helpers_know_the_last_epoch_iteration_and_batch() -> None:
    assert [Hook.is_last_train_epoch(host(epoch=epoch, max_epochs=2)) for epoch in range(2)] == [False, True]
    assert Hook.is_last_train_epoch(host(epoch=0, max_epochs=None))
    assert [Hook.is_last_train_iter(host(iter=i, max_iters=2)) for i in range(2)] == [False, True]
    assert [Hook.end_of_epoch([1, 2], i) for i in range(2)] == [False, True]


def test_triggered_stages_are_the_points_of_a_hook_in_the_order_of_the_loop() -> None:
    class Some(Hook):
        def after_run(self) -> None: ...
        def before_train_iter(self) -> None: ...
        def before_run(self) -> None: ...

    assert Some().get_triggered_stages() == ["before_run", "before_train_iter", "after_run"]
    assert Hook().get_triggered_stages() == []


def test_a_hook_knows_its_runner_weakly_and_trainer_is_the_same() -> None:
    class Quiet(Hook): ...

    hook = Quiet()
    with pytest.raises(HookError, match="Quiet is not registered with a runner yet, so it has no self.runner"):
        _ = hook.runner
    runner = toy_runner(custom_hooks=[hook])
    assert hook.runner is runner
    assert hook.trainer is runner
    del runner
    gc.collect()
    with pytest.raises(HookError, match="Quiet has outlived its runner, so it has no self.runner"):
        _ = hook.trainer


def test_a_state_that_nobody_takes_back_is_refused() -> None:
    Hook().load_state_dict({})
    with pytest.raises(HookError, match="Hook was saved with a state, but has no load_state_dict to restore it"):
        Hook().load_state_dict({"best": 1})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("idle_point", "idle_points"),
        ("watch_metrics", "watched_metrics"),
        ("know_metric", "know_metrics"),
        ("checkpoint_folders", "checkpoint_folder"),
        ("state_dicts", "state_dict"),
        ("run_after", "runs_after"),
        ("prority", "priority"),
        ("on_eror", "on_error"),
        ("log_copiess", "log_copies"),
    ],
)
def test_a_near_miss_of_what_is_looked_up_in_a_hook_is_refused(name: str, meant: str) -> None:
    for value in (lambda self: None, ()):
        cls = type("Misspelled", (Hook,), {name: value})
        with pytest.raises(HookError) as refused:
            Plan(object()).add(cls())
        assert str(refused.value) == (
            f"Misspelled.{name}: hookline does not use this name, so it would do nothing; did you mean "
            f"'{meant}'? If it is a helper, mark it with @not_a_point."
        )
    helper = type("Helper", (Hook,), {name: not_a_point(lambda self: None)})
    Plan(object()).add(helper())
    Plan(object(), open=True).add(type("Elsewhere", (Hook,), {name: ()})())


@pytest.mark.parametrize("name", ["runner", "trainer"])
def test_a_hook_cannot_set_its_runner_itself(name: str) -> None:
    class Mine(Hook):
        def __init__(self) -> None:
            setattr(self, name, None)

    with pytest.raises(HookError) as caught:
        Mine()
    assert str(caught.value) == (
        "Mine: self.runner and self.trainer cannot be set: hookline sets both when the hook is registered; remove the "
        "line, or use another name"
    )
