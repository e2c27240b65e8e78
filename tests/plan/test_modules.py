"""Hooks that watch modules: when they are called, with which arguments, what they cost, and how they fail."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from hookline import Hook, Optim, Runner, every, on_module
from hookline.engine.steps import cross_entropy
from hookline.errors import HookError
from hookline.hooks import EMAHook
from hookline.plan.modules import Watch
from hookline.plan.plan import Plan
from hookline.state.before_validation import actors_inside
from hookline.testing import toy_model, toy_runner

if TYPE_CHECKING:
    from tests.clock import Clock

HERE = "tests/plan/test_modules.py"


def line_of(function: Any) -> str:
    return f"{HERE}:{inspect.unwrap(function).__code__.co_firstlineno}"


def forward_hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) for module in model.modules())


class Log(Hook):
    """Remembers what it sees."""

    def __init__(self) -> None:
        self.seen: list[Any] = []


class Both(Log):
    """Watches both passes of the linear layers every third iteration."""

    @on_module(["0", "2"], "forward", every=3)
    def forward_seen(self, runner: Runner, name: str, call: int, inputs: Any, outputs: Tensor) -> None:
        self.seen.append((runner.iter, "forward", name, call, tuple(inputs[0].shape), tuple(outputs.shape)))

    @on_module(["0", "2"], "backward", every=3)
    def backward_seen(self, runner: Runner, name: str, module: nn.Module, output: int, gradient: Tensor) -> None:
        self.seen.append((runner.iter, "backward", name, type(module).__name__, output, tuple(gradient.shape)))


def of_iteration(iteration: int) -> list[Any]:
    return [
        (iteration, "forward", "0", 0, (8, 4), (8, 8)),
        (iteration, "forward", "2", 0, (8, 8), (8, 2)),
        (iteration, "backward", "2", "Linear", 0, (8, 2)),
        (iteration, "backward", "0", "Linear", 0, (8, 8)),
    ]


# ------------------------------------------------------------------------------------------------ when


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("length", [{"max_epochs": 2}, {"max_iters": 8}])
def test_modules_are_seen_in_due_iterations_of_training_and_not_in_validations(
    accumulate: int, length: dict[str, int]
) -> None:
    hook = Both()
    runner = toy_runner(accumulate=accumulate, custom_hooks=[hook, EMAHook()], **length)  # type: ignore[arg-type]
    runner.train()
    runner.val()
    runner.test()
    assert runner.validations > 0
    assert hook.seen == [*of_iteration(2), *of_iteration(5)]


def test_torchs_hooks_are_only_there_while_the_step_computes_in_due_iterations() -> None:
    found: list[tuple[int, str, int]] = []

    class Look(Hook):
        def before_train_iter(self, runner: Runner) -> None:
            found.append((runner.iter, "before", forward_hooks(runner.model)))

        def before_backward(self, runner: Runner) -> None:
            found.append((runner.iter, "backward", forward_hooks(runner.model)))

    def step(model: nn.Module, batch: Any) -> Tensor:
        found.append((runner.iter, "step", forward_hooks(model)))
        return cross_entropy(model, batch)

    runner = toy_runner(max_epochs=1, step=step, custom_hooks=[Both(), Look()])
    runner.train()
    counts = {0: 0, 1: 0, 2: 4, 3: 0}
    assert found == [
        (number, *each)
        for number, count in counts.items()
        for each in (("before", 0), ("step", count), ("backward", 0))
    ]


def test_a_module_that_is_used_again_has_another_number_and_numbers_begin_again_in_every_iteration() -> None:
    class Again(Log):
        @on_module("1")
        def seen_again(self, runner: Runner, call: int) -> None:
            self.seen.append((runner.iter, call))

    model = toy_model()
    twice = nn.Sequential(model[0], nn.ReLU(), model[2])
    hook = Again()

    def step(net: nn.Module, batch: Any) -> Tensor:
        return cross_entropy(net, batch) + cross_entropy(net, batch)

    toy_runner(max_iters=2, model=twice, step=step, custom_hooks=[hook]).train()
    assert hook.seen == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_frequency_may_be_given_by_every_and_count_epochs() -> None:
    class Marked(Log):
        @on_module("0")
        @every(4)
        def marked(self, runner: Runner) -> None:
            self.seen.append(("marked", runner.iter))

        @on_module("0", "backward", every="2ep")
        def by_epoch(self, runner: Runner) -> None:
            self.seen.append(("by epoch", runner.iter))

    hook = Marked()
    toy_runner(max_epochs=4, batches=3, custom_hooks=[hook]).train()
    assert hook.seen == [
        *(("marked", 3), ("by epoch", 5), ("marked", 7)),
        *(("marked", 11), ("by epoch", 11)),
    ]


def test_forward_passes_of_hooks_are_not_seen() -> None:
    class Calls(Hook):
        def before_train_iter(self, runner: Runner, data_batch: Any) -> None:
            runner.model(data_batch[0])

        def after_train_iter(self, runner: Runner, data_batch: Any) -> None:
            runner.model(data_batch[0])

    hook = Both()
    toy_runner(max_iters=3, custom_hooks=[hook, Calls()]).train()
    assert hook.seen == of_iteration(2)


@pytest.mark.parametrize("in_step", [True, False])
@pytest.mark.parametrize("often", [1, 2])
def test_a_gradient_of_an_earlier_iteration_is_not_seen_in_a_later_one(often: int, in_step: bool) -> None:
    class Gradients(Log):
        @on_module("0", "backward", every=often)
        def flow(self, runner: Runner, call: int) -> None:
            self.seen.append((runner.iter, call))

    kept: list[Tensor] = []

    def use_kept(model: nn.Module) -> None:
        if kept:
            torch.autograd.grad(kept.pop(), list(model.parameters()))

    def step(model: nn.Module, batch: Any) -> Tensor:
        if in_step:
            use_kept(model)
        kept.append(cross_entropy(model, batch))
        return cross_entropy(model, batch)

    hook = Gradients()
    runner = toy_runner(max_iters=4, model=nn.Sequential(nn.Linear(4, 2)), step=step, custom_hooks=[hook])
    if not in_step:
        runner.on("before_train_iter")(lambda runner: use_kept(runner.model))
    runner.train()
    assert hook.seen == [(iteration, 1) for iteration in range(4) if (iteration + 1) % often == 0]


def test_a_step_that_updates_itself_is_watched() -> None:
    hook = Both()

    def step(model: nn.Module, batch: Any, optim: Optim) -> dict[str, Tensor]:
        loss = cross_entropy(model, batch)
        optim.update(loss)
        return {"loss": loss}

    toy_runner(max_iters=3, step=step, custom_hooks=[hook]).train()
    assert hook.seen == of_iteration(2)


def test_a_resumed_run_sees_the_same_iterations(tmp_path: Path) -> None:
    hook = Both()
    toy_runner(max_epochs=1, work_dir=tmp_path, custom_hooks=[hook]).train()
    again = Both()
    toy_runner(max_epochs=2, work_dir=tmp_path, resume=True, custom_hooks=[again]).train()
    assert (hook.seen, again.seen) == (of_iteration(2), of_iteration(5))


def test_a_hook_that_is_added_or_removed_during_training_begins_and_ends_there() -> None:
    class Every(Log):
        @on_module("0")
        def seen_it(self, runner: Runner) -> None:
            self.seen.append(runner.iter)

    first, second = Every(), Every()
    runner = toy_runner(max_epochs=2, custom_hooks=[first])

    @runner.on("after_train_iter")
    def change(runner: Runner) -> None:
        if runner.iter == 2:
            runner.remove_hook(first)
            runner.register_hook(second)

    runner.train()
    assert (first.seen, second.seen) == ([0, 1, 2], [3, 4, 5, 6, 7])


# ------------------------------------------------------------------------------------------------ declarations


def test_a_hook_may_return_watches_that_depend_on_its_parameters() -> None:
    class Given(Log):
        def __init__(self, names: list[str], interval: int) -> None:
            super().__init__()
            self.names, self.interval = names, interval

        def watches(self) -> Iterable[Watch]:
            return [Watch(self.names, "forward", self._see, self.interval)]

        def _see(self, name: Any, runner: Runner) -> None:
            raise AssertionError("the first parameter would be the runner")

    with pytest.raises(HookError, match="its first parameter receives the runner, but 'name' is an argument"):
        toy_runner(custom_hooks=[Given(["0"], 2)])

    class Right(Given):
        def _see(self, runner: Runner, name: Any) -> None:  # type: ignore[override]  # it is the other way round above
            self.seen.append((runner.iter, name))

    hook = Right(["0", "1"], 2)
    toy_runner(max_iters=4, custom_hooks=[hook]).train()
    assert hook.seen == [(1, "0"), (1, "1"), (3, "0"), (3, "1")]


def test_one_method_may_watch_both_passes() -> None:
    class Two(Log):
        @on_module("0", "forward")
        @on_module("2", "backward")
        def see(self, runner: Any, name: str, **given: Any) -> None:
            self.seen.append((name, sorted(given)))

    hook = Two()
    toy_runner(max_iters=1, custom_hooks=[hook]).train()
    assert hook.seen == [
        ("0", ["call", "inputs", "module", "named_inputs", "outputs"]),
        ("2", ["call", "gradient", "module", "output"]),
    ]


def test_an_argument_of_the_other_pass_is_refused_at_registration() -> None:
    class Wrong(Hook):
        @on_module("0", "backward")
        def see(self, runner: Any, outputs: Any) -> None:
            """Take an argument that a backward pass does not have."""

    with pytest.raises(HookError) as refused:
        toy_runner(custom_hooks=[Wrong()])
    assert str(refused.value) == (
        f"Wrong.see ({line_of(Wrong.see)}): see(runner, name, module, call, output, gradient) has no argument "
        "'outputs'; did you mean 'output'?"
    )


def test_a_method_with_the_name_of_a_point_cannot_watch_modules() -> None:
    class Wrong(Hook):
        @on_module("0")
        def after_train_iter(self, runner: Any) -> None:
            """Have the name of a point."""

    with pytest.raises(HookError) as refused:
        toy_runner(custom_hooks=[Wrong()])
    assert str(refused.value) == (
        f"Wrong.after_train_iter ({line_of(Wrong.after_train_iter)}): this is the name of a point, so it cannot watch "
        "modules; give the method another name"
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ("0", "forwards"),
            "modules are watched in the 'forward' or the 'backward' pass, not 'forwards'; did you mean",
        ),
        ((3,), "modules are selected by a pattern such as 'layers.*', or several in a list, not 3"),
        (([],), r"modules are selected by a pattern such as 'layers.*', or several in a list, not []"),
        (("0", "forward", 0), "every=0 is not a valid frequency; use a positive int, or epochs such as '2ep'"),
    ],
)
def test_a_wrong_declaration_is_refused_where_it_is_written(given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(HookError) as refused:
        on_module(*given)
    assert str(refused.value).startswith(message)


def test_a_pattern_without_a_module_is_refused_before_training_with_the_nearest_name(tmp_path: Path) -> None:
    class Wrong(Hook):
        @on_module(["0", "layer1"], every=5)
        def see(self, runner: Any) -> None:
            """Watch a module that does not exist."""

    model = nn.Sequential()
    for number, module in enumerate(toy_model()):
        model.add_module(f"layer_{number}", module)
    runner = toy_runner(model=model, work_dir=tmp_path, custom_hooks=[Wrong()])
    with pytest.raises(HookError) as refused:
        runner.train()
    assert str(refused.value) == (
        f"Wrong.see ({line_of(Wrong.see)}): '0' matches no module of the model; available: layer_0, layer_1, layer_2"
    )
    assert runner.iter == 0


def test_a_compiled_model_is_refused_before_training() -> None:
    runner = toy_runner(compile={"backend": "eager"}, custom_hooks=[Both()])
    with pytest.raises(HookError) as refused:
        runner.train()
    assert str(refused.value) == (
        f"Both.backward_seen ({line_of(Both.backward_seen)}): the module '0' is compiled, and compiled code does not "
        "call modules one by one, so it cannot be watched; train without compile, or watch modules outside the "
        "compiled part"
    )


def test_a_loop_without_a_forward_pass_refuses_a_watch() -> None:
    with pytest.raises(HookError) as refused:
        Plan(object(), table={}, scopes={}).add(Both())
    assert str(refused.value) == (
        f"Both.backward_seen ({line_of(Both.backward_seen)}): modules cannot be watched here, because this loop has no "
        "scope 'forward'"
    )


def test_a_module_that_is_never_called_is_reported_once() -> None:
    class Unused(Hook):
        @on_module(["0.inner", "0"], every=2)
        def see(self, runner: Any) -> None:
            """Watch a module that the model does not call."""

    model = toy_model()
    model[0].register_module("inner", nn.ReLU())
    runner = toy_runner(model=model, max_epochs=2, custom_hooks=[Unused()])
    runner.train()
    log = (runner.work_dir / "run.log").read_text()
    assert log.count("no module that matches") == 1
    assert (
        f"Unused.see ({line_of(Unused.see)}): no module that matches '0.inner' was called in the forward pass of "
        "iteration 2, so nothing is seen; a parent may use its weights without calling it: watch the parent" in log
    )


def test_a_watch_that_is_never_due_is_reported_before_training() -> None:
    class Late(Hook):
        @on_module("0", every=50)
        def see(self, runner: Any) -> None:
            """Watch too rarely."""

    runner = toy_runner(custom_hooks=[Late()])
    runner.train()
    log = (runner.work_dir / "run.log").read_text()
    assert "Late.see is never called: every=50, but this run has 8 iterations; use every=8 or less" in log


def test_the_plan_shows_the_watches() -> None:
    shown = toy_runner(custom_hooks=[Both()], default_hooks=None).plan.explain()
    assert shown.splitlines()[-2:] == [
        "Both.backward_seen watches modules in the backward pass: 0, 2 (every 3 iterations)",
        "Both.forward_seen watches modules in the forward pass: 0, 2 (every 3 iterations)",
    ]


# ------------------------------------------------------------------------------------------------ failures


class FailsError(Exception):
    """The error of the hooks below."""


class Fails(Hook):
    """Fails in the second iteration."""

    role = "observer"

    def __init__(self) -> None:
        self.calls = 0

    @on_module("*", "forward")
    def see(self, runner: Runner) -> None:
        if runner.iter == 1:
            self.calls += 1
            raise FailsError


class FailsBackward(Hook):
    """Fails in the backward pass."""

    @on_module("", "backward", every=2)
    def see(self, runner: Runner) -> None:
        raise FailsError


@pytest.mark.parametrize(
    ("kind", "note"),
    [
        (Fails, "in hook Fails, at the forward pass of module '0' (Linear, call 0), epoch=0 iter=1 rank=0 ({})"),
        (
            FailsBackward,
            "in hook FailsBackward, at the backward pass of the model (Sequential, call 0), epoch=0 iter=1 rank=0 ({})",
        ),
    ],
)
def test_an_error_has_one_note_with_hook_pass_module_and_counters(kind: Any, note: str) -> None:
    runner = toy_runner(custom_hooks=[kind()])
    with pytest.raises(FailsError) as failed:
        runner.train()
    assert failed.value.__notes__ == [note.format(line_of(kind.see))]
    assert forward_hooks(runner.model) == 0


def test_an_observer_that_fails_is_left_out_and_called_no_more() -> None:
    hook, plain = Fails(), toy_runner()
    runner = toy_runner()
    runner.register_hook(hook, on_error="disable")
    runner.train()
    plain.train()
    assert (runner.iter, hook.calls, forward_hooks(runner.model)) == (8, 1, 0)
    assert "Fails failed; the run continues without it" in (runner.work_dir / "run.log").read_text()
    weights = plain.model.state_dict()
    assert all(value.equal(weights[name]) for name, value in runner.model.state_dict().items())


def test_a_failing_step_leaves_nothing_behind() -> None:
    def step(model: nn.Module, batch: Any) -> Tensor:
        cross_entropy(model, batch)
        raise FailsError

    runner = toy_runner(step=step, custom_hooks=[Fails()])
    with pytest.raises(FailsError) as failed:
        runner.train()
    assert failed.value.__notes__ == ["in the step, epoch=0 iter=0 rank=0"]
    assert forward_hooks(runner.model) == 0


def test_a_stop_names_the_hook_that_watches() -> None:
    class Stops(Hook):
        @on_module("0", "backward")
        def see(self, runner: Runner) -> None:
            runner.stop("enough")

    runner = toy_runner(custom_hooks=[Stops()])
    runner.train()
    assert (runner.iter, runner.stopped.by, runner.stopped.reason) == (1, "Stops", "enough")


# ------------------------------------------------------------------------------------------------ costs


def test_the_costs_of_a_watch_are_in_the_ledger_and_not_in_the_forward_pass(clock: Clock) -> None:
    class Slow(Hook):
        @on_module("*", "forward", every=2)
        def see(self, runner: Runner) -> None:
            clock.now += 1.0

        @on_module("0", "backward")
        def flow(self, runner: Runner) -> None:
            clock.now += 0.25

    runner = toy_runner(max_epochs=2, custom_hooks=[Slow()], val=None)
    runner.train()
    totals = runner.plan.ledger.totals()["Slow"]
    assert {point: (total.calls, total.seconds) for point, total in totals.items()} == {
        "around_train_forward": (12, 0.0),
        "module_forward": (12, 12.0),
        "module_backward": (8, 2.0),
    }
    parts = runner.plan.ledger.parts_total()
    assert (parts["forward"].seconds, parts["backward"].seconds) == (0.0, 0.0)


def test_a_watch_over_its_budget_is_named(clock: Clock) -> None:
    class Slow(Hook):
        budget = 0.1

        @on_module("0", every=2)
        def see(self, runner: Runner) -> None:
            clock.now += 1.0

    runner = toy_runner(max_epochs=2, custom_hooks=[Slow()], val=None)
    runner.train()
    assert (
        "Slow takes 100.0% of the training time, most of it at module_forward; its budget is 10%. Give it a larger "
        "interval, such as @every(20) at module_forward, or a larger budget."
        in (runner.work_dir / "run.log").read_text()
    )


def test_random_numbers_that_an_observer_draws_change_nothing() -> None:
    class Draws(Hook):
        role = "observer"

        @on_module("*", "forward")
        def see(self, runner: Runner) -> None:
            torch.rand(3)

    def trained(*hooks: Hook) -> dict[str, Tensor]:
        runner = toy_runner(model=nn.Sequential(*toy_model(), nn.Dropout(0.5)), custom_hooks=list(hooks))
        runner.train()
        return runner.model.state_dict()

    plain, watched = trained(), trained(Draws())
    assert all(value.equal(plain[name]) for name, value in watched.items())


def test_a_validation_can_be_left_although_an_actor_watches() -> None:
    runner = toy_runner(custom_hooks=[Both()])
    assert actors_inside(runner._host) == []
