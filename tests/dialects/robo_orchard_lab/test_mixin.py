"""PipelineHooks: registering, combining, removing and printing hooks; and the arguments of hooks."""

from __future__ import annotations

import os
from typing import Any

import pytest

from hookline.dialects.robo_orchard_lab.pipeline.hooks import OptimizerHook
from hookline.dialects.robo_orchard_lab.pipeline.hooks import optimizer as optimizer_module
from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import (
    HookContext,
    HookContextChannel,
    PipelineHookArgs,
    PipelineHooks,
    PipelineHooksConfig,
)
from hookline.dialects.robo_orchard_lab.utils import log_basic_config
from tests.dialects.robo_orchard_lab import parts

HERE = os.path.relpath(__file__)


class Greets(PipelineHooks):
    def __init__(self, cfg: GreetsConfig | None = None) -> None:
        super().__init__()
        self.cfg = cfg
        self.register_hook("on_loop", HookContext.from_callable(before=self._hello, after=self._goodbye))
        self.register_hook(channel="on_step", hook=HookContext.from_callable(after=self._goodbye))

    def _hello(self, args: PipelineHookArgs) -> None: ...

    def _goodbye(self, args: PipelineHookArgs) -> None: ...


class GreetsConfig(PipelineHooksConfig[Greets]):
    class_type: type[Greets] = Greets
    often: int = 1


class Hasty(PipelineHooks):
    """A hook whose constructor does not call the one of the base class."""

    def __init__(self) -> None:
        self.register_hook("on_step", HookContext.from_callable(after=print))


def sizes(hooks: PipelineHooks) -> dict[str, int]:
    return {name: len(channel) for name, channel in hooks.hooks.items() if len(channel)}


def test_the_channels_exist_without_the_base_constructor() -> None:
    assert sizes(Hasty()) == {"on_step": 1}
    assert sizes(PipelineHooks.from_hooks([Hasty(), Hasty()])) == {"on_step": 2}


def test_there_are_seven_channels_and_an_unknown_one_is_refused() -> None:
    hooks = PipelineHooks()
    inside = ["on_batch", "on_model_forward", "on_model_backward", "on_optimizer_step"]
    assert list(hooks.hooks) == ["on_loop", "on_epoch", "on_step", *inside]
    assert all(isinstance(channel, HookContextChannel) for channel in hooks.hooks.values())
    with pytest.raises(KeyError) as caught:
        hooks.register_hook("on_stpe", HookContext.from_callable())  # type: ignore[arg-type]
    assert str(caught.value) == "unknown channel 'on_stpe'; did you mean 'on_step'?"
    with pytest.raises(KeyError, match="unknown channel 'on_render'; available: on_loop, "):
        hooks.begin("on_render", PipelineHookArgs(None))  # type: ignore[arg-type]


def test_hooks_are_added_as_a_whole_and_once() -> None:
    hooks, greets = PipelineHooks(), Greets()
    hooks += greets
    hooks += greets
    assert sizes(hooks) == {"on_loop": 1, "on_step": 1}
    hooks += Greets()
    assert sizes(hooks) == {"on_loop": 2, "on_step": 2}
    hooks.unregister_all()
    assert sizes(hooks) == {}
    assert list(hooks.members()) == []


@pytest.mark.parametrize("call", [False, True])
def test_a_handle_removes_all_of_them(call: bool) -> None:
    hooks, greets = PipelineHooks(), Greets()
    handle = hooks.register_pipeline_hooks(greets)
    single = hooks.register_hook("on_epoch", HookContext.from_callable(before=print))
    assert sizes(hooks) == {"on_loop": 1, "on_epoch": 1, "on_step": 1}
    for one in (handle, single):
        one() if call else one.remove()
    assert sizes(hooks) == {}
    assert sizes(greets) == {"on_loop": 1, "on_step": 1}


def test_from_hooks_takes_hooks_and_configs() -> None:
    assert sizes(PipelineHooks.from_hooks(None)) == {}
    assert sizes(PipelineHooks.from_hooks(GreetsConfig())) == {"on_loop": 1, "on_step": 1}
    assert sizes(PipelineHooks.from_hooks(Greets())) == {"on_loop": 1, "on_step": 1}
    several = PipelineHooks.from_hooks([GreetsConfig(), Greets()])
    assert sizes(several) == {"on_loop": 2, "on_step": 2}
    assert [type(member).__name__ for member in several.members()][:1] == ["Greets"]
    with pytest.raises(TypeError, match="^hooks must be PipelineHooks or their configs, not 3$"):
        PipelineHooks.from_hooks([3])
    hooks = PipelineHooks()
    with pytest.raises(
        TypeError, match="^hooks must be a PipelineHooks, not a GreetsConfig; if it is a config, call it$"
    ):
        hooks += GreetsConfig()  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        PipelineHooks() + PipelineHooks()  # type: ignore[operator]


def test_a_config_creates_its_hook_with_itself() -> None:
    made = GreetsConfig(often=3)()
    assert isinstance(made, Greets)
    assert made.cfg == GreetsConfig(often=3)


def test_begin_returns_the_arguments_and_works_without_a_trainer() -> None:
    seen, hooks = list[str](), PipelineHooks()
    hooks.register_hook(
        "on_step", HookContext.from_callable(None, lambda args: seen.append("before"), seen_after(seen))
    )
    args = PipelineHookArgs(parts.accelerator(), step_id=4)
    with hooks.begin("on_step", args) as given:
        assert given is args
    with pytest.raises(ValueError, match="^no$"), hooks.begin("on_step", args):
        raise ValueError("no")
    assert seen == ["before", "after None", "before", "after no"]


