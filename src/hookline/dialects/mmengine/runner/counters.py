"""The counters of a training loop, which are the run's counters. Requests are handled where a loop counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hookline.data.batches import Batches
from hookline.dialects.mmengine.runner import own_loops
from hookline.dialects.mmengine.runner.base_loop import BaseLoop
from hookline.engine import loops


class Counters(BaseLoop):
    """The counters, the stop and the iterator of a training loop, for projects that write `self._iter += 1`."""

    by_epoch: bool
    max_iters: int | None
    #: Whether the project's code is the loop, so that it counts epochs and iterations; and whether it does so now.
    is_own = True
    _counting = False
    #: The epoch, and the batch in it, at which the run is after the batch that was read last.
    _after_batch = (0, 0)
    _begun_at: tuple[int, int] | None = None

    @property
    def epoch(self) -> int:
        """Return the number of finished epochs."""
        return self.runner.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._epoch = epoch

    @property
    def iter(self) -> int:
        """Return the number of finished iterations."""
        return self.runner.iter

    @iter.setter
    def iter(self, iteration: int) -> None:
        self._iter = iteration

    @property
    def _epoch(self) -> int:
        return self.runner.position.epoch

    @_epoch.setter
    def _epoch(self, epoch: int) -> None:
        runner = self.runner
        runner.optims.flush()
        runner.position.epoch, runner.position.batch = epoch, 0
        if self._counting:
            self._set_data_epoch()
            loops.handle_requests(runner._host)

    @property
    def _iter(self) -> int:
        return self.runner.position.iter

    @_iter.setter
    def _iter(self, iteration: int) -> None:
        runner = self.runner
        runner.position.iter = iteration
        if self._counting and not self.by_epoch:
            if self._after_batch == self._begun_at:
                own_loops.warn_of_own_data(self)
            runner.position.epoch, runner.position.batch = self._after_batch
            if iteration == self.max_iters:
                runner.optims.flush()
            loops.handle_requests(runner._host)

    @property
    def stop_training(self) -> bool:
        """Return whether training will stop after the current epoch, or after the current iteration if not by epoch."""
        requests = self.runner._host.requests
        return bool(requests.stop or requests.stopped)

    @stop_training.setter
    def stop_training(self, stop: bool) -> None:
        if stop:
            self.runner.stop("stop_training was set", when="epoch" if self.by_epoch else "iter")
        else:
            self.runner._host.requests.cancel_stop()

    def begin_own(self) -> None:
        """Let the project's code count from the position of the run on."""
        self._counting = True
        self._begun_at = self._after_batch = (self.runner.position.epoch, self.runner.position.batch)
        self._set_data_epoch()

    def end_own(self) -> None:
        """Count no longer."""
        self._counting = False

    def follow(self) -> None:
        """Take the counts of a loop whose `epoch` and `iter` come from other attributes than `_epoch` and `_iter`."""
        position = self.runner.position
        if self._counting and self.iter != position.iter:
            self._iter = self.iter
        if self._counting and self.by_epoch and self.epoch != position.epoch:
            self._epoch = self.epoch

    def _set_data_epoch(self) -> None:
        if hasattr(self.dataloader, "set_epoch"):
            self.dataloader.set_epoch(self._epoch)

    def _endless(self) -> Iterator[Any]:
        """Yield the batches pass after pass, from the position of the run on."""
        epoch, start = self.runner.position.epoch, self.runner.position.batch
        while True:
            seed, resuming = self.runner.seed, start > 0
            for number, (batch, last) in enumerate(
                Batches(self.dataloader, None, epoch, start, seed, resuming=resuming), start + 1
            ):
                self._after_batch = (epoch + 1, 0) if last else (epoch, number)
                yield batch
            epoch, start = epoch + 1, 0
