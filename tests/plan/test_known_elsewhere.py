"""A name from Lightning, the Transformers Trainer or Keras is answered with the name of the same thing here."""

from __future__ import annotations

from typing import Any

import pytest

from hookline import HOOKS, WRITERS, Hook, not_a_point
from hookline.errors import ConfigError, HookError
from hookline.plan.known_elsewhere import HOOKS_ELSEWHERE, POINTS_ELSEWHERE, WRITERS_ELSEWHERE
from hookline.plan.plan import Plan
from hookline.plan.points import POINTS
from hookline.testing import toy_runner


def refused(name: str) -> str:
    hook = type("Mine", (Hook,), {name: lambda self, runner: None})()
    with pytest.raises(HookError) as caught:
        toy_runner(custom_hooks=[hook])
    return str(caught.value)


#: Every method of the three classes that is called during a run, and methods that older versions had.
LIGHTNING = [
    *(f"on_{stage}_{end}" for stage in ("fit", "sanity_check") for end in ("start", "end")),
    *(
        f"on_{stage}{part}_{end}"
        for stage in ("train", "validation", "test", "predict")
        for part in ("", "_epoch", "_batch")
        for end in ("start", "end")
    ),
    *("on_save_checkpoint", "on_load_checkpoint", "on_before_backward", "on_after_backward"),
    *("on_before_optimizer_step", "on_before_zero_grad"),
    *("on_batch_start", "on_batch_end", "on_epoch_start", "on_epoch_end", "on_init_start", "on_init_end"),
    *("on_keyboard_interrupt", "on_pretrain_routine_start", "on_pretrain_routine_end", "on_configure_sharded_model"),
    *("training_step", "validation_step", "test_step", "predict_step", "configure_optimizers"),
]
TRANSFORMERS = [
    *("on_init_end", "on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end", "on_step_begin"),
    *("on_pre_optimizer_step", "on_optimizer_step", "on_substep_end", "on_step_end", "on_evaluate", "on_predict"),
    *("on_save", "on_log", "on_prediction_step", "on_push_begin"),
]
KERAS = [
    *("on_epoch_begin", "on_epoch_end", "on_batch_begin", "on_batch_end"),
    *(
        f"on_{stage}{part}_{end}"
        for stage in ("train", "test", "predict")
        for part in ("", "_batch")
        for end in ("begin", "end")
    ),
]


def test_the_table_is_complete_and_leads_to_points_that_exist() -> None:
    assert set(POINTS_ELSEWHERE) == {*LIGHTNING, *TRANSFORMERS, *KERAS}
    meant = {here for _, here in POINTS_ELSEWHERE.values() if here.isidentifier()}
    assert meant <= set(POINTS)
    for names, who in ((LIGHTNING, "Lightning"), (TRANSFORMERS, "Transformers"), (KERAS, "Keras")):
        assert {name for name, (whose, _) in POINTS_ELSEWHERE.items() if who in whose} == set(names)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "on_train_batch_end",
            "did you mean 'after_train_iter'? (on_train_batch_end is the name in Lightning and Keras.)",
        ),
        ("on_step_end", "did you mean 'after_train_iter'? (on_step_end is the name in the Transformers Trainer.)"),
        (
            "on_log",
            "on_log is a name of the Transformers Trainer; numbers go to writers: write a Writer, or read runner.hub "
            "at after_train_iter.",
        ),
        (
            "training_step",
            "training_step is a name of Lightning; a training step is a function: TrainLoop(loader, step=...).",
        ),
    ],
)
def test_a_method_is_refused_with_the_point_here(name: str, message: str) -> None:
    found = refused(name)
    assert found.startswith(f"Mine.{name} (")
    assert found.endswith(f"): unknown point '{name}'; {message} If it is a helper, mark it with @not_a_point.")


def test_every_name_is_refused() -> None:
    for name in POINTS_ELSEWHERE:
        assert f"unknown point '{name}'; " in refused(name)


def test_a_function_at_such_a_point_is_refused_in_the_same_way() -> None:
    with pytest.raises(HookError) as caught:
        toy_runner().on("on_epoch_end")(lambda: None)
    assert str(caught.value) == (
        "unknown point 'on_epoch_end'; did you mean 'after_train_epoch'? (on_epoch_end is the name in Lightning, the "
        "Transformers Trainer and Keras.)"
    )


def test_a_callable_that_a_hook_sets_itself_is_refused_too() -> None:
    class Sets(Hook):
        def __init__(self) -> None:
            self.on_train_batch_end = lambda: None

    with pytest.raises(
        HookError, match=r"^Sets\.on_train_batch_end \(.*\): unknown point 'on_train_batch_end'; did you"
    ):
        toy_runner(custom_hooks=[Sets()])


def test_a_helper_or_a_custom_point_may_have_such_a_name() -> None:
    class Mine(Hook):
        @not_a_point
        def training_step(self) -> None: ...

        def on_step_end(self, runner: Any) -> None: ...

    runner = toy_runner(points={"on_step_end": ()}, custom_hooks=[Mine()])
    assert [call.who for call in runner.plan.calls_at("on_step_end")] == ["Mine"]


def test_an_open_plan_accepts_these_names() -> None:
    class Mine(Hook):
        def on_train_batch_end(self) -> None: ...

        def training_step(self) -> None: ...

    plan = Plan(object(), open=True)
    plan.add(Mine())
    assert [entry.name for entry in plan] == ["Mine"]


def test_hooks_and_writers_are_hinted() -> None:
    with pytest.raises(ConfigError) as caught:
        toy_runner(custom_hooks=[{"type": "ModelCheckpoint"}])
    assert str(caught.value) == (
        "unknown hook 'ModelCheckpoint'; CheckpointHook is a default hook; set it with default_hooks: {checkpoint: "
        "{...}}"
    )
    with pytest.raises(ConfigError) as caught:
        WRITERS.get("TensorBoardLogger")
    assert str(caught.value) == "unknown writer 'TensorBoardLogger'; did you mean 'tensorboard'?"


def test_the_hints_name_hooks_and_writers_that_exist() -> None:
    words = {word.strip(",;") for hint in HOOKS_ELSEWHERE.values() for word in hint.split()}
    assert {word for word in words if word.endswith("Hook") and "." not in word} <= set(HOOKS)
    assert {hint.split("'")[1] for hint in WRITERS_ELSEWHERE.values()} <= set(WRITERS)
    assert not set(HOOKS_ELSEWHERE) & set(HOOKS)
