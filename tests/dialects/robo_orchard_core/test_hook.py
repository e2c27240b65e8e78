"""Hooks with a before and an after, their channels, and their text form."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from hookline.dialects.robo_orchard_core.utils.hook import (
    FunctionInfo,
    HookContext,
    HookContextChannel,
    HookContextFromCallable,
    HookHandler,
    RemoveableHandle,
)
from hookline.errors import HookError

HERE = os.path.relpath(__file__)


@pytest.fixture
def args() -> Any:
    return SimpleNamespace(exception=None, epoch_id=2, global_step_id=7, seen=[])


class Records(HookContext[Any]):
    def before(self, arg: Any) -> None:
        arg.seen.append(f"enter {self.name}")

    def after(self, arg: Any) -> None:
        arg.seen.append(f"leave {self.name}" + (f" after {arg.exception}" if arg.exception else ""))


def fails(arg: Any) -> None:
    raise ValueError("no")


def line_of(function: Any) -> str:
    return f"{HERE}:{function.__code__.co_firstlineno}"


# -- a hook


class ByOtherNames(HookContext[Any]):
    def on_enter(self, arg: Any) -> None:
        arg.seen.append("on_enter")

    def on_exit(self, arg: Any) -> None:
        arg.seen.append("on_exit")


class AndMore(ByOtherNames):
    def before(self, arg: Any) -> None:
        super().on_enter(arg)
        arg.seen.append("and more")


@pytest.mark.parametrize(
    ("cls", "seen"),
    [
        (ByOtherNames, ["on_enter", "work", "on_exit"]),
        (AndMore, ["on_enter", "and more", "work", "on_exit"]),
    ],
)
def test_on_enter_and_on_exit_are_other_names_of_before_and_after(cls: Any, seen: list[str], args: Any) -> None:
    hook = cls()
    with hook.begin(args) as given:
        given.seen.append("work")
    assert args.seen == seen
    again = SimpleNamespace(seen=[])
    hook.before(again)
    hook.on_enter(again)
    hook.after(again)
    hook.on_exit(again)
    assert again.seen == [*seen[:-2], *seen[:-2], "on_exit", "on_exit"]


def test_a_class_with_both_names_of_a_method_is_refused() -> None:
    with pytest.raises(TypeError, match="^Both has both before and on_enter, which mean the same; keep one$"):

        class Both(HookContext[Any]):
            def before(self, arg: Any) -> None: ...

            def on_enter(self, arg: Any) -> None: ...


def test_a_hook_without_an_after_cannot_be_made() -> None:
    class Half(HookContext[Any]):
        def before(self, arg: Any) -> None: ...

    with pytest.raises(TypeError, match="abstract"):
        Half()  # type: ignore[abstract]


def test_a_hook_alone_surrounds_work_and_sees_its_failure(args: Any) -> None:
    with pytest.raises(KeyError), Records("a").begin(args):
        raise KeyError("lost")
    assert args.seen == ["enter a", "leave a after 'lost'"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"name": fails},
            r"^the first argument of from_callable must be a name, not <FunctionInfo function fails from .*",
        ),
        ({"before": 3}, "^before must be a function that takes the hook's argument, not 3$"),
        ({"after": lambda: None}, r"^after=<FunctionInfo .*> is called with one argument, but takes \(\)$"),
    ],
)
def test_from_callable_refuses_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message) as caught:
        HookContext.from_callable(**arguments)
    assert isinstance(caught.value, HookError)


def test_a_generator_is_refused_because_its_body_would_never_run() -> None:
    def body(arg: Any) -> Iterator[None]:
        yield

    with pytest.raises(TypeError, match="would never run, because it is a generator or a coroutine$"):
        HookContext.from_callable(before=body)


# -- a channel


def test_afters_run_in_registration_order(args: Any) -> None:
    channel = HookContextChannel[Any]("on_step")
    for name in "abc":
        channel.register(Records(name))
    with channel.begin(args) as given:
        assert given is args
        args.seen.append("work")
    assert args.seen == ["enter a", "enter b", "enter c", "work", "leave a", "leave b", "leave c"]


def test_a_failing_body_is_seen_by_all_and_propagates(args: Any) -> None:
    channel = HookContextChannel[Any]("on_step")
    channel += Records("a")
    channel += Records("b")
    with pytest.raises(ValueError, match="^no$"), channel.begin(args):
        fails(args)
    assert args.seen == ["enter a", "enter b", "leave a after no", "leave b after no"]


def test_a_failing_before_leaves_only_what_was_entered(args: Any) -> None:
    channel = HookContextChannel[Any]("on_step")
    channel.register(Records("a"))
    channel.register(HookContext.from_callable("strict", before=fails, after=lambda arg: arg.seen.append("never")))
    channel.register(Records("c"))
    with pytest.raises(ValueError, match="^no") as caught, channel.begin(args):
        args.seen.append("work")
    assert args.seen == ["enter a", "leave a after no"]
    (note,) = caught.value.__notes__
    assert re.fullmatch(rf"in hook strict, at on_step, epoch=2 iter=7 rank=0 \(.*{line_of(fails)}\)", note)


class Half(HookContext[Any]):
    """Fails on one side, or on both."""

    def __init__(self, *sides: str, name: str | None = None) -> None:
        super().__init__(name)
        self.sides = sides

    def before(self, arg: Any) -> None:
        if "before" in self.sides:
            raise ValueError("before")

    def after(self, arg: Any) -> None:
        if "after" in self.sides:
            raise ValueError("after")

    def __call__(self, arg: Any) -> None:
        raise ValueError("__call__")


class OwnBegin(Half):
    @contextmanager
    def begin(self, arg: Any) -> Iterator[Any]:
        yield arg
        raise ValueError("begin")


OWN_BEGIN = line_of(inspect.unwrap(OwnBegin.begin))


@pytest.mark.parametrize(
    ("hook", "name", "line"),
    [
        (Half("before"), "Half.before", line_of(Half.before)),
        (Half("after"), "Half.after", line_of(Half.after)),
        (Half("after", name="strict"), "strict", line_of(Half.after)),
        (HookContext.from_callable(before=len, after=Half("after").after), "Half.after", line_of(Half.after)),
        (HookContext.from_callable(before=len, after=fails), "fails", line_of(fails)),
        (HookContext.from_callable(before=functools.partial(fails)), "fails", line_of(fails)),
        (HookContext.from_callable(after=Half()), "Half", line_of(Half.__call__)),
        (OwnBegin(), "OwnBegin.begin", OWN_BEGIN),
    ],
    ids=["before", "after", "named", "method", "function", "partial", "object", "begin"],
)
def test_the_side_that_failed_is_named_with_its_own_line(hook: Any, name: str, line: str) -> None:
    channel = HookContextChannel[Any]("on_step")
    channel.register(hook)
    with pytest.raises(ValueError) as caught, channel.begin([]):  # noqa: PT011  # the note is checked below
        pass
    assert caught.value.__notes__ == [f"in hook {name}, at on_step, epoch=0 iter=0 rank=0 ({line})"]


@dataclass(frozen=True)
class Frozen:
    exception: Any = None


class ReadOnly:
    @property
    def exception(self) -> Any:
        return None


class Unasked:
    @property
    def exception(self) -> Any:
        raise RuntimeError("do not ask")

    accelerator = epoch_id = exception


@pytest.mark.parametrize(
    "arg",
    [
        SimpleNamespace(epoch_id=None),
        SimpleNamespace(epoch_id="train/3", global_step_id=object(), accelerator=3),
        Frozen(),
        ReadOnly(),
        Unasked(),
    ],
    ids=["no number", "text", "frozen", "read only", "fails"],
)
@pytest.mark.parametrize("kind", [Half, OwnBegin])
def test_an_argument_that_takes_no_exception_does_not_stop_the_afters(arg: Any, kind: type[Half]) -> None:
    channel, seen = HookContextChannel[Any]("on_step"), list[Any]()
    channel.register(kind())
    channel.register(HookContext.from_callable(after=seen.append))
    with pytest.raises(KeyError) as caught, channel.begin(arg):
        raise KeyError("body")
    assert (seen, hasattr(caught.value, "__notes__")) == ([arg], False)
    channel.register(Half("before"))
    with pytest.raises(ValueError, match="^before") as failed, channel.begin(arg):
        pass
    assert seen == [arg, arg]
    assert " epoch=0 iter=0 rank=0 " in failed.value.__notes__[0]


def test_a_method_called_exception_stays_what_it_is() -> None:
    channel, future = HookContextChannel[Any]("on_step"), Future[int]()
    channel.register(Half())
    future.set_result(3)
    with pytest.raises(KeyError), channel.begin(future):
        raise KeyError("body")
    assert future.exception() is None


def test_a_failing_after_is_named_beside_the_first_error() -> None:
    channel = HookContextChannel[Any]("on_step")
    channel.register(Half("after"))
    with pytest.raises(KeyError) as caught, channel.begin([]):
        raise KeyError("body")
    assert caught.value.__notes__ == ["while leaving the scope, Half.after raised ValueError: after"]


def test_a_side_that_a_subclass_does_not_override_is_the_function_itself(args: Any) -> None:
    class More(HookContextFromCallable[Any]):
        def after(self, arg: Any) -> None:
            arg.seen.append("more")
            super().after(arg)

    channel = HookContextChannel[Any]("on_step")
    hook = More(before=fails, after=Records("own").after)
    assert hook.functions() == (fails, hook.after)
    channel.register(More(after=Records("own").after))
    with channel.begin(args):
        args.seen.append("work")
    assert args.seen == ["work", "more", "leave own"]


def test_a_failing_after_neither_stops_the_others_nor_hides_the_first_error(args: Any) -> None:
    channel = HookContextChannel[Any]("on_step")
    channel.register(HookContext.from_callable(after=fails))
    channel.register(Records("b"))
    with pytest.raises(KeyError) as caught, channel.begin(args):
        raise KeyError("body")
    assert args.seen == ["enter b", "leave b after 'body'"]
    assert caught.value.__notes__[-1] == "while leaving the scope, fails raised ValueError: no"
    args.seen.clear()
    args.exception = None
    with pytest.raises(ValueError, match="^no"), channel.begin(args):
        pass
    assert args.seen == ["enter b", "leave b after no"]


def test_hooks_may_be_added_and_removed_during_a_pass(args: Any) -> None:
    channel = HookContextChannel[Any]("on_step")
    late = Records("late")

    def swap(arg: Any) -> None:
        arg.seen.append("swap")
        channel.register(late)
        handle.remove()

    handle = channel.register(HookContext.from_callable(before=swap))
    channel.register(Records("b"))
    with channel.begin(args):
        pass
    assert args.seen == ["swap", "enter b", "leave b"]
    args.seen.clear()
    with channel.begin(args):
        pass
    assert args.seen == ["enter b", "enter late", "leave b", "leave late"]


@pytest.mark.parametrize("take_out", [RemoveableHandle.remove, RemoveableHandle.__call__, RemoveableHandle.__exit__])
def test_a_handle_takes_its_hook_out(take_out: Any) -> None:
    channel = HookContextChannel[Any]("on_step")
    kept, gone = Records("kept"), Records("gone")
    channel.register(kept)
    handle = channel.register(gone)
    assert len(channel) == 2
    take_out(handle)
    take_out(handle)
    assert list(channel) == [kept]
    assert channel[0] is kept


def test_the_same_hook_is_registered_once_and_equal_ones_are_two() -> None:
    class Equal(Records):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    channel = HookContextChannel[Any]("on_step")
    one, other = Equal("one"), Equal("other")
    for hook in (one, one, other):
        channel.register(hook)
    assert [hook.name for hook in channel] == ["one", "other"]
    channel.unregister_all()
    assert len(channel) == 0


def test_channels_are_added_when_their_names_match() -> None:
    channel, same, other = (HookContextChannel[Any](name) for name in ("on_step", "on_step", "on_epoch"))
    hook = Records("a")
    same.register(hook)
    handle = channel.register_hook_channel(same)
    assert list(channel) == [hook]
    handle.remove()
    assert (len(channel), len(same)) == (0, 1)
    channel += same
    assert list(channel) == [hook]
    with pytest.raises(
        ValueError, match="^the channel 'on_epoch' cannot be added to the channel 'on_step': the names must match$"
    ):
        channel.register_hook_channel(other)
    with pytest.raises(
        TypeError, match="^only a HookContext or a HookContextChannel can be added to the channel 'on_step', not a str$"
    ):
        channel += "a"  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="^the channel 'on_step' takes a HookContext, not a str: 'a'$"):
        channel.register("a")  # type: ignore[arg-type]


def test_added_and_removed_hooks_are_passed_on_to_the_channels_that_contain_them() -> None:
    first, middle, last = (HookContextChannel[Any]("on_step") for _ in range(3))
    early, late, alone = Records("early"), Records("late"), Records("alone")
    of_early = first.register(early)
    middle += first
    last.register(alone)
    parting = last.register_hook_channel(middle)
    del middle  # the last channel keeps it alive
    first.register(late)
    assert list(last) == [alone, early, late]
    of_early.remove()
    assert (list(first), list(last)) == ([late], [alone, late])
    parting.remove()
    first.register(early)
    assert (list(first), list(last)) == ([late, early], [alone])


def test_a_channel_that_was_emptied_gets_nothing_more_and_one_that_empties_itself_still_gives() -> None:
    source, taker = (HookContextChannel[Any]("on_step") for _ in range(2))
    one, other = Records("one"), Records("other")
    source.register(one)
    handle = taker.register_hook_channel(source)
    source.unregister_all()
    assert (list(source), list(taker)) == ([], [])
    source.register(other)
    assert list(taker) == [other]
    taker.unregister_all()
    source.register(one)
    handle.remove()
    assert (list(source), list(taker)) == ([other, one], [])


def test_a_handle_takes_back_its_own_registration_only() -> None:
    channel, source, hook = HookContextChannel[Any]("on_step"), HookContextChannel[Any]("on_step"), Records("a")
    of_source = source.register(hook)
    handles = [channel.register(hook), channel.register(hook), channel.register_hook_channel(source)]
    for handle in handles[1::-1]:
        handle.remove()
        handle.remove()
        assert list(channel) == [hook]
    of_source.remove()
    assert list(channel) == []


def test_a_channel_cannot_be_added_to_itself() -> None:
    channel, other = HookContextChannel[Any]("on_step"), HookContextChannel[Any]("on_step")
    other += channel
    for inside in (channel, other):
        with pytest.raises(ValueError, match="^the channel 'on_step' cannot be added to itself, or to a channel tha"):
            channel += inside


def test_a_custom_begin_is_used(args: Any) -> None:
    class Own(Records):
        @contextmanager
        def begin(self, arg: Any) -> Iterator[Any]:
            arg.seen.append("own begin")
            with super().begin(arg):
                yield arg
            arg.seen.append("own end")

    channel = HookContextChannel[Any]("any name at all")
    channel.register(Own("o"))
    with channel.begin(args):
        args.seen.append("work")
    assert args.seen == ["own begin", "enter o", "work", "leave o", "own end"]


def test_any_argument_will_do() -> None:
    channel, seen = HookContextChannel[int]("on_step"), list[int]()
    channel.register(HookContext.from_callable(before=seen.append, after=seen.append))
    with pytest.raises(ZeroDivisionError), channel.begin(5) as given:
        given / 0
    assert seen == [5, 5]


# -- as text


def test_a_channel_is_shown_as_a_tree() -> None:
    channel = HookContextChannel[Any]("on_step")
    assert repr(channel) == ("<robo_orchard_core.utils.hook.HookContextChannel(\n  name=on_step, \n  hooks=[])>")
    own = Records("own")
    channel.register(HookContext.from_callable(after=fails))
    channel.register(own)
    method = f"<FunctionInfo bound method Records(id={id(own)})"
    assert repr(channel) == (
        "<robo_orchard_core.utils.hook.HookContextChannel(\n"
        "  name=on_step, \n"
        "  hooks=[\n"
        "    0: <robo_orchard_core.utils.hook.HookContextFromCallable(\n"
        "      name=None, \n"
        "      before=None, \n"
        f"      after=<FunctionInfo function fails from {line_of(fails)}>)>,\n"
        f"    1: <{__name__}.Records(\n"
        "      name=own, \n"
        f"      before={method}.before from {line_of(Records.before)}>, \n"
        f"      after={method}.after from {line_of(Records.after)}>)>\n"
        "  ])>"
    )


class Odd:
    """A callable that fails whenever it is inspected."""

    def __call__(self, arg: Any) -> None: ...

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("do not ask")

    def __repr__(self) -> str:
        raise RuntimeError("do not ask")


def of_no_file() -> Any:
    names: dict[str, Any] = {}
    exec("def f(arg): ...", names)
    return names["f"]


class Shout:
    def __call__(self, arg: Any) -> None: ...

    @classmethod
    def of_class(cls, arg: Any) -> None: ...


OF_CLASS = line_of(vars(Shout)["of_class"].__func__)


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        (print, "<FunctionInfo built-in print from builtins>"),
        ([].append, "<FunctionInfo built-in list.append from builtins>"),
        (dict, "<FunctionInfo class dict from builtins>"),
        (functools.partial(fails), f"<FunctionInfo partial of function fails from {line_of(fails)}>"),
        (functools.cache(fails), f"<FunctionInfo function fails from {line_of(fails)}>"),
        (staticmethod(fails), f"<FunctionInfo function fails from {line_of(fails)}>"),
        (of_no_file(), "<FunctionInfo function f from <string>:1>"),
        (
            Shout.of_class,
            f"<FunctionInfo class method Shout.of_class from {OF_CLASS}>",
        ),
        (Odd(), "<FunctionInfo Odd object from an unknown place>"),
        (str.upper, "<FunctionInfo built-in str.upper from builtins>"),
    ],
    ids=[
        "built-in",
        "method of a list",
        "class",
        "partial",
        "cached",
        "static",
        "of no file",
        "class method",
        "odd",
        "descriptor",
    ],
)
def test_a_tree_never_fails_whatever_callable_is_in_it(function: Any, shown: str) -> None:
    channel = HookContextChannel[Any]("on_step")
    channel.register(HookContext.from_callable(before=function))
    assert repr(FunctionInfo(function)) == shown.format(id=id(function))
    assert f"before={shown.format(id=id(function))}, \n" in repr(channel)


def test_mocks_lambdas_and_callable_objects_are_shown_too() -> None:
    channel, shout = HookContextChannel[Any]("on_step"), Shout()
    channel.register(HookContext.from_callable(before=mock.MagicMock(), after=lambda arg: None))
    channel.register(HookContext.from_callable(before=shout))
    tree = repr(channel)
    assert "object MagicMock(id=" in tree
    assert ".<lambda> from " in tree
    assert f"<FunctionInfo object Shout(id={id(shout)}) from {line_of(Shout.__call__)}>" in tree


def test_a_hook_that_cannot_be_shown_is_shown_as_its_class() -> None:
    class Silent(Records):
        def __repr__(self) -> str:
            raise RuntimeError("do not ask")

    channel, silent = HookContextChannel[Any]("on_step"), Silent()
    channel.register(silent)
    assert f"0: <{__name__}.Silent(id={id(silent)})>" in repr(channel)


def test_the_module_is_shown_where_files_are_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROBO_ORCHARD_NO_SOURCE_FILE", "1")
    assert repr(FunctionInfo.from_callable(fails)) == f"<FunctionInfo function fails from {__name__}>"


def test_the_parts_of_a_hook_can_be_asked_for() -> None:
    hook = HookContextFromCallable[Any](before=fails)
    assert (repr(hook.before_info), hook.after_info) == (f"<FunctionInfo function fails from {line_of(fails)}>", None)


# -- functions that are called together


def test_a_handler_calls_in_order_and_once_where_asked() -> None:
    handler, seen = HookHandler[Any]("on_change"), list[str]()
    handle = handler.register(lambda value: seen.append(f"a{value}"))
    handler.register_once(lambda value: seen.append(f"once{value}"))
    handler(1)
    handler.call(2)
    handle.remove()
    handler(3)
    assert seen == ["a1", "once1", "a2"]
    handler.register(seen.append)
    assert len(handler) == 1
    assert repr(handler).startswith("<HookHandler on_change>(1 handlers: [<FunctionInfo built-in list.append from ")
    handler.unregister_all()
    assert len(handler) == 0
    with pytest.raises(TypeError, match="^a handler of 'on_change' must be callable, not 3$"):
        handler.register(3)
