"""Runs that must fail: with bad data, losses, validation, folders or checkpoints, found during the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tests.faults.cases import Case, listed
from tests.faults.mistakes import TRIED, WHAT_TO_RETURN, bad, evaluation, raising, training
from tests.faults.project import checkpoint, config, in_zip, put_run, sealed, trained_run, write


def cases() -> list[Case]:
    """Return all cases."""
    return [*_data(), *_losses(), *_evaluation(), *_folders(), *_checkpoints()]


def _data() -> list[Case]:
    """Return cases with loaders that yield nothing or fail."""

    def loader(name: str, text: str, says: str, code: int = 3, **given: str | None) -> Case:
        return bad(f"fault_23_{name}", code, says, train=training(dataloader=text, **given))

    def failing(name: str, text: str, *mentions: str) -> Case:
        return raising(f"fault_24_{name}", 3, *mentions, train=training(dataloader=f"{{dataset: {text}}}"))

    empty = '{dataset: {type: "mynet:Data", samples: 0}}'
    return [
        loader("train_empty", empty, "the loader of 'train' is empty: it has no batch"),
        bad("fault_23_val_empty", 3, "the loader of 'val' is empty: it has no batch", val=evaluation(dataloader=empty)),
        bad(
            "fault_23_test_empty",
            3,
            "the loader of 'test' is empty: it has no batch",
            test=evaluation(dataloader=empty),
        ),
        loader(
            "last_dropped",
            '{dataset: {type: "mynet:Data"}, batch_size: 16, drop_last: true}',
            "the loader of 'train' is empty: it has no batch",
        ),
        loader(
            "gives_nothing", '{type: "bad:gives_nothing"}', "the generator is empty: it returned no batch in epoch 0"
        ),
        loader(
            "gives_nothing_by_iterations",
            '{type: "bad:gives_nothing"}',
            "the generator is empty: it returned no batch in epoch 0",
            max_epochs=None,
            max_iters="3",
        ),
        bad(
            "fault_23_val_gives_nothing",
            3,
            "the generator is empty: it returned no batch in epoch 0",
            val=evaluation(dataloader='{type: "bad:gives_nothing"}'),
        ),
        bad(
            "fault_23_test_gives_nothing",
            3,
            "the generator is empty: it returned no batch in epoch 0",
            test=evaluation(dataloader='{type: "bad:gives_nothing"}'),
        ),
        loader(
            "stream_gives_nothing",
            '{type: DataLoader, dataset: {type: "bad:Stream"}}',
            "the DataLoader is empty: it returned no batch in epoch 0",
        ),
        loader(
            "used_up",
            '{type: "bad:used_up"}',
            "the generator is empty: it returned no batch in epoch 1; the previous epoch used it up, but a "
            "loader must start over in every epoch",
        ),
        loader(
            "used_up_by_iterations",
            '{type: "bad:used_up"}',
            "the generator is empty: it returned no batch in epoch 1; the previous epoch used it up, but a "
            "loader must start over in every epoch",
            max_epochs=None,
            max_iters="9",
        ),
        bad(
            "fault_23_val_used_up",
            3,
            "the generator is empty: it returned no batch in epoch 0",
            train=training(),
            val=evaluation(dataloader='{type: "bad:used_up"}'),
        ),
        loader("fewer_than_said", '{type: "bad:liar"}', "the Liar has a length of 9 batches but returned only 4"),
        loader(
            "no_length",
            '{dataset: {type: "bad:Stream"}}',
            "config.yaml:2:9 train.dataloader: a ResumableLoader needs a dataset with a length and items by "
            "index, but Stream does not have them; use a torch DataLoader for it instead",
            2,
        ),
        loader(
            "stops",
            '{dataset: {type: "bad:Stops"}, batch_size: 2}',
            "the ResumableLoader has a length of 4 batches but returned only 2",
        ),
        raising("fault_23_no_loader", 3, "not iterable", train=training(dataloader='{type: "bad:nothing_at_all"}')),
        failing("raises", '{type: "bad:Raises"}', "OSError: sample 5 cannot be read\n", "epoch 0"),
        failing(
            "raises_in_a_worker",
            '{type: "bad:Raises"}, num_workers: 1',
            "OSError: sample 5 cannot be read\n",
            "epoch 0",
        ),
        failing(
            "uneven", '{type: "bad:Uneven"}, batch_size: 2', "stack expects each tensor to be equal size", "epoch 0"
        ),
        raising(
            "fault_24_val_raises",
            3,
            "OSError: sample 5 cannot be read\n",
            val=evaluation(dataloader='{dataset: {type: "bad:Raises"}}'),
        ),
    ]


#: The last line of an error about NaN or Inf.
ORIGIN = "\n  to find the step, the module and the samples: hookline replay runs/run --triage"


def _infinite(loss: str, iteration: int, by_epochs: bool = True) -> str:
    """Return the message of a run whose loss is NaN or Inf."""
    epoch = f" (epoch 1, batch {iteration} of 4)" if by_epochs else ""
    return (
        f"the loss has become {loss} at iteration {iteration}{epoch}, so training cannot continue; check the "
        "learning rate, the "
        "data and the precision, or skip such batches: CheckInvalidLossHook with policy: skip and "
        "interval: 1"
    )


def _losses() -> list[Case]:
    """Return cases with steps that return no usable loss."""

    def step(name: str, says: str) -> Case:
        says += "\n  in the step, epoch=0 iter=0 rank=0"
        return bad(f"fault_22_loss_{name}", 1, says, train=training(step=f'"bad:{name}"'))

    def failing(name: str, *mentions: str) -> Case:
        return raising(f"fault_22_step_{name}", 1, *mentions, train=training(step=f'"bad:{name}"'))

    def infinite(name: str, label: str, says: str, hooks: str = "{}") -> Case:
        section = training(step=f'"bad:{name}"')
        return bad(f"fault_21_{name}_{label}", 4, says + ORIGIN, train=section, default_hooks=hooks)

    def by_iterations(name: str, says: str) -> Case:
        section = training(step=f'"bad:{name}"', max_epochs=None, max_iters="8")
        return bad(f"fault_21_{name}_by_iterations", 4, says + ORIGIN, train=section)

    def by_policy(name: str, policy: str, says: str = "", *mentions: str) -> Case:
        section, hook = training(step=f'"bad:{name}"'), f"[{{type: CheckInvalidLossHook, {policy}}}]"
        label = policy.partition(": ")[2].partition(",")[0]
        case = bad(f"fault_21_{name}_{label}", 4, says and says + ORIGIN, train=section, custom_hooks=hook)
        return replace(case, mentions=mentions)

    checked = (
        "\n  in hook CheckInvalidLossHook, at before_backward, epoch=0 iter={} rank=0 "
        "(hookline/hooks/check_invalid_loss.py)"
    )
    return [
        by_policy(
            "nan_later",
            "policy: raise",
            "CheckInvalidLossHook: the loss of iteration 4 is nan; the optimizer step was not taken, so the "
            "weights are unchanged. Check the learning rate, the data and the precision, or skip such batches with "
            "policy: skip" + checked.format(3),
        ),
        by_policy(
            "nan",
            "policy: skip, max_skips: 3",
            "CheckInvalidLossHook: the loss of iteration 4 is nan, after 3 skipped batches in a row (max_skips). Check "
            "the learning rate, the data and the precision" + checked.format(3),
        ),
        by_policy("nan_later", "policy: stop", "", "stopped by CheckInvalidLossHook: the loss of iteration 4 is nan\n"),
        step(
            "vector",
            f"the loss of the step is a tensor of shape (2,); {WHAT_TO_RETURN}",
        ),
        step(
            "nothing",
            f"the step returned None; {WHAT_TO_RETURN}",
        ),
        step(
            "text",
            f"the step returned a str; {WHAT_TO_RETURN}",
        ),
        step(
            "without_loss",
            f"the step returned a mapping with ['score'], but without a loss; {WHAT_TO_RETURN}",
        ),
        step(
            "detached",
            "the loss has no gradient: it was detached (.item(), .detach(), no_grad), or it does not depend on "
            "a trainable parameter of the model; return the loss as computed from the model's outputs",
        ),
        step(
            "integer",
            f"the step returned a int; {WHAT_TO_RETURN}",
        ),
        step(
            "number",
            f"the step returned a float; {WHAT_TO_RETURN}",
        ),
        step(
            "three",
            f"the step returned a tuple; {WHAT_TO_RETURN}",
        ),
        bad(
            "fault_22_step_exits",
            1,
            "sys.exit(0) was called after iteration 0 (the step), so the run is not finished; to end a training early, "
            "call runner.stop(reason)",
            train=training(step='"bad:exits"'),
        ),
        bad(
            "fault_22_step_two_parameters_more",
            2,
            listed("2:69  train.step: a step is called with (model, batch), which two_parameters_more does not accept"),
            train=training(step='"bad:two_parameters_more"'),
        ),
        failing("fails", "KeyError: 'no such column'\n"),
        failing("ends_early", "StopIteration\n"),
        infinite(
            "nan",
            "by_epochs",
            _infinite("nan", 1),
        ),
        infinite(
            "infinite",
            "by_epochs",
            _infinite("inf", 1),
        ),
        infinite(
            "nan_later",
            "by_epochs",
            _infinite("nan", 4),
        ),
        infinite(
            "nan_once",
            "by_epochs",
            _infinite("nan", 3),
        ),
        by_iterations(
            "nan",
            _infinite("nan", 1, by_epochs=False),
        ),
        by_iterations(
            "infinite",
            _infinite("inf", 1, by_epochs=False),
        ),
        by_iterations(
            "nan_later",
            _infinite("nan", 4, by_epochs=False),
        ),
        infinite(
            "nan",
            "not_logged",
            _infinite("nan", 1),
            "{logger: null}",
        ),
        infinite(
            "nan",
            "not_recorded",
            _infinite("nan", 1),
            "{runtime_info: null}",
        ),
        infinite(
            "nan",
            "not_logged_or_saved",
            _infinite("nan", 1),
            "{logger: null, checkpoint: null}",
        ),
        infinite(
            "nan",
            "without_hooks",
            _infinite("nan", 1),
            "{runtime_info: null, logger: null, checkpoint: null}",
        ),
    ]


def _evaluation() -> list[Case]:
    """Return cases with a validation that fails or returns something invalid."""

    def failing(name: str, *mentions: str, **changes: str | None) -> Case:
        return raising(f"val_{name}", 1, *mentions, val=evaluation(**changes))

    called = "called with the result of the evaluation step\n"
    broken = f"ZeroDivisionError: no samples\nin the metric 'broken', {called}"
    plateau = "{optimizer: {type: SGD, lr: 0.1}, schedulers: [{type: ReduceLROnPlateau%s}]}"
    return [
        bad(
            "val_metric_unknown",
            2,
            listed("3:100  val.metrics.accuracy: unknown metric 'acuracy'; did you mean 'accuracy'?"),
            val=evaluation(metrics="{accuracy: acuracy}"),
        ),
        bad(
            "val_metric_not_there",
            2,
            listed(
                "3:100  val.metrics.accuracy: the module 'mynet' has no 'acuracy'; available: Callable, system, "
                "Net, Wrap, Data, loss_of, predict"
            ),
            val=evaluation(metrics='{accuracy: "mynet:acuracy"}'),
        ),
        bad(
            "val_loss_gives_nothing",
            1,
            f"the step returned None; {WHAT_TO_RETURN}{TRIED}",
            val=evaluation(loss='"bad:nothing"'),
        ),
        bad(
            "fault_25_scheduler_metric",
            2,
            "ReduceLROnPlateau: validation returns no metric 'acuracy'; did you mean 'accuracy'?",
            optim=plateau % ", when: val, monitor: acuracy",
        ),
        bad(
            "fault_25_scheduler_without_validation",
            2,
            "ReduceLROnPlateau steps at 'val', but this run has no validation; add `val` to the "
            "Runner or to the config\n  in hook ParamSchedulerHook, at before_train, epoch=0 iter=0 rank=0 "
            "(hookline/hooks/param_scheduler.py)",
            val=None,
            optim=plateau % "",
        ),
        bad(
            "scheduler_wrong_time",
            2,
            "config.yaml:5:1 optim: ReduceLROnPlateau steps on a metric, so it must step at 'val', not at 'epoch'",
            optim=plateau % ", when: epoch",
        ),
        failing("metric_raises", broken, metrics='{broken: "bad:broken_metric"}'),
        bad(
            "val_metric_gives_text",
            2,
            f"the metric 'text' must return a number, or a tensor of numbers, for a batch, not a str{TRIED}",
            val=evaluation(metrics='{text: "bad:text_metric"}'),
        ),
        *(
            bad(
                f"val_step_gives_{name}",
                2,
                f"the metric 'accuracy' takes (preds, target), but the evaluation step returned {found}; let the step "
                f"return (preds, target){TRIED}",
                val=evaluation(step=step),
            )
            for name, found, step in (
                ("one_thing", "a tensor of shape (4, 2)", '"bad:one_thing"'),
                ("nothing", "None", '"bad:nothing"'),
            )
        ),
        failing("step_fails", "KeyError: 'no such column'\n", step='"bad:fails"'),
        raising("test_metric_raises", 1, broken, test=evaluation(metrics='{broken: "bad:broken_metric"}')),
    ]


def _folders() -> list[Case]:
    """Return cases with folders that even root cannot write to, for example because a file is in their place."""

    long = "x" * 300

    def folder(name: str, where: str, says: str) -> Case:
        return Case(f"fault_13_{name}", 5, says, words=("train", "config.yaml", f"work_dir={where}"))

    return [
        folder("file_in_its_place", "mynet.py", "work_dir mynet.py cannot be written: File exists"),
        folder("below_a_file", "mynet.py/run", "work_dir mynet.py/run cannot be written: Not a directory"),
        folder("below_a_device", "/dev/full/run", "work_dir /dev/full/run cannot be written: Not a directory"),
        folder(
            "in_proc", "/proc/hookline/run", "work_dir /proc/hookline/run cannot be written: No such file or directory"
        ),
        folder(
            "name_too_long",
            f"runs/{long}",
            f"work_dir runs/{long} cannot be written: File name too long",
        ),
        Case(
            "fault_13_checkpoints_elsewhere",
            5,
            mentions=("mynet.py",),
            config=config(default_hooks="{checkpoint: {out_dir: mynet.py}}"),
        ),
        bad(
            "fault_13_records",
            2,
            "config.yaml:7:11 writers[0]: JsonlWriter: filename must be the name of a file in the run's folder, not "
            "'nowhere/x.jsonl'",
            writers='[{type: jsonl, filename: "nowhere/x.jsonl"}]',
        ),
    ]


def _checkpoints() -> list[Case]:
    """Return cases with checkpoints that a run can neither resume nor load weights from."""

    def resumed(name: str, words: str, prepare: Callable[[Path], object], mentions: str = "epoch_1.pth") -> Case:
        command = ("train", "config.yaml", "train.max_epochs=2", *words.split())
        return Case(name, 5, mentions=(mentions,), words=command, prepare=prepare)

    def changed(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
        def put(project: Path) -> None:
            found = checkpoint()
            change(found)
            put_run(project, epoch_1=sealed(found))

        return put

    def cut(project: Path) -> None:
        put_run(project, epoch_1=trained_run()["epoch_1.pth"][:-500])

    def emptied(project: Path) -> None:
        put_run(project, epoch_1=b"")

    def flipped(project: Path) -> None:
        content = bytearray(trained_run()["epoch_1.pth"])
        weight = checkpoint()["state_dict"]["layers.0.weight"].numpy().tobytes()
        content[content.index(weight)] ^= 1
        write(put_run(project), "epoch_1.pth", bytes(content))

    def another_kind(**entries: Any) -> Callable[[Path], object]:
        return changed(lambda found: found.update(entries))

    path, newest, weights = "resume=runs/run/epoch_1.pth", "--resume", "load_from=runs/run/epoch_1.pth"
    test = ("test", "config.yaml", "--checkpoint", "runs/run/epoch_1.pth")
    return [
        resumed("fault_15_resume_missing", "resume=runs/run/epoch_9.pth", put_run, "epoch_9.pth"),
        resumed("fault_15_load_from_missing", "load_from=epoch_9.pth", put_run, "epoch_9.pth"),
        resumed("fault_15_resume_a_folder", "resume=runs/run", put_run, "runs/run"),
        resumed("fault_15_resume_misspelled", "resume=ture", put_run, "ture"),
        resumed("fault_14_cut_short", path, cut),
        resumed("fault_14_cut_short_newest", newest, cut),
        resumed("fault_14_cut_short_weights", weights, cut),
        Case("fault_14_cut_short_test", 5, mentions=("epoch_1.pth",), words=test, prepare=cut),
        resumed("fault_14_flipped", path, flipped),
        resumed("fault_14_flipped_newest", newest, flipped),
        resumed("fault_14_empty", path, emptied),
        resumed("fault_14_empty_newest", newest, emptied),
        resumed("fault_20_another_model", f"{path} model.hidden=5", put_run),
        resumed("fault_20_another_model_newest", f"{newest} model.hidden=5", put_run),
        resumed("fault_20_weights_of_another_model", weights, another_kind(state_dict={"x": torch.zeros(3)})),
        resumed("fault_20_no_weights", weights, changed(lambda found: found.pop("state_dict"))),
        resumed("fault_20_no_optimizer", newest, changed(lambda found: found.pop("optimizer"))),
        resumed("fault_20_no_position", newest, changed(lambda found: found.pop("position"))),
        resumed("fault_20_another_optimizer", f'{newest} optim.param_groups=[{{"match":"*.bias"}}]', put_run),
        resumed(
            "fault_20_another_scheduler", f'{newest} optim.schedulers=[{{"type":"StepLR","step_size":1}}]', put_run
        ),
        resumed("fault_20_state_of_another_kind", newest, another_kind(state_dict=[1, 2])),
        resumed("fault_20_position_of_another_kind", newest, another_kind(position={"epoch": 1, "iter": "many"})),
        resumed("fault_20_generators_of_another_kind", newest, another_kind(rng={"torch": 1, "numpy": 2})),
        resumed("fault_20_hooks_of_another_kind", newest, another_kind(hooks=[1])),
        resumed("fault_20_list", newest, lambda project: put_run(project, epoch_1=in_zip([1, 2]))),
    ]
