"""The loop that Pointrix documents, and the calls of its hooks."""

from __future__ import annotations

import copy
import logging
import traceback
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from hookline.dialects.pointrix.hook import HOOK_REGISTRY, CheckPointHook, Hook, LogHook, parse_hooks
from hookline.dialects.pointrix.hook.points import POINTS
from hookline.errors import ConfigError, HookError
from hookline.plan.hook import every
from tests.dialects.pointrix.scene import SceneTrainer, config


class Recorder(Hook):
    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []


def _note(name: str) -> Any:
    def method(self: Recorder, trainner: Any, **more: Any) -> None:
        self.seen.append((name, trainner.global_step))

    return method


for _name in POINTS:
    setattr(Recorder, _name, _note(_name))


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HOOK_REGISTRY, "_registered", {})


def trainer_with(folder: Path, *hooks: Any, **changes: Any) -> SceneTrainer:
    trainer = SceneTrainer(config(**changes), folder)
    for hook in hooks:
        trainer.register_hook(hook)
    return trainer


def test_the_loop_of_the_document_step_by_step(tmp_path: Path) -> None:
    HOOK_REGISTRY.register(Recorder)
    trainer = SceneTrainer(config(hooks={"all": {"name": "Recorder"}}), tmp_path)
    (recorder,) = trainer.hooks
    assert recorder.seen == [("before_run", 0)]
    trainer.train_loop()

    def steps(*numbers: int) -> list[tuple[str, int]]:
        return [(name, step) for step in numbers for name in ("before_train_iter", "after_train_iter")]

    def validation(step: int) -> list[tuple[str, int]]:
        inner = ["before_val_iter", "after_val_iter"] * 2
        return [(name, step) for name in ("before_val", *inner, "after_val")]

    assert recorder.seen[1:] == [
        ("before_train", 1),
        *steps(1, 2),
        *validation(3),
        *steps(3, 4),
        *validation(5),
        *steps(5),
        *validation(6),
        ("after_train", 6),
        ("after_run", 6),
    ]
    assert trainer.datapipeline.asked == trainer.renderer.degrees == [1, 2, 3, 4, 5]
    assert trainer.optimizer.param_groups[0]["lr"] == 0.1 / 5
    assert trainer.optimizer_dict == {"loss": trainer.loss_dict["loss"], "white_bg": False}
    assert trainer.val_dataset_size == 2
    assert trainer.metric_dict["rgb_file_name"] == "views/front.png"


def test_training_starts_where_start_steps_says(tmp_path: Path) -> None:
    trainer = trainer_with(tmp_path, recorder := Recorder(), val_interval=0)
    trainer.start_steps = 4
    trainer.train_loop()
    assert [step for name, step in recorder.seen if name == "before_train_iter"] == [4, 5]
    assert not [name for name, _ in recorder.seen if "val" in name]


def test_before_run_is_called_first_with_only_cfg_exp_dir_and_device_set(tmp_path: Path) -> None:
    found = {}

    @HOOK_REGISTRY.register()
    class Looks(Hook):
        def before_run(self, trainner: Any) -> None:
            found.update({name: getattr(trainner, name) for name in ("cfg", "exp_dir", "device")})
            found["parts"] = [
                name
                for name in ("datapipeline", "model", "renderer", "optimizer", "schedulers", "writer", "logger")
                if hasattr(trainner, name)
            ]

    trainer = SceneTrainer(config(hooks={"looks": {"name": "Looks"}}), tmp_path, "cpu")
    assert found == {"cfg": trainer.cfg, "exp_dir": tmp_path, "device": "cpu", "parts": []}
    assert (trainer.writer, trainer.logger) == (None, None)


