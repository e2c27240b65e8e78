"""EvaluateHook: the user's evaluation function, called periodically, and its best result."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hookline.checkpoint import store
from hookline.checkpoint.seal import Note, read_note
from hookline.common import rng
from hookline.common.checks import check_int
from hookline.common.modes import in_mode
from hookline.common.monitor import monitor
from hookline.common.numbers import as_number
from hookline.dialects.imix.engine.hooks.base_hook import HookBase
from hookline.dialects.imix.engine.hooks.ema import averaged_weights
from hookline.dialects.imix.engine.hooks.periods.elsewhere import check_path, resolve_path
from hookline.errors import ConfigError
from hookline.hooks.evaluate import results_of
from hookline.plan.functions import asked_for

BEST = "best_result.pth"
BEST_MODEL = "model_best.pth"


class EvaluateHook(HookBase):
    """Calls an evaluation function periodically, and keeps the checkpoint with the best result.

    The function takes no arguments, or the model, or `trainer` by name. It returns a number or a mapping of names to
    numbers. It is called in evaluation mode, without gradients, and with averaged weights if an EMAIterHook keeps them.
    The random numbers that it draws do not change the training.

    Each evaluation is one line of JSON. Its numbers are also recorded in the log buffer. A name that training records
    too gets the prefix `eval/`. The best state so far is saved as `best_result.pth`, a complete checkpoint. At the end,
    its weights are saved as `model_best.pth`.

    Results are compared by their first number, and, if that is equal, by the next one. Higher is better, except for
    names such as loss or error, where lower is better.

    Args:
        eval_function: The function to call.
        eval_iter_period: The number of iterations between two evaluations; training by iterations also ends with one.
            Without it, evaluate after every epoch, or, when training by iterations, once at the end.
        is_run_eval: Whether evaluation is on.
        eval_json_file: The file of the results. A bare name is a file in `work_dir`.
    """

    _cleans_up = False

    def __init__(
        self,
        eval_function: Callable[..., Any],
        eval_iter_period: int | None = None,
        is_run_eval: bool = True,
        eval_json_file: str = "eval_result.json",
    ) -> None:
        self._call = asked_for(eval_function, ("model", "trainer"), "EvaluateHook: eval_function", first="model")
        if eval_iter_period is not None:
            check_int("EvaluateHook: eval_iter_period", eval_iter_period, least=1)
        check_path("EvaluateHook: eval_json_file", eval_json_file, of_file=True)
        self.eval_function = eval_function
        self.eval_iter_period = eval_iter_period
        self.is_run_eval = is_run_eval
        self.eval_json_file = eval_json_file
        #: The result of every evaluation, with the epoch and iteration.
        self.results: list[dict[str, Any]] = []
        #: The best result.
        self.best: dict[str, Any] | None = None
        self._owed = False
        self._best_at = -1

    def idle_points(self, runner: Any) -> list[str]:
        """Return the points to skip: all of them if evaluation is off."""
        points = ["after_train_iter", "after_train_epoch", "after_train"]
        return [*super().idle_points(runner), *([] if self.is_run_eval else points)]

    def after_train_iter(self) -> None:
        """Evaluate if it is due. Inside an accumulation window, wait for its end."""
        trainer = self.trainer
        done, period = trainer.iter + 1, self.eval_iter_period
        last = not trainer.by_epoch and done == trainer.max_iter
        self._owed = self._owed or last or (period is not None and done % period == 0)
        if self._owed and not trainer.runner.accumulating:
            self.evaluate(trainer, done)

    def after_train_epoch(self) -> None:
        """Evaluate, unless there is an `eval_iter_period`."""
        if self.eval_iter_period is None:
            self.evaluate(self.trainer, self.trainer.iter)

    def after_train(self) -> None:
        """Print the best result and save its weights."""
        trainer, best = self.trainer, self.best
        if best is None:
            return
        path, is_main = Path(trainer.work_dir) / BEST, trainer.runner.strategy.is_main
        if is_main and path.exists() and (note := read_note(path)) is not None:
            weights = store.read(path, sealed=True)["state_dict"]
            store.write_verified({"state_dict": weights}, path.with_name(BEST_MODEL), Note(note.step, note.validations))
        place_of_best = f"epoch {best['epoch']}" if "epoch" in best else f"iteration {best['iter']}"
        trainer.runner.terminal.say(f"the best evaluation was at {place_of_best}: {format_metrics(best)}")

    # -- one evaluation

    def evaluate(self, trainer: Any, done: int) -> None:
        """Evaluate after `done` finished iterations."""
        self._owed = False
        # Each process may have evaluated a part of the data. The main one decides for all, as in iMIX.
        measured = trainer.runner.strategy.gather(results_of(self.eval_function, self._measure(trainer)))[0]
        if not measured:
            return
        result: dict[str, Any] = {"iter": trainer.iter, "max_iter": trainer.max_iter}
        if trainer.by_epoch:
            result |= {"epoch": trainer.epoch, "max_epoch": trainer.max_epoch}
        result["metrics"] = measured
        trainer.runner._host.journal.note("validation", step=done)
        self.results.append(result)
        self._write(trainer)
        buffer = trainer.log_buffer
        for name, value in measured.items():
            taken = buffer.is_recorded_per_iteration(name)  # the evaluation loss is not the training loss
            buffer.put_scalar(f"eval/{name}" if taken else name, value, is_epoch=True)
        better = self.best is None or score(measured) > score(self.best["metrics"])
        if better:
            self.best, self._best_at = result, done
            self._save_best(trainer)
        trainer.runner.terminal.say(f"evaluation  {format_metrics(result)}{'  (best)' * better}")

    def _save_best(self, trainer: Any) -> None:
        trainer.runner.request_save(lambda position: BEST, folder=Path(trainer.work_dir), together=True)

    def _measure(self, trainer: Any) -> Any:
        runner = trainer.runner
        with runner.paused(), averaged_weights(trainer), rng.preserved(), in_mode(runner.model, training=False):
            return self._call(model=trainer.model, trainer=trainer)

    def _write(self, trainer: Any) -> None:
        """Rewrite the file with all results. So it is always complete, and has each result once after a resume."""
        if not trainer.runner.strategy.is_main:
            return
        flat = [{key: each[key] for key in each if key != "metrics"} | each["metrics"] for each in self.results]
        lines = [json.dumps(each) for each in flat]
        path = resolve_path(self.eval_json_file, Path(trainer.work_dir))
        path.parent.mkdir(parents=True, exist_ok=True)
        with store.replacing(path) as file:
            file.write("".join(f"{line}\n" for line in lines).encode())

    # -- across a resume

    def state_dict(self) -> dict[str, Any]:
        """Return the results so far."""
        return {"results": list(self.results), "best": self.best, "best_at": self._best_at, "owed": self._owed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the results. If the process was killed before it wrote the best checkpoint, write it now."""
        self.results, self.best = list(state["results"]), state["best"]
        self._best_at, self._owed = state["best_at"], state["owed"]
        trainer = self.trainer
        if self.results:
            self._write(trainer)
        path = Path(trainer.work_dir) / BEST
        note = trainer.runner.strategy.on_main(lambda: read_note(path) if path.exists() else None)
        if self._best_at == trainer.runner.iter and (note is None or note.step != self._best_at):
            self._save_best(trainer)


def score(metrics: Mapping[str, float]) -> tuple[float, ...]:
    """Return values to compare, where higher is better: negated if lower is better, and -inf for NaN."""
    return tuple(
        -math.inf if math.isnan(value) else -value if less_is_better(name) else value for name, value in metrics.items()
    )


def less_is_better(name: str) -> bool:
    """Return whether a lower value is better, judged by the name of the metric."""
    try:
        return monitor(name).rule == "less"
    except ConfigError:
        return False


def format_metrics(result: Mapping[str, Any]) -> str:
    """Return the numbers of a result as text for one line."""
    return "  ".join(f"{name} {as_number(value)}" for name, value in result["metrics"].items())