def seen_after(seen: list[str]) -> Any:
    return lambda args: seen.append(f"after {args.exception}")


def test_arguments_are_copied_with_what_hooks_have_added() -> None:
    args = PipelineHookArgs(None, epoch_id=3)
    args.mine = "note"  # type: ignore[attr-defined]
    copy = args.copy_with_updates(step_id=2, batch=[1])
    assert (copy.epoch_id, copy.step_id, copy.batch, copy.mine) == (3, 2, [1], "note")  # type: ignore[attr-defined]
    assert (args.step_id, args.batch) == (0, None)
    with pytest.raises(AttributeError, match="^unknown hook argument 'step_idx'; did you mean 'step_id'\\?$"):
        args.copy_with_updates(step_idx=1)


def test_the_tree_of_a_trainer_matches_the_document() -> None:
    greets = Greets()
    trainer = parts.trainer(hooks=[greets])
    own = next(member for member in trainer.hooks.members() if isinstance(member, OptimizerHook))

    def shown(owner: Any, function: Any, file: str) -> str:
        line = function.__code__.co_firstlineno
        name = f"{type(owner).__name__}(id={id(owner)}).{function.__name__}"
        return f"<FunctionInfo bound method {name} from {file}:{line}>"

    hello, goodbye = (shown(greets, function, HERE) for function in (Greets._hello, Greets._goodbye))
    step = shown(own, OptimizerHook._optimizer_step, os.path.relpath(optimizer_module.__file__))
    assert str(trainer.hooks) == (
        "<robo_orchard_lab.pipeline.hooks.mixin.PipelineHooks(\n"
        "  hooks={\n"
        "    on_loop: <robo_orchard_core.utils.hook.HookContextChannel(\n"
        "      name=on_loop, \n"
        "      hooks=[\n"
        "        0: <robo_orchard_core.utils.hook.HookContextFromCallable(\n"
        "          name=None, \n"
        f"          before={hello}, \n"
        f"          after={goodbye})>\n"
        "      ])>, \n"
        "    on_step: <robo_orchard_core.utils.hook.HookContextChannel(\n"
        "      name=on_step, \n"
        "      hooks=[\n"
        "        0: <robo_orchard_core.utils.hook.HookContextFromCallable(\n"
        "          name=None, \n"
        "          before=None, \n"
        f"          after={step})>,\n"
        "        1: <robo_orchard_core.utils.hook.HookContextFromCallable(\n"
        "          name=None, \n"
        "          before=None, \n"
        f"          after={goodbye})>\n"
        "      ])>, \n"
        "  })>"
    )
    assert str(PipelineHooks()) == "<robo_orchard_lab.pipeline.hooks.mixin.PipelineHooks(\n  hooks={})>"


def test_a_hook_may_be_added_and_removed_during_training() -> None:
    seen, trainer = list[int](), parts.trainer(max_step=4)

    def change(args: PipelineHookArgs) -> None:
        if args.global_step_id == 0:
            late.append(trainer.hooks.register_hook("on_step", HookContext.from_callable(after=note)))
        if args.global_step_id == 2:
            late[0].remove()

    def note(args: PipelineHookArgs) -> None:
        seen.append(args.global_step_id)

    late: list[Any] = []
    trainer.hooks.register_hook("on_step", HookContext.from_callable(before=change))
    trainer()
    assert seen == [1, 2]  # it still runs to the end of the pass in which it was removed


class Changing(PipelineHooks):
    """Removes itself at one step, adds a hook at another, and removes parts of others at a third."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.own = self.register_hook("on_step", HookContext.from_callable(before=self._once))
        self.register_hook("on_epoch", HookContext.from_callable(before=self._add))

    def _once(self, args: PipelineHookArgs) -> None:
        self.seen.append(f"once {args.global_step_id}")
        self.own.remove()

    def _add(self, args: PipelineHookArgs) -> None:
        self.register_hook("on_batch", HookContext.from_callable(after=self._late))
        self.others = self.register_pipeline_hooks(Greets())

    def _late(self, args: PipelineHookArgs) -> None:
        self.seen.append(f"late {args.global_step_id}")


def test_a_hook_of_a_trainer_may_change_itself_during_training() -> None:
    changing = Changing()
    trainer = parts.trainer(max_step=3, hooks=[changing])
    trainer()
    assert changing.seen == ["once 0", "late 0", "late 1", "late 2"]
    assert sizes(changing) == {"on_loop": 1, "on_epoch": 1, "on_step": 1, "on_batch": 1}
    assert [type(hook).__name__ for hook in trainer.hooks.members() if isinstance(hook, PipelineHooks)] == [
        *("OptimizerHook", "PipelineHooks", "Changing", "Greets"),
    ]
    changing.others.remove()
    assert not any(isinstance(hook, Greets) for hook in trainer.hooks.members())


def test_hooks_that_were_added_twice_stay_until_both_handles_have_removed_them() -> None:
    hooks, greets = PipelineHooks(), Greets()
    first, second = hooks.register_pipeline_hooks(greets), hooks.register_pipeline_hooks(greets)
    second.remove()
    second.remove()
    assert sizes(hooks) == {"on_loop": 1, "on_step": 1}
    assert next(hooks.members()) is greets
    first.remove()
    assert (sizes(hooks), list(hooks.members())) == ({}, [])


def test_the_log_is_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import logging
    import sys

    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    log_basic_config(level=logging.INFO, stream=sys.stderr)
    logging.getLogger("mine").info("hello")
    assert "INFO mine:" in capsys.readouterr().err
