"""CheckpointHook: saves checkpoints at an interval, at the end of training, and for the best metrics."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hookline.checkpoint.names import is_template, pattern_of
from hookline.checkpoint.retention import clean_up, keep_newest
from hookline.common.checks import check_choice, check_int
from hookline.common.escape import escaped
from hookline.common.files import real_path
from hookline.common.monitor import AUTO, BestCheckpoint, monitor
from hookline.common.numbers import as_number, as_repr
from hookline.errors import ConfigError
from hookline.hooks.best import Best, check_rules, refuse_without_best, remove_others
from hookline.hooks.published import publish, refuse_missing, refuse_misspelled
from hookline.plan.milestones import Milestone
from hookline.rundir.capsule import kept_checkpoints
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from hookline.runner.runner import Runner

log = logging.getLogger("hookline")


class CheckpointHook(Hook):
    """Saves checkpoints at an interval, at the end of training, and for the best metrics.

    The files are called `epoch_5.pth` or `iter_100.pth`, and `best_accuracy_epoch_5.pth`. docs/checkpoints.md
    describes them, and how a run resumes.

    Cost: nothing between two saves. During a save, training waits until the file is written, or, with `async_save`,
    until the state is copied in memory. `save_on_exception` copies the state every step, or every n steps. For a small
    model, this can take longer than the step.

    Example:
        from hookline.testing import toy_runner

        saving = {"interval": 1, "max_keep_ckpts": 2, "save_best": "accuracy"}
        toy_runner(max_epochs=3, default_hooks={"checkpoint": saving}).train()

    YAML:
        default_hooks:
          checkpoint: {interval: 1, max_keep_ckpts: 2, save_best: accuracy}

    Args:
        interval: Save every `interval` epochs or iterations. 0 or less saves only at the end. By default, save every
            epoch, or, when training by iterations, as often as validation.
        by_epoch: Count epochs instead of iterations. By default, as the training loop does.
        save_optimizer: Save the state of the optimizers. A run can only be resumed from a checkpoint that has it.
        save_param_scheduler: Save the state of the schedulers, which is also needed to resume.
        out_dir: Save into `<out_dir>/<name of the run's folder>` instead of the run's folder.
        max_keep_ckpts: Keep at most this many of the newest checkpoints, besides the best. -1 keeps all.
        save_last: Save at the end of training, regardless of the interval.
        save_best: Keep the best checkpoint for these metrics; `auto` means the first metric.
        rule: `greater` or `less`, whichever is better, for all metrics or one per metric. By default, it is inferred
            from the metric's name.
        greater_keys: Words in a metric's name that mean greater is better. They replace the built-in ones.
        less_keys: The same for less.
        filename_tmpl: The file name template, with `{}` for the number of the epoch or iteration.
        max_keep_best: The number of best checkpoints to keep per metric.
        published_keys: At the end, write a file with only these entries for the last and each best checkpoint, named
            after its SHA-256.
        save_begin: The first epoch or iteration to save. The interval counts from there.
        async_save: Write in the background. The step only waits for a copy of the state.
        save_on_exception: Copy the state in memory every step, or every n steps, and write the newest copy if the run
            fails. The state at the failure itself is never saved.
        on_save_error: `raise` ends the run if a checkpoint cannot be written. `go_on` warns and tries again at the next
            save. The last checkpoint must be written in any case.
        params: `trainable` saves only the parameters that are trained, and others that have changed. On resume, the
            rest comes from the model as it is built, and is compared by hash.
    """

    priority = "VERY_LOW"
    runs_after = ("ParamSchedulerHook",)

    def __init__(
        self,
        interval: int | None = None,
        by_epoch: bool | None = None,
        save_optimizer: bool = True,
        save_param_scheduler: bool = True,
        out_dir: str | None = None,
        max_keep_ckpts: int = -1,
        save_last: bool = True,
        save_best: str | list[str] | None = None,
        rule: str | list[str] | None = None,
        greater_keys: list[str] | None = None,
        less_keys: list[str] | None = None,
        filename_tmpl: str | None = None,
        max_keep_best: int = 1,
        published_keys: str | list[str] | None = None,
        save_begin: int = 0,
        async_save: bool = False,
        save_on_exception: bool | int = False,
        on_save_error: Literal["raise", "go_on"] = "raise",
        params: Literal["all", "trainable"] = "all",
    ) -> None:
        if filename_tmpl is not None and not is_template(filename_tmpl):
            raise ConfigError(
                f"CheckpointHook: filename_tmpl must be a file name with one {{}} that ends with .pth, not "
                f"{filename_tmpl!r}"
            )
        if interval is not None:
            check_int("CheckpointHook: interval", interval)
        check_int("CheckpointHook: max_keep_ckpts", max_keep_ckpts)
        if max_keep_ckpts == 0:
            raise ConfigError("CheckpointHook: max_keep_ckpts must be at least 1, or -1 to keep all, not 0")
        check_int("CheckpointHook: save_begin", save_begin, least=0)
        check_int("CheckpointHook: max_keep_best", max_keep_best, least=1)
        check_choice("CheckpointHook: params", params, ("all", "trainable"))
        check_choice("CheckpointHook: on_save_error", on_save_error, ("raise", "go_on"))
        if not isinstance(save_on_exception, int) or save_on_exception < 0:
            raise ConfigError(
                f"CheckpointHook: save_on_exception must be true, false or a number of steps, not "
                f"{as_repr(save_on_exception)}"
            )
        check_int("CheckpointHook: save_on_exception", int(save_on_exception))
        self.interval, self._interval, self.by_epoch = interval, 0, by_epoch
        self.save_optimizer, self.save_param_scheduler = save_optimizer, save_param_scheduler
        self.params, self.out_dir = params, out_dir
        self.max_keep_ckpts = max_keep_ckpts
        self.save_last = save_last
        self.save_best = [save_best] if isinstance(save_best, str) else list(save_best or [])
        self.filename_tmpl = filename_tmpl
        self.max_keep_best = max_keep_best
        self.published_keys = [published_keys] if isinstance(published_keys, str) else list(published_keys or [])
        refuse_misspelled(self.published_keys)
        self.save_begin = save_begin
        self.async_save = async_save
        self.save_on_exception = int(save_on_exception)
        self.on_save_error = on_save_error
        refuse_without_best(
            self.save_best, rule=rule, greater_keys=greater_keys, less_keys=less_keys, max_keep_best=max_keep_best
        )
        self._rules = check_rules(self.save_best, rule)
        self._keys = (greater_keys, less_keys)
        #: The best checkpoints so far, by metric.
        self.best: dict[str, Best] = {}
        self._last: Path | None = None

    def _watch(self, name: str) -> Best:
        rule = self._rules.get(name, self._rules.get(AUTO))
        watched = monitor(name, rule, *self._keys, who="CheckpointHook: save_best")
        self.best[name] = Best(watched, self.max_keep_best).refuse_label_of(self.best.values())
        return self.best[name]

    # -- questions from other parts

    def idle_points(self, runner: Runner) -> list[str]:
        """Return the points to skip: the points of the unit that is not counted, and of options that are off."""
        if not runner.has_training:
            return []
        epochs, never = self._counts_epochs(runner), not self.save_last and self.interval is not None
        never = never and (self.interval or 0) < 1
        idle = {
            "after_train_iter": (epochs or never) and not self.save_on_exception,
            "after_train_epoch": not epochs or never,
            "after_val_epoch": not self.save_best,
            "before_save_checkpoint": not self.published_keys,
            "after_train": not self.save_last,
            "after_run": not self.published_keys,
            "on_exception": not self.save_on_exception,
        }
        return [point for point, nothing_to_do in idle.items() if nothing_to_do]

    def must_reach(self, runner: Runner) -> list[Milestone]:
        """Return the first save at the interval. With `save_last`, there is a save in any case."""
        interval = self._default_interval(runner) if self.interval is None else self.interval
        if self.save_last or interval < 1:
            return []
        name, first = ("save_begin", self.save_begin) if self.save_begin else ("interval", interval)
        effect = "only the best checkpoints are saved" if self.save_best else "nothing is saved"
        return [Milestone(name, first, first, "epoch" if self._counts_epochs(runner) else "iteration", effect)]

    def watched_metrics(self) -> Sequence[str]:
        """Return the metrics whose best checkpoint is kept."""
        return self.save_best

    def know_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Check that every monitored metric is a number and that its rule is known."""
        for best in self._all_best(metrics):
            best.monitor.value(metrics, "CheckpointHook: save_best")

    def checkpoint_folder(self, runner: Runner) -> Path:
        """Return the folder that this hook saves to."""
        return Path(self.out_dir) / real_path(runner.work_dir).name if self.out_dir is not None else runner.work_dir

    def saved_as_best(self, runner: Runner) -> list[BestCheckpoint]:
        """Return the best value and its file for each metric of `save_best`."""
        folder = self.checkpoint_folder(runner)
        # The loop may add or take back an entry meanwhile, so each list is read once.
        tops = [(best.monitor, best.kept[:1]) for best in list(self.best.values())]
        return [
            BestCheckpoint(monitor, top[0][0], folder / top[0][1]) if top else BestCheckpoint(monitor, None, None)
            for monitor, top in tops
        ]

    def state_dict(self) -> dict[str, Any]:
        """Return the best values so far."""
        return {name: best.state_dict() for name, best in self.best.items() if best.kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the best values so far. Metrics that are no longer monitored are ignored."""
        for name, saved in state.items():
            if name in self.best:
                self.best[name].load_state_dict(saved)
            elif name in self.save_best or (self.save_best == [AUTO] and not self.best):
                self._watch(name).load_state_dict(saved)
        if self._host is not None:
            for best in self.best.values():
                self._save_if_missing(best)
                self._remove_leftovers(best)

    def _save_if_missing(self, best: Best) -> None:
        """If the process was killed between the regular save and the best save, write the missing best file now."""
        options = self._best_options(best)
        path = self.runner.checkpoint_path(**options)
        named = path.name in [name for _, name in best.kept]
        if self.runner.strategy.on_main(lambda: named and not os.path.lexists(path)):
            self.runner.request_save(**options)

    def _remove_leftovers(self, best: Best) -> None:
        """If the process was killed between a best save and the removal of earlier ones, remove these now."""
        kept = [self.checkpoint_folder(self.runner) / name for _, name in best.kept]
        if self.runner.strategy.is_main and kept and all(path.exists() for path in kept):
            remove_others(self._names(best.prefix), kept[0], keep=[path.name for path in kept])

    def _counts_epochs(self, runner: Runner) -> bool:
        return runner.train_loop.counts_epochs(self.by_epoch, "CheckpointHook")

    def _default_interval(self, runner: Runner) -> int:
        """Return 1 epoch, or, if iterations are counted, the interval of validation, or 1,000 without validation."""
        if self._counts_epochs(runner):
            return 1
        loop = runner.train_loop
        return loop.val_interval if runner.val_loops and not loop.by_epoch else 1000

    # -- points

    def before_train(self, runner: Runner) -> None:
        """Validate the options, resolve the default interval, and remove leftovers of a killed run."""
        if self.save_on_exception and runner.strategy.checkpoints.are_sharded:
            raise ConfigError(
                f"CheckpointHook: save_on_exception cannot be used with the strategy '{runner.strategy.name}': after a "
                "failure, the processes cannot write a sharded checkpoint together; remove it, and save more often"
            )
        self._check_params(runner)
        self._interval = self._default_interval(runner) if self.interval is None else self.interval
        if self.max_keep_ckpts >= 1 and runner.resumed_at >= 0:
            assert runner.saving.last_path is not None, "it was resumed from there"
            given = self.checkpoint_folder(runner), runner.saving.last_path, kept_checkpoints(runner.work_dir)
            runner.strategy.on_main(lambda: clean_up(self.max_keep_ckpts, self._names(), *given))

    def _check_params(self, runner: Runner) -> None:
        """Refuse to save only trained parameters if no process has whole tensors. Report it if all are trained."""
        if self.params != "trainable":
            return
        if runner.strategy.checkpoints.are_sharded:
            raise ConfigError(
                f"CheckpointHook: params: trainable cannot be used with the strategy '{runner.strategy.name}': every "
                "process has only a part of each tensor, so the frozen rest cannot be compared; use params: all"
            )
        trained = runner.trained_names()
        if all(name in trained for name, _ in runner.model.named_parameters(remove_duplicate=False)):
            log.warning("CheckpointHook: params: trainable saves as much as all, because every parameter is trained")

    def after_train_iter(self, runner: Runner) -> None:
        """Save when training by iterations, if it is due. Keep a copy for `save_on_exception`."""
        if self.save_on_exception and (runner.iter + 1) % self.save_on_exception == 0:
            runner.request_save(**self._options(runner, in_memory=True, name="iter_{}.pth", by_epoch=False))
        if self._counts_epochs(runner):
            return
        due = self.every_n_train_iters(runner, self._interval, self.save_begin)
        if due or (self.save_last and self.is_last_train_iter(runner)):
            runner.request_save(**self._options(runner))

    def after_train_epoch(self, runner: Runner) -> None:
        """Save when training by epochs, if it is due."""
        due = self.every_n_epochs(runner, self._interval, self.save_begin)
        if due or (self.save_last and self.is_last_train_epoch(runner)):
            runner.request_save(**self._options(runner))

    def after_val_epoch(self, runner: Runner, metrics: Mapping[str, Any]) -> None:
        """Save a checkpoint if it is among the best, under its name of now: a hook may validate inside an epoch."""
        for best in self._all_best(metrics):
            value = best.monitor.value(metrics, "CheckpointHook: save_best")
            if runner.running != "train" or not best.is_worth_keeping(value):
                continue
            if runner.accumulating:  # an update follows before the next save
                log.warning("CheckpointHook: a new best value inside an accumulation window cannot be saved")
                continue
            before, path = list(best.kept), runner.checkpoint_path(**self._best_options(best))
            best.add(value, path.name)
            runner.request_save(**self._best_options(best, before, name=lambda _, name=path.name: name))
            self._tell(best)
            if best.top[1] == path.name:
                new = f"new best {escaped(best.monitor.name)}: {as_number(value)}, to be saved as {path.name}"
                runner.terminal.detail(new.__str__)

    def after_train(self, runner: Runner) -> None:
        """Save the last checkpoint, even after an early stop, unless another hook has already saved it."""
        runner.saving.finish()
        last = self._options(runner, needed=True)
        if self.save_last and runner.strategy.on_main(lambda: self._lacks(runner, runner.checkpoint_path(**last))):
            runner.request_save(**last)

    def _lacks(self, runner: Runner, path: Path) -> bool:
        """Return whether the last checkpoint is still to be saved. If another hook has saved it, it counts as ours."""
        saving = runner.saving
        if self._last == path or runner.resumed_at == runner.iter:
            return False
        if saving.saved_at == runner.iter and saving.last_path == path:
            self._saved(path)
            return False
        return True

    def after_run(self, runner: Runner) -> None:
        """Publish the last and the best checkpoints."""
        if self.published_keys and runner.running == "train" and runner.strategy.is_main:
            best = [name for best in self.best.values() for _, name in best.kept]
            for path in publish(self.checkpoint_folder(runner), self._names(), best, self.published_keys):
                runner.terminal.say(f"published {path}")

    def before_save_checkpoint(self, runner: Runner, checkpoint: Mapping[str, Any]) -> None:
        """Check that the checkpoint has all entries to publish."""
        refuse_missing(self.published_keys, checkpoint)

    def on_exception(self, runner: Runner, error: BaseException) -> None:
        """Write the newest state that was kept in memory."""
        wanted = self.save_on_exception and isinstance(error, Exception)
        if wanted and (path := runner.saving.write_kept()) is not None:
            runner.terminal.say(f"the run failed; saved its last state before the failure to {path}")

    # -- requesting saves, and cleaning up the folder

    def _all_best(self, metrics: Mapping[str, Any]) -> list[Best]:
        if self.save_best and not self.best:
            if not metrics:
                raise ConfigError("CheckpointHook: save_best needs a metric, but validation returns none")
            for name in self.save_best:
                self._watch(name if name != AUTO else next(iter(metrics)))
        return list(self.best.values())

    def _options(self, runner: Runner, **changes: Any) -> dict[str, Any]:
        """Return the options of a save at the interval."""
        return {
            "name": self.filename_tmpl,
            "by_epoch": self._counts_epochs(runner),
            "folder": self.checkpoint_folder(runner),
            "optimizer": self.save_optimizer,
            "schedulers": self.save_param_scheduler,
            "params": self.params,
            "background": self.async_save,
            "needed": self.on_save_error == "raise",
            "done": self._saved,
            "together": True,
            **changes,
        }

    def _best_options(self, best: Best, before: Any = None, **changes: Any) -> dict[str, Any]:
        """Return the options of a best save. If it cannot be written, the entries in `before` are the best again."""
        done = partial(remove_others, self._names(best.prefix), keep={name for _, name in best.kept})
        failed = partial(self._tell, best, best.kept if before is None else before)
        return self._options(self.runner, prefix=best.prefix, done=done, failed=failed, **changes)

    def _tell(self, best: Best, kept: list[tuple[float, str]] | None = None) -> None:
        """Publish the best value in the hub. If `kept` is given, restore these earlier entries first."""
        best.kept = best.kept if kept is None else kept
        several = f"_{best.monitor.name}" if len(self.best) > 1 else ""
        score, name = best.kept[0] if best.kept else (None, None)
        self.runner.hub.update_info(f"best_score{several}", score)
        self.runner.hub.update_info(f"best_ckpt{several}", None if name is None else self._as_told(name))

    def _as_told(self, name: str) -> str:
        """Return how the hub refers to a file."""
        return name

    def _names(self, prefix: str = "") -> re.Pattern[str]:
        """Return the pattern of this hook's file names.

        If no other hook saves, the pattern includes the names of saves that other hooks request.
        """
        saving_hooks = [entry for entry in self.runner.plan if entry.checkpoint_folder(self.runner) is not None]
        template = self.filename_tmpl or ("epoch_{}.pth" if self._counts_epochs(self.runner) else "iter_{}.pth")
        templates = {template, "epoch_{}.pth", "iter_{}.pth"} if prefix or len(saving_hooks) == 1 else {template}
        return pattern_of(templates, prefix)

    def _saved(self, saved: Path) -> None:
        """Remember the newest checkpoint, and remove those beyond `max_keep_ckpts`."""
        self._last = saved
        if self.max_keep_ckpts >= 1:
            keep_newest(self.max_keep_ckpts, self._names(), saved, kept_checkpoints(self.runner.work_dir))
