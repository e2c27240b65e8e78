"""Methods of any kind are called at their points, and what would never be called is refused."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

from hookline.errors import HookError
from hookline.plan.hook import every, not_a_point
from hookline.plan.plan import Plan
from hookline.plan.sources import source_of
from hookline.runner.hook import Hook

SIGNATURE = "after_train_iter(runner, batch_idx, data_batch, outputs)"
seen: list[Any] = []


class Host:
    epoch = iter = 0
    data_batch = None


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


def note(self: Any, what: str, runner: Any, outputs: Any) -> None:
    seen.append((what, type(runner).__name__, outputs))


@every(2)
def now_and_then(self: Any, what: str, runner: Any) -> None:
    seen.append(what)


marked: Any = every(2)
helper: Any = not_a_point


class Notes:
    """An object that can be called."""

    def __call__(self, runner: Any, outputs: Any) -> None:
        note(self, "called", runner, outputs)


class Generates:
    def __call__(self, runner: Any) -> Iterator[None]:
        seen.append("entered")
        yield
        seen.append("left")


class Waits:
    async def __call__(self, runner: Any) -> None: ...


def hook_with(**attributes: Any) -> Hook:
    made: Hook = type("Mine", (Hook,), attributes)()
    return made


def call(hook: Any, times: int = 1) -> list[Any]:
    """Register a hook, call a point, and return what was seen."""
    host = Host()
    plan = Plan(host)
    plan.add(hook)
    for host.iter in range(times):
        plan.after_train_iter(0, None, "outputs")
    return seen


@pytest.mark.parametrize(
    "method",
    [
        functools.partialmethod(note, "called"),
        functools.partialmethod(lambda self, runner, outputs, what: note(self, what, runner, outputs), what="called"),
        functools.partialmethod(
            staticmethod(lambda what, runner, outputs: note(None, what, runner, outputs)),
            "called",
        ),
        functools.partialmethod(
            classmethod(lambda cls, what, runner, outputs: note(cls, what, runner, outputs)),
            "called",
        ),
        staticmethod(functools.partial(note, None, "called")),
        staticmethod(lambda runner, outputs: note(None, "called", runner, outputs)),
        classmethod(lambda cls, runner, outputs: note(cls, "called", runner, outputs)),
        lambda self, runner, outputs: note(self, "called", runner, outputs),
        Notes(),
    ],
)
def test_a_method_of_any_kind_is_called(method: Any) -> None:
    hook = hook_with(after_train_iter=method)
    assert call(hook) == [("called", "Host", "outputs")]
    assert hook.get_triggered_stages() == ["after_train_iter"]


def test_a_function_that_is_an_attribute_of_the_hook_itself_is_called() -> None:
    class Given(Hook):
        def __init__(self, function: Any) -> None:
            self.after_train_iter = function

    class InSlots(Hook):
        __slots__ = ("after_train_iter", "before_train_iter")

        def __init__(self, function: Any) -> None:
            self.after_train_iter = function  # and nothing in the other one

    for cls in (Given, InSlots):
        seen.clear()
        hook = cls(functools.partial(note, None, "called"))
        assert call(hook) == [("called", "Host", "outputs")]
        assert hook.get_triggered_stages() == ["after_train_iter"]


def test_a_hook_that_passes_calls_on_to_another_object_is_called() -> None:
    class Passes:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    assert call(Passes(hook_with(after_train_iter=Notes()))) == [("called", "Host", "outputs")]


@pytest.mark.parametrize(
    "method",
    [
        marked(functools.partialmethod(lambda self, what, runner: seen.append(what), "due")),
        functools.partialmethod(now_and_then, "due"),
        marked(staticmethod(lambda runner: seen.append("due"))),
        marked(classmethod(lambda cls, runner: seen.append("due"))),
    ],
)
def test_a_method_of_any_kind_keeps_its_frequency(method: Any) -> None:
    assert call(hook_with(after_train_iter=method), times=5) == ["due", "due"]


def test_a_scope_may_be_surrounded_by_a_partial_method_or_an_object() -> None:
    def around(self: Any, what: str, runner: Any) -> Iterator[None]:
        seen.append(what)
        yield
        seen.append("done")

    plan = Plan(Host())
    plan.add(hook_with(around_train_iter=functools.partialmethod(around, "begun")))
    plan.add(hook_with(around_train_iter=Generates()))
    with plan.around("train_iter", 0, None):
        seen.append("body")
    assert seen == ["begun", "entered", "body", "left", "done"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (property(lambda self: print), "property"),
        (functools.cached_property(lambda self: print), "cached_property"),
        (functools.singledispatchmethod(lambda self, runner: None), "singledispatchmethod"),
        (5, "int"),
    ],
)
def test_an_attribute_that_would_never_be_called_is_refused(value: Any, kind: str) -> None:
    class InItself(Hook):
        def __init__(self) -> None:
            self.after_train_iter = value

    hooks = [hook_with(after_train_iter=value)] + [InItself()] * (kind == "int")
    for hook in hooks:
        with pytest.raises(HookError) as refused:
            Plan(Host()).add(hook)
        assert str(refused.value) == (
            f"{type(hook).__name__}.after_train_iter must be a method, not an object of the type {kind}, which would "
            "never be called; write def after_train_iter(self, ...)"
        )


@pytest.mark.parametrize("method", [None, helper(functools.partialmethod(note, "called"))])
def test_none_and_a_helper_are_no_methods(method: Any) -> None:
    class Base(Hook):
        def after_train_iter(self, runner: Any) -> None:
            seen.append("of the base class")

    assert call(type("Mine", (Base,), {"after_train_iter": method})()) == []


@pytest.mark.parametrize(
    "method",
    [
        Generates(),
        Waits(),
        staticmethod(functools.partial(Generates())),
        functools.partialmethod(lambda self, what, runner: (yield), "what"),
    ],
)
def test_a_body_that_would_never_run_is_refused_in_a_method_of_any_kind(method: Any) -> None:
    hook = hook_with(after_train_iter=method)
    with pytest.raises(HookError) as refused:
        Plan(Host()).add(hook)
    assert str(refused.value) == (
        f"Mine.after_train_iter ({source_of(hook.after_train_iter)}): its body would never run, because it is a "  # type: ignore[attr-defined]
        "generator or a coroutine; write a plain method, or name a method with a yield around_<scope>"
    )


@pytest.mark.parametrize("kind", [functools.partialmethod, functools.singledispatchmethod])
def test_a_misspelled_point_is_refused_in_a_method_of_any_kind(kind: Any) -> None:
    def mine(self: Any, runner: Any) -> None: ...

    with pytest.raises(HookError) as refused:
        Plan(Host()).add(hook_with(after_train_itr=kind(mine)))
    assert str(refused.value) == (
        f"Mine.after_train_itr ({source_of(mine)}): unknown point 'after_train_itr'; did you mean 'after_train_iter'? "
        "If it is a helper, mark it with @not_a_point."
    )


def test_the_signature_of_a_partial_method_is_checked() -> None:
    def mine(self: Any, what: str, runner: Any, otputs: Any) -> None: ...

    with pytest.raises(HookError) as refused:
        Plan(Host()).add(hook_with(after_train_iter=functools.partialmethod(mine, "what")))
    assert str(refused.value) == (
        f"Mine.after_train_iter ({source_of(mine)}): {SIGNATURE} has no argument 'otputs'; did you mean 'outputs'?"
    )


def test_parameters_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(HookError) as refused:
        Plan(Host()).add(hook_with(after_train_iter=dict))
    assert str(refused.value) == (
        "Mine.after_train_iter (builtins.type, no source): its parameters cannot be read; call it from a method"
    )


# -- parameters with defaults


@pytest.mark.parametrize("open_plan", [False, True])
def test_a_parameter_that_the_point_does_not_provide_keeps_its_default(open_plan: bool) -> None:
    def mine(self: Any, runner: Any, outputs: Any, mode: str = "train", *, verbose: bool = False) -> None:
        seen.append((outputs, mode, verbose))

    def first(self: Any, runner: Any, mode: str = "train", /) -> None:
        seen.append(mode)

    def both(self: Any, runner: Any, outputs: Any, output: str = "own") -> None:
        seen.append((outputs, output))

    plan = Plan(Host(), open=open_plan)
    for method in (mine, first, both):
        plan.add(hook_with(after_train_iter=method))
    plan.after_train_iter(0, None, "outputs")
    assert seen == [("outputs", "train", False), "train", ("outputs", "own")]


@pytest.mark.parametrize("open_plan", [False, True])
def test_a_parameter_with_a_default_that_is_a_near_miss_is_refused(open_plan: bool) -> None:
    def mine(self: Any, runner: Any, output: Any = None) -> None: ...

    def second(self: Any, runner: Any, *, batch_index: int = 0) -> None: ...

    for method, wrong, right in ((mine, "output", "outputs"), (second, "batch_index", "batch_idx")):
        with pytest.raises(HookError) as refused:
            Plan(Host(), open=open_plan).add(hook_with(after_train_iter=method))
        assert str(refused.value) == (
            f"Mine.after_train_iter ({source_of(method)}): {SIGNATURE} has no argument '{wrong}'; "
            f"did you mean '{right}'?"
        )


def test_the_same_holds_for_functions_and_for_points_that_nobody_declared() -> None:
    def show(runner: Any, outputs: Any, mode: str = "train") -> None:
        seen.append((outputs, mode))

    def wrong(runner: Any, output: Any = None) -> None: ...

    plan = Plan(Host(), open=True)
    plan.on("after_train_iter", show)
    plan.after_train_iter(0, None, "outputs")
    with pytest.raises(HookError, match=r"has no argument 'output'; did you mean 'outputs'\?$"):
        plan.on("after_train_iter", wrong)
    plan.add(hook_with(after_render=lambda self, image, mode="train": seen.append((image, mode))))
    plan.call("after_render", {"image": 1})
    assert seen == [("outputs", "train"), (1, "train")]
    plan.add(hook_with(after_render=lambda self, images=None: None))
    with pytest.raises(
        HookError,
        match=r"^Mine#2\.after_render \(.*\): after_render\(runner, image\) has no argument 'images'; did you mean 'im",
    ):
        plan.call("after_render", {"image": 1})


def test_a_first_parameter_with_a_default_is_the_runner_only_by_its_name() -> None:
    plan = Plan(Host())
    for method in (
        lambda self, verbose=False: seen.append(verbose),
        lambda self, runner=None: seen.append(type(runner).__name__),
        lambda self, trainner=None: seen.append(type(trainner).__name__),
    ):
        plan.add(hook_with(after_train_iter=method))
    plan.after_train_iter(0, None, "outputs")
    assert seen == [False, "Host", "Host"]
    with pytest.raises(HookError, match=r"has no argument 'output'; did you mean 'outputs'\?$"):
        plan.add(hook_with(after_train_iter=lambda self, output=None: None))


def test_a_misspelled_point_that_a_hook_sets_as_its_own_attribute_is_refused() -> None:
    class Sets(Hook):
        def __init__(self) -> None:
            self.after_train_itr = lambda runner: None

    with pytest.raises(HookError) as refused:
        Plan(object()).add(Sets())
    line = Sets.__init__.__code__.co_firstlineno + 1
    assert str(refused.value) == (
        f"Sets.after_train_itr (tests/plan/test_methods.py:{line}): unknown point 'after_train_itr'; did you mean "
        "'after_train_iter'? If it is a helper, begin its name with an underscore."
    )


def test_other_callables_of_a_hook_are_its_own() -> None:
    class Sets(Hook):
        def __init__(self) -> None:
            self.on_done = print
            self.after_train_itr = "a text"
            self._after_train_itr = print

    Plan(object()).add(Sets())


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("state_per_ranks", "state_per_rank"), ("exchange", "exchanges"), ("steps_scheduler", "steps_schedulers")],
)
def test_a_misspelled_flag_of_a_hook_is_refused(wrong: str, right: str) -> None:
    with pytest.raises(HookError) as caught:
        Plan(object()).add(type("Mine", (Hook,), {wrong: True})())
    assert str(caught.value) == (
        f"Mine.{wrong}: hookline does not use this name, so it would do nothing; did you mean '{right}'? If it is a "
        "helper, mark it with @not_a_point."
    )


@pytest.mark.parametrize(
    ("argument", "meant"),
    [("batch", "data_batch"), ("data", "data_batch"), ("batch_index", "batch_idx"), ("output", "outputs")],
)
def test_an_argument_that_people_know_from_elsewhere_leads_to_the_one_here(argument: str, meant: str) -> None:
    names: dict[str, Any] = {}
    exec(f"def after_train_iter(self, runner, {argument}): pass", names)
    with pytest.raises(HookError, match=rf"has no argument '{argument}'; did you mean '{meant}'\?$"):
        Plan(object()).add(type("Mine", (Hook,), {"after_train_iter": names["after_train_iter"]})())
