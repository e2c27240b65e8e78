"""Invalid hooks and invalid commands."""

from __future__ import annotations

from typing import Any

from tests.faults.cases import Case, listed
from tests.faults.mistakes import BAD, WHAT_TO_RETURN, bad, raising, training
from tests.faults.project import config, put_run


def cases() -> list[Case]:
    """Return all cases."""
    return [*_hooks(), *_words()]


def _hooks() -> list[Case]:
    """Return cases with invalid hooks."""

    def hook(name: str, text: str, says: str, code: int = 2, **changes: str | None) -> Case:
        return bad(f"fault_27_hook_{name}", code, says, custom_hooks=f"[{text}]", **changes)

    return [
        hook(
            "unknown",
            "ProgresHook",
            listed("7:16  custom_hooks[0]: unknown hook 'ProgresHook'; did you mean 'ProgressHook'?"),
        ),
        hook(
            "method",
            "'bad:Misspelt'",
            "Misspelt.after_train_itr (bad.py:148): unknown point 'after_train_itr'; did you mean "
            "'after_train_iter'? If it is a helper, mark it with @not_a_point.",
        ),
        hook(
            "argument",
            "'bad:WrongArgument'",
            "WrongArgument.after_train_iter (bad.py:151): after_train_iter(runner, batch_idx, data_batch, "
            "outputs) has no argument 'output'; did you mean 'outputs'?",
        ),
        hook(
            "first_argument",
            "'bad:WrongFirst'",
            "WrongFirst.after_train_iter (bad.py:154): its first parameter receives the runner, but 'batch_idx' "
            "is an argument of the point; write (runner, batch_idx)",
        ),
        hook(
            "generator",
            "'bad:Generates'",
            "Generates.before_train (bad.py:157): its body would never run, because it is a generator or a "
            "coroutine; write a plain method, or name a method with a yield around_<scope>",
        ),
        hook(
            "no_yield",
            "'bad:NoYield'",
            "NoYield.around_train (bad.py:161): an around_ hook must be a generator function with one yield, "
            "but this one has none",
        ),
        hook(
            "runs_after_nobody",
            "'bad:After'",
            "After: runs_after names an unknown hook 'LogerHook'; did you mean 'LoggerHook'?",
        ),
        hook(
            "too_early",
            "'bad:TooEarly'",
            "the order of the hooks is contradictory: TooEarly declares runs_after LoggerHook, but a lower number "
            "runs first: LoggerHook (priority BELOW_NORMAL (60)), TooEarly (priority HIGHEST (0)). Give "
            "TooEarly a priority of at least 60, or LoggerHook one of at most 0.",
        ),
        hook(
            "circle",
            "'bad:CircleA', 'bad:CircleB'",
            "the order of the hooks is circular: CircleA declares runs_after CircleB; CircleB declares "
            "runs_after CircleA",
        ),
        hook(
            "priority_of_the_class", "'bad:OddPriority'", "OddPriority: unknown priority 'HIGHER'; did you mean 'HIGH'?"
        ),
        hook("role", "'bad:OddRole'", "OddRole: the role must be 'actor' or 'observer', not 'obsrver'"),
        hook(
            "priority",
            "{type: ProgressHook, priority: LOWW}",
            listed("7:37  custom_hooks[0].priority: unknown priority 'LOWW'; did you mean 'LOW'?"),
        ),
        hook(
            "priority_out_of_range",
            "{type: ProgressHook, priority: 101}",
            listed(
                "7:37  custom_hooks[0].priority: the priority 101 is outside 0..100; 0 runs first, NORMAL is 50, "
                "LOWEST is 100"
            ),
        ),
        hook(
            "priority_contradicts",
            "",
            "the order of the hooks is contradictory: LoggerHook declares runs_after RuntimeInfoHook, but a lower "
            "number runs first: RuntimeInfoHook (priority VERY_HIGH (10)), LoggerHook (priority HIGHEST (0)). "
            "Give LoggerHook a priority of at least 10, or RuntimeInfoHook one of at most 0.",
            default_hooks="{logger: {priority: HIGHEST}}",
        ),
        hook(
            "on_error",
            "{type: ProgressHook, on_error: ignore}",
            listed("7:37  custom_hooks[0].on_error: expected 'raise' or 'disable', found 'ignore'"),
        ),
        hook(
            "actor_disabled",
            "{type: 'bad:Raising', on_error: disable}",
            listed(
                "7:38  custom_hooks[0].on_error: Raising affects training, so a run cannot continue without it; "
                "only observers can be disabled"
            ),
        ),
        hook(
            "no_hook", "'mynet:Net'", "Net is not a hook: it creates a Net, which does not inherit from hookline.Hook"
        ),
        hook("without_type", "{interval: 3}", listed("7:16  custom_hooks[0]: the key 'type' is missing")),
        hook(
            "exits",
            "'bad:Exiting'",
            "sys.exit() was called after iteration 0 (hook Exiting at after_train_iter), so the run is not finished; "
            "to end a training early, call runner.stop(reason)",
            1,
        ),
        hook(
            "state",
            "'bad:OddState'",
            "the state of OddState['seen'] is a builtins.set, which a checkpoint cannot store; use tensors and "
            "plain data (numbers, strings, lists, dicts)",
        ),
        hook(
            "asks_for_validation",
            "'bad:AsksForValidation'",
            "a validation was requested, but this run has none; add `val` to the Runner or to the config\n  in "
            "hook AsksForValidation, at after_train_iter, epoch=0 iter=0 rank=0 (bad.py:207)",
            val=None,
        ),
        hook(
            "unknown_scalar",
            "'bad:UnknownScalar'",
            "nothing is recorded as 'train/los'; did you mean 'train/loss'?\n  in hook UnknownScalar, at "
            "after_train_iter, epoch=0 iter=0 rank=0 (bad.py:211)",
            1,
        ),
        hook(
            "unknown_point",
            "'bad:CallsUnknownPoint'",
            "unknown point 'after_rendr'; did you mean 'after_run'?\n  in hook CallsUnknownPoint, at "
            "after_train_iter, epoch=0 iter=0 rank=0 (bad.py:215)",
        ),
        hook(
            "point_of_ones_own",
            "",
            listed(
                "8:1  points: the point 'after_train_iter' already exists: after_train_iter(runner, batch_idx, "
                "data_batch, outputs)"
            ),
            points="{after_train_iter: []}",
        ),
        raising("fault_27_hook_cannot_be_made", 1, "ValueError: no licence\n", custom_hooks="['bad:CannotBeMade']"),
        raising(
            "fault_27_hook_raises",
            1,
            "RuntimeError: the meter is gone\nin hook Raising, at after_train_iter, epoch=0 iter=1 rank=0 (bad.py:",
            custom_hooks="['bad:Raising']",
        ),
    ]


