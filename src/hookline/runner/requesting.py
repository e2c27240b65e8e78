"""Requesting: what hooks may ask a Runner to do. The loop handles it where no accumulation window is open."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from hookline.errors import HookError
from hookline.plan.callers import call_in_progress
from hookline.plan.plan import SKIPPING
from hookline.run.requests import Stop, When
from hookline.run.save_request import FileName, SaveOptions, build_save_request
from hookline.runner.view import View


class Requesting(View):
    """The requests to a run; see `hookline.run.requests`."""

    def stop(
        self,
        reason: str,
        when: When = "iter",
        *,
        for_now: bool = False,
        flush_window: bool = False,
        exit_code: int | None = None,
    ) -> None:
        """End training after the current iteration or epoch; `after_train` and `after_run` are still called.

        Args:
            reason: Shown to people, and stored in the checkpoint.
            when: `iter` or `epoch`.
            for_now: A resumed run continues (the time was up). Otherwise it does not, as long as the hook that stopped
                it is still there with the same parameters.
            flush_window: End an open accumulation window with this iteration, instead of waiting until it is full.
            exit_code: The exit code of the command line after this stop.
        """
        stop = Stop(reason or "no reason given", self._requester(), when, for_now)
        self._host.requests.ask_stop(stop, flush_window=flush_window, exit_code=exit_code)

    def end_with(self, exit_code: int) -> None:
        """Set the exit code of the command line, without stopping the run."""
        self._host.requests.end_with(exit_code)

    def skip_step(self, reason: str) -> None:
        """Skip the current batch: it does not change the weights.

        Before its backward pass, only this batch is skipped. After it, the whole accumulation window is dropped. At
        `before_train_iter`, the step is not computed at all, and `after_train_iter` is not called.
        """
        call = call_in_progress(self)
        if call is not None and call.point.name in ("after_train_iter", "after_optimizer_step"):
            raise HookError(
                "skip_step was called after the optimizer step; call it at before_optimizer_step or earlier"
            )
        if not self.strategy.acts_alone and (call is None or call.point.name not in SKIPPING):
            raise HookError(
                "with several processes, skip_step can only be called by a hook at "
                f"{', '.join(SKIPPING[:-1])} or {SKIPPING[-1]}, because the processes agree there"
            )
        self._host.requests.ask_skip(reason or "requested by a hook")
        self._host.optims.skip()

    def request_save(self, name: FileName = None, **options: Unpack[SaveOptions]) -> None:
        """Save a checkpoint at the end of this iteration, epoch, validation, or of an open accumulation window.

        Args:
            name: The file name, with `{}` for the number of the epoch or iteration, or a function from the position to
                the name. By default `epoch_5.pth`, or `iter_100.pth` when training by iterations or inside an epoch.
            options: `folder`, `prefix` of the file name, `by_epoch`, `optimizer` and `schedulers` (False leaves them
                out), `meta` (more facts), `background`, `in_memory`, `needed` (False warns instead of ending the run if
                the file cannot be written), `done` and `failed`. `done` is called with the path once the file is on
                disk and verified. Files of 1 MiB and more are verified in a thread while training continues, and so are
                those written with `background`: `done` is then called in that thread. It must not touch the model, and
                what it shares with the training needs a lock.
        """
        request = build_save_request(name, options)
        if not (request.together or self.strategy.is_main) and (request.done or request.failed):
            raise HookError(
                "request_save: only the main process writes, so it cannot call back 'done' or 'failed' of another one; "
                "ask in the main process (runner.rank == 0), or at the same iteration in all of them (together=True)"
            )
        self._host.requests.ask_save(request)

    def checkpoint_path(self, name: FileName = None, **options: Unpack[SaveOptions]) -> Path:
        """Return where a checkpoint with these options of `request_save` would be written at the current counters."""
        return self._host.saving.path(build_save_request(name, options))

    def request_val(self) -> None:
        """Validate at the end of this iteration, or, inside an accumulation window, at the end of the window."""
        if not self.val_loops:
            raise HookError(
                "a validation was requested, but this run has none; add `val` to the Runner or to the config"
            )
        self._host.requests.ask_validation()

    def _requester(self) -> str:
        """Return the name of the hook that is calling; empty if it is not a hook."""
        call = call_in_progress(self)
        return call.who if call is not None else ""