def test_hooks_run_in_the_order_of_the_config_and_get_its_parameters(tmp_path: Path) -> None:
    ran = []

    @HOOK_REGISTRY.register()
    class Says(Hook):
        def __init__(self, word: str, often: int = 1) -> None:
            self.word = word
            self.often = often

        def before_train(self, trainner: Any) -> None:
            ran.append(self.word * self.often)

    hooks = {
        "b": {"name": "Says", "word": "one "},
        "a": {"name": "Says", "word": "two ", "often": 2},
        "first": {"name": "Says", "word": "zero ", "priority": "HIGH"},
    }
    given = config(hooks=hooks)
    before = copy.deepcopy(given)
    SceneTrainer(given, tmp_path).train_loop()
    assert ran == ["zero ", "one ", "two two "]
    assert given == before


def test_parse_hooks_builds_all_hooks_and_none_for_an_empty_config() -> None:
    made = parse_hooks(
        OmegaConf.create({"log": {"name": "LogHook"}, "save": {"name": "CheckPointHook", "max_keep": 2}})
    )
    assert [type(hook) for hook in made] == [LogHook, CheckPointHook]
    assert made[1].max_keep == 2
    assert parse_hooks({}) == parse_hooks(None) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "LogHok"}, "unknown hook 'LogHok'; did you mean 'LogHook'?"),
        (
            {"name": "CheckPointHook", "max_kep": 2},
            "CheckPointHook has no parameter 'max_kep'; did you mean 'max_keep'?",
        ),
        (
            {"max_keep": 2},
            "hooks: 'save' must be a mapping with the name of a hook, such as {name: LogHook}, not {'max_keep': 2}",
        ),
        ({"name": "CheckPointHook", "save_step": -1}, "CheckPointHook: save_step must be an int of at least 0, not -1"),
    ],
)
def test_an_invalid_hook_config_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_hooks({"save": given})
    assert str(caught.value) == message


def test_an_unknown_name_is_a_key_error_too() -> None:
    with pytest.raises(KeyError, match="^unknown hook 'Nothing'; available: CheckPointHook, LogHook$"):
        HOOK_REGISTRY.get("Nothing")


def test_a_user_class_replaces_a_built_in_one_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "hookline"):
        own = HOOK_REGISTRY.register()(type("LogHook", (Hook,), {}))
    assert caplog.messages == [f"the hook 'LogHook' from {__name__} replaces the built-in one"]
    assert type(parse_hooks({"log": {"name": "LogHook"}})[0]) is own