def _words() -> list[Case]:
    """Return cases with invalid commands, options and overrides."""

    def words(
        name: str, *given: str, code: int = 2, says: str = "", mentions: tuple[str, ...] = (), **more: Any
    ) -> Case:
        return Case(f"command_{name}", code, says, mentions, words=given, **more)

    return [
        words("unknown", "trian", "config.yaml", mentions=("No such command 'trian'",)),
        words("option", "train", "config.yaml", "--resum", mentions=("No such option: --resum",)),
        words("option_without_value", "train", "config.yaml", "--allow", mentions=("--allow",)),
        words(
            "override_without_equals",
            "train",
            "config.yaml",
            "seed",
            says="override 'seed': missing '='; write an override as key.path=value",
        ),
        words(
            "override_of_nothing",
            "train",
            "config.yaml",
            "sede=1",
            says="config.yaml: 1 error\n  override 'sede=1'  sede: unknown key 'sede'; did you mean 'seed'?",
        ),
        words(
            "override_of_a_list",
            "train",
            "config.yaml",
            "custom_hooks[3].type=x",
            says="override 'custom_hooks[3].type=x': 'custom_hooks' does not exist, but [3] needs a list",
        ),
        words(
            "override_of_a_type",
            "train",
            "config.yaml",
            "train.max_epochs=many",
            says="config.yaml: 1 error\n  override 'train.max_epochs=many'  train.max_epochs: expected an int, "
            "found 'many'",
        ),
        words(
            "override_no_path",
            "train",
            "config.yaml",
            "a..b=1",
            says="override 'a..b=1': the key is not a valid path; write it like optim.optimizer.lr or "
            "custom_hooks[0].type",
        ),
        words(
            "second_config",
            "train",
            "config.yaml",
            "other.yaml",
            says="override 'other.yaml': missing '='; write an override as key.path=value",
        ),
        words(
            "missing_file",
            "train",
            "nowhere/config.yaml",
            says="nowhere/config.yaml: file not found; there is no folder nowhere",
        ),
        words("test_without_checkpoint", "test", "config.yaml", mentions=("choose what to test",)),
        words(
            "test_without_test_set",
            "test",
            "config.yaml",
            "--checkpoint",
            "runs/run/epoch_1.pth",
            says="this run has no test loop; add one: the section 'test' of the config",
            config=config(test=None),
            prepare=put_run,
        ),
        words("hooks_unknown", "hooks", "LogerHook", says="unknown hook 'LogerHook'; did you mean 'LoggerHook'?"),
        words(
            "plan_of_a_bad_config",
            "plan",
            "config.yaml",
            says=listed("7:16  custom_hooks[0]: unknown hook 'ProgresHook'; did you mean 'ProgressHook'?"),
            config=config(custom_hooks="[ProgresHook]"),
        ),
        words(
            "dry_run_of_a_bad_step",
            "train",
            "config.yaml",
            "--dry-run",
            code=1,
            says=f"the loss of the step is a tensor of shape (2,); {WHAT_TO_RETURN}\n"
            "  in the step, epoch=0 iter=0 rank=0",
            config=config(train=training(step='"bad:vector"')),
            files={"bad.py": BAD},
        ),
        words(
            "init_below_a_file",
            "init",
            "config.yaml/mine",
            code=5,
            says="config.yaml/mine cannot be written: Not a directory",
        ),
        words(
            "init_where_something_is",
            "init",
            ".",
            says=". already contains config.yaml, mynet.py; nothing was changed; choose another folder",
        ),
        words(
            "schema_nowhere",
            "schema",
            "--out",
            "nowhere/schema.json",
            code=5,
            says="nowhere/schema.json cannot be written: No such file or directory",
        ),
        words(
            "allow_missing",
            "train",
            "config.yaml",
            "--allow",
            "nowhere",
            "imports=[nowhere]",
            says="config.yaml: 1 error\n  override 'imports=[nowhere]'  imports[0]: the module 'nowhere' was not found",
        ),
    ]
