"""SyncBuffersHook: the same buffers in all processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hookline.errors import DistributedError
from hookline.plan.hook import Hook

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hookline.engine.runner import Runner


class SyncBuffersHook(Hook):
    """Averages the buffers of the model over all processes after every training epoch.

    Batch norms, for one, have seen other data in every process. Buffers are also averaged before a validation in the
    middle of an epoch, or by iterations, and when training ends, if there were steps since the last time. Evaluation
    alone averages nothing.

    All processes end with the same bits. Floating-point and complex buffers become their mean, computed in 64 bits, so
    that what is the same everywhere in up to 32 bits stays as it is, infinities too. Integer ones become their maximum:
    a counter, such as that of a batch norm's batches, stays whole and never goes back. Of bools, it is enough that one
    is true. Buffers that the model does not save are averaged, too; sparse and quantized ones are left alone.

    The processes are those of torch.distributed's default group. In a single process there is nothing to do.

    Cost: nothing in one process; otherwise, for each device, one `all_reduce` of all floating-point buffers and one of
    all others, an epoch.

    Example:
        from hookline.hooks import SyncBuffersHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[SyncBuffersHook()]).train()

    YAML:
        custom_hooks:
          - {type: SyncBuffersHook}
    """

    # Inside of its validation the model may have averaged buffers, and those that train are meant.
    runs_before = ("EMAHook",)

    def __init__(self) -> None:
        # The iteration after which the buffers were the same everywhere.
        self._synced_at = 0

    def idle_points(self, runner: Runner) -> list[str]:
        """All of them, in one process."""
        return ["after_train_epoch", "after_train", "around_val"] if processes() == 1 else []

    def after_train_epoch(self, runner: Runner) -> None:
        """Average."""
        self._sync(runner)

    def after_train(self, runner: Runner) -> None:
        """A run that was stopped has not come to the end of its epoch."""
        self._sync(runner)

    def around_val(self, runner: Runner) -> Iterator[None]:
        """All processes validate with the same buffers."""
        if runner.running == "train":
            self._sync(runner)
        yield

    def _sync(self, runner: Runner) -> None:
        if runner.iter == self._synced_at or processes() == 1:
            return
        try:
            average_buffers(runner.model)
        except RuntimeError as error:  # what torch.distributed raises
            raise DistributedError(
                f"SyncBuffersHook: the buffers could not be averaged over {processes()} processes: {error}"
            ) from error
        self._synced_at = runner.iter

    def state_dict(self) -> dict[str, Any]:
        """The iteration after which the buffers were the same everywhere."""
        return {"synced_at": self._synced_at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._synced_at = state["synced_at"]


def processes() -> int:
    """How many processes train together, as far as torch.distributed knows."""
    from torch import distributed

    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def average_buffers(model: nn.Module) -> None:
    """Give all buffers of a model the same values in every process of the group."""
    import torch
    from torch import distributed

    groups: dict[tuple[torch.device, bool], list[Tensor]] = {}
    for buffer in model.buffers():
        if buffer.layout is torch.strided and not buffer.is_quantized:
            flat = torch.view_as_real(buffer) if buffer.is_complex() else buffer
            groups.setdefault((flat.device, flat.is_floating_point()), []).append(flat.detach())
    for (_, floating), buffers in groups.items():
        together = torch.cat([buffer.reshape(-1).to(torch.float64 if floating else torch.int64) for buffer in buffers])
        distributed.all_reduce(together, distributed.ReduceOp.SUM if floating else distributed.ReduceOp.MAX)
        if floating:
            together /= processes()
        for buffer, value in zip(buffers, torch.split(together, [buffer.numel() for buffer in buffers]), strict=True):
            buffer.copy_(value.view_as(buffer))