def test_custom_points_run_when_call_hook_names_them(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Prunes(Hook):
        def after_densify(self, trainner: Any, added: int, removed: int = 0) -> None:
            seen.append((trainner.global_step, added, removed))

        def prune(self) -> None:
            seen.append("prune")

    trainer = trainer_with(tmp_path, Prunes())
    trainer.call_hook("after_densify", added=3)
    trainer.call_hook("after_densify", added=1, removed=2)
    trainer.call_hook("prune")
    trainer.call_hook("nobody_listens", whatever=1)
    assert seen == [(0, 3, 0), (0, 1, 2), "prune"]


def test_a_misspelled_point_is_refused_in_a_hook_and_in_a_call(tmp_path: Path) -> None:
    class Misspelt(Hook):
        def before_trian(self, trainner: Any) -> None: ...

    trainer = trainer_with(tmp_path)
    with pytest.raises(HookError, match=r"^Misspelt\.before_trian \(.*\): unknown point 'before_trian'; did y"):
        trainer.register_hook(Misspelt())
    with pytest.raises(HookError, match=r"^unknown point 'after_train_itr'; did you mean 'after_train_iter'\?$"):
        trainer.call_hook("after_train_itr")


def test_a_type_error_names_the_hook_and_keeps_its_traceback(tmp_path: Path) -> None:
    class Adds(Hook):
        def after_train_iter(self, trainner: Any) -> None:
            self.add(1, "two")

        def add(self, one: Any, other: Any) -> None:
            one + other

    trainer = trainer_with(tmp_path, Adds())
    with pytest.raises(TypeError, match="unsupported operand") as caught:
        trainer.train_loop()
    assert traceback.extract_tb(caught.value.__traceback__)[-1].line == "one + other"
    assert str(caught.value) == f"unsupported operand type(s) for +: 'int' and 'str' in {trainer.hooks[0]}"
    (note,) = caught.value.__notes__
    assert note.startswith("in hook Adds, at after_train_iter, global_step=1 (tests")


@pytest.mark.parametrize(
    ("point", "arguments", "message"),
    [
        (
            "after_render",
            {"picture": 1},
            r"^Draws\.after_render \(.*\): .* has no argument 'image'; available: picture$",
        ),
        ("before_train", {"speed": 1}, r"^before_train\(runner\) has no argument 'speed'; available: none$"),
        ("after_load_checkpoint", {}, r"^after_load_checkpoint\(runner, checkpoint\) was called without checkpoint$"),
    ],
)
def test_a_call_with_wrong_arguments_is_a_type_error(
    tmp_path: Path, point: str, arguments: dict[str, Any], message: str
) -> None:
    class Draws(Hook):
        def after_render(self, trainner: Any, image: Any) -> None: ...

    trainer = trainer_with(tmp_path, Draws())
    with pytest.raises(TypeError, match=message) as caught:
        trainer.call_hook(point, **arguments)
    assert isinstance(caught.value, HookError)


def test_exception_is_called_when_a_step_fails_and_the_error_is_raised_again(tmp_path: Path) -> None:
    class Fails(Hook):
        def after_train_iter(self, trainner: Any) -> None:
            if trainner.global_step == 2:
                raise ValueError("a bad step")

    class Notified(Hook):
        notified = 0

        def exception(self) -> None:
            self.notified += 1

    class Late(Hook):
        def exception(self) -> None:
            raise OSError("no screen")

    trainer = trainer_with(tmp_path, Fails(), notified := Notified(), Late(), recorder := Recorder())
    with pytest.raises(ValueError, match="^a bad step") as caught:
        trainer.train_loop()
    assert notified.notified == 1
    assert [name for name, _ in recorder.seen][-1] == "before_train_iter"
    assert caught.value.__notes__[-1] == "a hook failed at exception: OSError: no screen"
    assert "ValueError: a bad step" in (tmp_path / "run.log").read_text()
    assert not trainer.running


def test_exception_is_called_when_the_constructor_fails(tmp_path: Path) -> None:
    notified = []

    @HOOK_REGISTRY.register()
    class Fails(Hook):
        def before_run(self, trainner: Any) -> None:
            raise ValueError("not today")

        def exception(self) -> None:
            notified.append("notified")

    with pytest.raises(ValueError, match="^not today"):
        SceneTrainer(config(hooks={"f": {"name": "Fails"}, "log": {"name": "LogHook"}}), tmp_path)
    assert notified == ["notified"]
    trainer = trainer_with(tmp_path, Fails())
    trainer.call_hook("exception")  # it takes no trainer
    assert notified == ["notified", "notified"]


def test_hooks_may_wrap_steps_and_validations_and_run_at_an_interval(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Surrounds(Hook):
        def around_train_iter(self, trainner: Any) -> Any:
            seen.append("(")
            yield
            seen.append(")")

        def around_val(self, trainner: Any) -> Any:
            seen.append("[")
            yield
            seen.append("]")

        @every(2)
        def after_train_iter(self, trainner: Any) -> None:
            seen.append(trainner.global_step)

    trainer_with(tmp_path, Surrounds()).train_loop()
    assert seen == ["(", ")", "(", 2, ")", "[", "]", "(", ")", "(", 4, ")", "[", "]", "(", ")", "[", "]"]


def test_methods_that_are_not_overridden_cost_nothing(tmp_path: Path) -> None:
    trainer = trainer_with(tmp_path, Hook(), CheckPointHook())
    assert [name for name in POINTS if trainer.plan.calls_at(name)] == [
        "before_train",
        "after_train_iter",
        "after_train",
    ]
    assert Hook.locations == tuple(name for name in POINTS if name != "exception")


def test_hooks_are_listed_in_order_and_may_be_replaced(tmp_path: Path) -> None:
    trainer = trainer_with(tmp_path, one := Recorder(), first := CheckPointHook())
    trainer.hooks = [first, one]
    assert trainer.hooks == (first, one)
    trainer.hooks = None
    assert trainer.hooks == ()
    trainer.train_loop()
