"""SyncBuffersHook: keeps the buffers equal in all processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hookline.errors import DistributedError
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hookline.runner.runner import Runner


class SyncBuffersHook(Hook):
    """Averages the buffers of the model over all processes after every training epoch.

    The buffers are also averaged before a validation in the middle of an epoch or when training by iterations, and at
    the end of training. Evaluation alone averages nothing.

    Afterwards, the buffers are bit-identical in all processes. Floating-point and complex buffers become their mean,
    computed in 64 bits. Integer buffers become their maximum. A bool becomes true if it is true in any process. Buffers
    that the model does not save are averaged, too. Sparse and quantized buffers are left alone.

    Cost: nothing with one process. Otherwise, per epoch and device, one `all_reduce` of all floating-point buffers and
    one of all others.

    Example:
        from hookline.hooks import SyncBuffersHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[SyncBuffersHook()]).train()

    YAML:
        custom_hooks:
          - {type: SyncBuffersHook}
    """

    # EMAHook may swap averaged buffers in for validation. The training buffers must be synchronized before that.
    runs_before = ("EMAHook",)

    def __init__(self) -> None:
        # The iteration after which the buffers were last averaged.
        self._synced_at = 0

    def idle_points(self, runner: Runner) -> list[str]:
        """Return the points to skip: all of them with one process."""
        return ["after_train_epoch", "after_train", "around_val"] if processes() == 1 else []

    def after_train_epoch(self, runner: Runner) -> None:
        """Average the buffers."""
        self._sync(runner)

    def after_train(self, runner: Runner) -> None:
        """Average the buffers of a run that was stopped before the end of its epoch."""
        self._sync(runner)

    def around_val(self, runner: Runner) -> Iterator[None]:
        """Average the buffers, so that all processes validate with the same ones."""
        if runner.running == "train":
            self._sync(runner)
        yield

    def _sync(self, runner: Runner) -> None:
        if runner.iter == self._synced_at or processes() == 1:
            return
        try:
            average_buffers(runner.model)
        except RuntimeError as error:  # raised by torch.distributed
            raise DistributedError(
                f"SyncBuffersHook: cannot average the buffers over {processes()} processes: {error}"
            ) from error
        self._synced_at = runner.iter

    def state_dict(self) -> dict[str, Any]:
        """Return the iteration after which the buffers were last averaged."""
        return {"synced_at": self._synced_at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._synced_at = state["synced_at"]


def processes() -> int:
    """Return the number of processes that train together, according to torch.distributed."""
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
