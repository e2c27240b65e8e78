"""Optim: the one owner of an update.

    optim = Optim(optimizer, schedulers=[StepLR(optimizer, 30)], accumulate=4, clip_norm=1.0)
    optim.update(loss)

`update` runs the backward pass of one micro-batch. At the end of an accumulation window, it also unscales, clips, steps
and zeroes. It calls the four points around these. The loop calls `update` for an ordinary step. A custom step (of a
GAN, for example) or a dialect calls it itself. It also works without a runner, but then without hooks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from operator import is_
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from hookline.common.numbers import count
from hookline.common.sharding import part_like
from hookline.errors import ConfigError, HookError
from hookline.optim.clipping import Clip
from hookline.optim.groups import follow_groups
from hookline.optim.hyperparameters import check_optimizer
from hookline.optim.refusals import explain_backward, refuse_closure, refuse_other_optimizer
from hookline.optim.scheduled import Scheduled, When, as_list, takes_metrics
from hookline.optim.warmup import Warmup
from hookline.optim.weights import BatchWeights, WindowWeights
from hookline.plan.plan import Plan
from hookline.plan.scopes import NOTHING
from hookline.strategies import Single, Strategy

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


ZERO_GRAD = Optimizer.zero_grad


def zero_gradients(optimizer: Optimizer) -> None:
    """Drop all gradients, as `optimizer.zero_grad()` does, but without its entry in torch's profiler.

    That entry takes longer than the rest. An optimizer with a `zero_grad` of its own is called.
    """
    if type(optimizer).zero_grad is not ZERO_GRAD or "zero_grad" in optimizer.__dict__:
        optimizer.zero_grad()
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


class Optim:
    """The optimizer, its schedulers, and the update: window, backward, scaler, clipping, step, zero.

    Args:
        optimizer: Any torch optimizer.
        schedulers: torch schedulers, each alone or paired with when it steps: `(scheduler, "epoch" | "iter" | "step" |
            "val")`, or `(scheduler, "val", "accuracy")`. Alone, it follows the unit of the training loop: epochs or
            iterations. A scheduler whose class has `takes_metrics = True` steps after validations, with all of their
            metrics, and after epochs.
        accumulate: The number of micro-batches per update. A window can be cut short by the end of an epoch, or, in
            training by iterations, by the end of the run. A partial window is averaged over its actual size.
        clip_norm: The maximum total norm of the gradients.
        clip_value: The maximum absolute value of a gradient.
        norm_type: The norm that `clip_norm` limits and `grad_norm` reports.
        keep_gradients: Keep the gradients until the next window begins, for hooks that read them after the step. They
            then use memory during the next forward pass.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Iterable[Any] = (),
        accumulate: int = 1,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        norm_type: float = 2.0,
        keep_gradients: bool = False,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise ConfigError(f"Optim needs a torch optimizer, not a {type(optimizer).__name__}")
        if not isinstance(accumulate, int) or isinstance(accumulate, bool) or accumulate < 1:
            raise ConfigError(
                f"accumulate must be the number of micro-batches per update, an int of at least 1, not {accumulate!r}"
            )
        self.plan = Plan(self)
        self.optimizer = optimizer
        self.schedulers = [Scheduled.of(given) for given in as_list(schedulers)]
        if sum(isinstance(each.scheduler, Warmup) for each in self.schedulers) > 1:
            raise ConfigError("an Optim can have one Warmup, which applies to all of its schedulers; remove the others")
        for each in self.schedulers:
            refuse_other_optimizer(each.scheduler, optimizer, f"the optimizer ({type(optimizer).__name__})")
        check_optimizer(optimizer)
        self.accumulate = accumulate
        self.clip = Clip.of(clip_norm, clip_value, norm_type)
        self.keep_gradients = keep_gradients
        self.scaler: torch.amp.GradScaler | None = None
        #: Finished optimizer steps.
        self.updates = 0
        #: Micro-batches in the open window; 0 between two updates.
        self.micro = 0
        #: The total norm of the gradients before they were last clipped, on the device.
        self.grad_norm: Tensor | None = None
        #: The norms that are not recorded yet.
        self.norms: deque[Tensor] = deque(maxlen=100)
        #: Returns the number of micro-batches until a window has to end; None if that is unknown.
        self._left: Callable[[], int | None] = lambda: None
        #: True while the points around an optimizer step are called for an update of this optim.
        self.updating = False
        #: True during `after_optimizer_step` if the step was really taken: a scaler may have skipped it.
        self.stepping = False
        self.scaler_skipped = False
        self._window = accumulate
        self._skip = False
        #: True if the open window has gradients that are not synced over processes yet.
        self._unsynced = False
        #: True if the last forward pass decided that its backward pass does not sync.
        self._forward_unsynced = False
        #: True if there are other optims. Their backward passes may leave gradients in the parameters of this one.
        self._several = False
        self._strategy: Strategy = Single()
        self.weights = WindowWeights(self._strategy)
        #: The parameters whose gradients are part of the next update.
        self._known: list[Tensor] = []
        self._wrapped: nn.Module | None = None
        self._agree_on_skip: Callable[[], None] = lambda: None
        #: The outputs of a loss that a loop of others computes the gradients of, and the scope that it is in.
        self._taken: dict[str, Any] | None = None
        self._scope = ExitStack()

    def __repr__(self) -> str:
        groups = self.optimizer.param_groups
        rates = ", ".join(dict.fromkeys(f"{float(group['lr']):g}" for group in groups if "lr" in group))
        texts = [type(self.optimizer).__name__ + (f" (lr {rates})" if rates else "")]
        for each in self.schedulers:
            when = f" per {each.when}" if each.when is not None else ""
            texts.append(f"{type(each.scheduler).__name__}{when}")
        texts += [f"accumulate {self.accumulate}"] * (self.accumulate > 1)
        if self.clip is not None:
            norm = self.clip.norm is not None
            texts.append(f"clip_{'norm' if norm else 'value'} {self.clip.norm if norm else self.clip.value:g}")
        return f"<{type(self).__name__}: {', '.join([*texts, count(self.updates, 'update')])}>"

    def attach(
        self,
        plan: Plan,
        precision: str,
        device: torch.device,
        unit: When,
        left: Callable[[], int | None],
        several: bool = False,
        strategy: Strategy | None = None,
        wrapped: nn.Module | None = None,
        agree_on_skip: Callable[[], None] = lambda: None,
        weights: BatchWeights | None = None,
    ) -> None:
        """Connect this optim to a run.

        Args:
            plan: The hooks of the run.
            precision: `fp32`, `bf16` or `fp16`.
            device: The device of the run.
            unit: The default for when a scheduler steps.
            left: Returns the maximum number of micro-batches in a window that begins now; None if that is unknown.
            several: True if the run has other optims.
            strategy: Syncs gradients over processes, and computes their norm.
            wrapped: The model as the step calls it.
            agree_on_skip: Skips the batch in all processes if one of them skips it.
            weights: The weights of the batches; without them, all count the same.
        """
        self.plan = plan
        self._agree_on_skip = agree_on_skip
        self._left = left
        self._several = several
        self._strategy = strategy if strategy is not None else Single()
        self._wrapped = wrapped
        self._known = self.parameters()
        self.weights.strategy = self._strategy
        self.weights.source = weights if weights is not None else BatchWeights()
        if precision == "fp16" and self.scaler is None:
            self.scaler = self._strategy.new_scaler(device)
        warmup = next((one.scheduler for one in self.schedulers if isinstance(one.scheduler, Warmup)), None)
        for scheduled in self.schedulers:
            scheduled.warmup = warmup
            if scheduled.when is None:
                at_val = isinstance(scheduled.scheduler, ReduceLROnPlateau) or takes_metrics(scheduled.scheduler)
                scheduled.when = "val" if at_val else getattr(scheduled.scheduler, "default_when", None) or unit

    @property
    def optimizer(self) -> Optimizer:
        """Return the torch optimizer. It cannot be replaced during a run."""
        return self._optimizer

    @optimizer.setter
    def optimizer(self, optimizer: Optimizer) -> None:
        if getattr(self.plan.host, "running", None) == "train":
            raise HookError(
                "optim.optimizer cannot be replaced during runner.train(), because its schedulers and earlier "
                "checkpoints belong to the old one; change it in place, for example with optim.optimizer.param_groups, "
                "or set it before the run"
            )
        self._optimizer = optimizer

    # -- the update

    def update(self, loss: Tensor, outputs: dict[str, Any] | None = None) -> None:
        """Add one micro-batch to the window, and update the weights if the window ends with it.

        The points pass `outputs` to hooks. A `before_backward` may replace the loss in it.
        """
        plan = self.plan
        if (self._several or self.keep_gradients) and self.micro == 0:
            zero_gradients(self._optimizer)
        plain = self.accumulate == 1 and self.scaler is None and self.clip is None and not self.weights.matter
        if plain and plan.update_is_silent and not (self.micro or self._skip):  # no hooks: as fast as a bare loop
            optimizer = self._optimizer
            try:
                loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotations here
                optimizer.step()
            except RuntimeError as error:
                explain_backward(error, loss)
                raise
            except TypeError:
                refuse_closure(optimizer, f"the optimizer ({type(optimizer).__name__})")
                raise
            if not self.keep_gradients:
                zero_gradients(optimizer)
            self.updates += 1
            return
        if self.micro == 0:
            self._window = self._next_window()
        if self._backward({"loss": loss} if outputs is None else outputs, self._window) and self.micro >= self._window:
            self._step()

    def _next_window(self) -> int:
        """Return the number of micro-batches of a window that begins now."""
        left = self._left() if self.accumulate > 1 else None
        return self.accumulate if left is None else min(self.accumulate, left)

    def _backward(self, outputs: dict[str, Any], share: int, **options: Any) -> bool:
        """Run the backward pass of one of `share` micro-batches, with its points. Return False if it was skipped."""
        plan = self.plan
        with plan.around("backward", outputs) if plan.around_backward else NOTHING:
            if plan.before_backward:
                plan.before_backward(outputs)
                if plan.may_leave_gradients:
                    self.take_joined()
            if "before_backward" in plan.agrees_at:
                self._agree_on_skip()
            if self._skip:
                self.weights.forget()
                return False
            loss = outputs["loss"]
            try:
                if share > 1 or self.weights.matter:
                    factor = self.weights.factor(share, is_first=not self.micro)
                    loss = loss if factor == 1.0 else loss * factor
                scaled = loss if share == 1 else loss / share
                with self._syncing(share):
                    (scaled if self.scaler is None else self.scaler.scale(scaled)).backward(**options)
            except RuntimeError as error:
                explain_backward(error, loss)
                raise
            if plan.after_backward:
                plan.after_backward(outputs)
                if plan.may_leave_gradients:
                    self.take_joined()
            if "after_backward" in plan.agrees_at:
                self._agree_on_skip()
        self.micro += 1
        self.weights.add()
        if self._skip:
            self._drop_window()
            return False
        return True

    def weigh(self, weight: float) -> None:
        """Set the weight of the batch of the next `update`, for a step that knows it better: its tokens, for example.

        A window is the weighted mean of its batches, over all processes. Call this before every `update`, in all of
        them, or never.
        """
        self.weights.say(weight)

    def _syncing(self, share: int) -> AbstractContextManager[Any]:
        """Return the context of a backward pass. Processes sync their gradients only in the last one of a window."""
        if share == 1 or self._wrapped is None:
            return NOTHING
        if self._strategy.gradients.sync_in_forward:
            self._unsynced = self._forward_unsynced
            return NOTHING
        self._unsynced = self.micro + 1 < share
        return self._strategy.gradients.syncing(self._wrapped, sync=not self._unsynced)

    def _sync_early(self) -> None:
        """Sync the gradients of a window that is not full."""
        if self._unsynced and self._wrapped is not None:
            self._strategy.gradients.sync(self._wrapped)
            self._unsynced = False

    def _zero_window(self) -> None:
        """Drop all gradients of the open window."""
        if self._unsynced and self._wrapped is not None:
            self._strategy.gradients.drop(self._wrapped)
            self._unsynced = False
        self.optimizer.zero_grad()

    def syncing_forward(self) -> AbstractContextManager[Any]:
        """Return the context of the forward pass of the next `update`."""
        if self.accumulate == 1 or self._wrapped is None:
            return NOTHING
        window = self._window if self.micro else self._next_window()
        if window == 1:
            return NOTHING
        self._forward_unsynced = self.micro + 1 < window
        return self._strategy.gradients.syncing(self._wrapped, sync=not self._forward_unsynced)

    def reset(self) -> None:
        """Discard an unfinished window and its gradients."""
        self._skip, self.updating, self.stepping, self._taken = False, False, False, None
        self._zero_window()
        self.micro = 0
        self.weights.clear()
        self.weights.forget()

    def drop_stale_gradients(self) -> None:
        """Drop all gradients if no window is open. Kept gradients are zeroed by the next `update`."""
        self.take_joined()
        if self.micro or self.keep_gradients:
            return
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.optimizer.zero_grad()
                    return

    def take_joined(self) -> None:
        """Take in the parameters that hooks have added since this was last called; schedulers follow new groups.

        Without an optimizer, a parameter collects gradients in every backward pass. A checkpoint does not have these,
        so a parameter begins without gradients. It does not have the state of a parameter that was removed either.
        """
        parameters = self.parameters()
        if len(parameters) == len(self._known) and all(map(is_, parameters, self._known)):
            return
        known, now = set(map(id, self._known)), set(map(id, parameters))
        for parameter in parameters:
            if id(parameter) not in known:
                parameter.grad = None
        for parameter in self._known:
            if id(parameter) not in now:
                self.optimizer.state.pop(parameter, None)
        self._known = parameters
        for scheduler in sorted((each.scheduler for each in self.schedulers), key=lambda one: isinstance(one, Warmup)):
            follow_groups(scheduler)

    def open_window(self) -> dict[str, Any] | None:
        """Return the open window with its gradients, as data for a checkpoint; None between two windows."""
        if not self.micro:
            return None
        self._sync_early()
        return {
            "micro": self.micro,
            "window": self._window,
            **self.weights.state_dict(),
            "gradients": [parameter.grad for parameter in self.parameters()],
        }

    def reopen_window(self, state: Mapping[str, Any]) -> None:
        """Restore an open window from `open_window`."""
        self.micro, self._window = state["micro"], state["window"]
        self.weights.load_state_dict(state)
        for parameter, gradient in zip(self.parameters(), state["gradients"], strict=True):
            parameter.grad = None if gradient is None else part_like(gradient, parameter).to(parameter.device)
        self._known = self.parameters()

    def flush(self) -> None:
        """End the window now, and update with the micro-batches that it has."""
        if self.micro:
            self._skip = False  # a skipped micro-batch is not part of the window
            self._sync_early()
            self._step()

    def skip(self) -> None:
        """Skip the current micro-batch, or, after its backward pass, drop the window that it is in."""
        self._skip = True

    def forget_skip(self) -> None:
        """Clear a skip at the end of its iteration."""
        self._skip = False

    def _step(self) -> None:
        optimizer = self._optimizer
        try:
            self._make_step(self.weights.correction(self._window))
        except TypeError:
            refuse_closure(optimizer, f"the optimizer ({type(optimizer).__name__})")
            raise
        if not self.keep_gradients:
            zero_gradients(optimizer)
        self.micro = 0
        self.weights.clear()

    def _make_step(self, factor: float, **options: Any) -> None:
        """Multiply the gradients by a factor, and step the optimizer, with its points. The gradients are not zeroed."""
        plan, scaler = self.plan, self.scaler
        self.updating = True
        with plan.around("optimizer_step") if plan.around_optimizer_step else NOTHING:
            if scaler is not None:
                scaler.unscale_(self._optimizer)
            if factor != 1.0:
                self._rescale(factor)
            if plan.before_optimizer_step:
                plan.before_optimizer_step()
                if plan.may_leave_gradients:
                    self.take_joined()
            if "before_optimizer_step" in plan.agrees_at:
                self._agree_on_skip()
            if not self._skip:
                if self.clip is not None:
                    self.norms.append(self.clip_gradients(self.clip))
                if scaler is None:
                    self._optimizer.step(**options)
                else:
                    scaler.step(self._optimizer, **options)
            if scaler is not None:
                self._update_scale(scaler)
            if not self._skip:
                if plan.after_optimizer_step:
                    self.stepping = not self.scaler_skipped
                    plan.after_optimizer_step()
                    self.stepping = False
                self.updates += 1
        self.updating = False

    # -- a loop of others, which makes its own backward passes and steps

    def take_loss(self, outputs: dict[str, Any]) -> bool:
        """Call `before_backward` for a loss whose backward pass comes next. Return False if a hook skips the batch."""
        plan = self.plan
        self.end_backward()
        if plan.may_leave_gradients:
            self.take_joined()
        self._scope.enter_context(plan.around("backward", outputs))
        plan.before_backward(outputs)
        if "before_backward" in plan.agrees_at:
            self._agree_on_skip()
        if self._skip:
            self._scope.close()
            return False
        self._taken = outputs
        return True

    def end_backward(self) -> None:
        """Call `after_backward` for the loss that was taken last, unless that has happened."""
        plan, outputs, self._taken = self.plan, self._taken, None
        if outputs is None:
            return
        plan.after_backward(outputs)
        if plan.may_leave_gradients:
            self.take_joined()
        if "after_backward" in plan.agrees_at:
            self._agree_on_skip()
        self._scope.close()
        self.micro += 1
        if self._skip:
            self._drop_window()

    def begin_step(self) -> None:
        """Call `before_optimizer_step`, and clip, before code of others steps the optimizer.

        torch steps in any case. To skip a step, its gradients are dropped: then it changes nothing.
        """
        plan, taken = self.plan, self._taken
        self.end_backward()
        if taken is not None and self._skip:
            return
        self._skip = False  # a skipped micro-batch is not part of the window
        self.updating = True
        self._scope.enter_context(plan.around("optimizer_step"))
        if plan.before_optimizer_step:
            plan.before_optimizer_step()
            self.take_joined()
        if "before_optimizer_step" in plan.agrees_at:
            self._agree_on_skip()
        if self._skip:
            zero_gradients(self._optimizer)
        elif self.clip is not None:
            self.norms.append(self.clip_gradients(self.clip))

    def end_step(self) -> None:
        """Call `after_optimizer_step`, and count, after code of others has stepped the optimizer."""
        if self.updating and not self._skip:
            self.stepping = True
            self.plan.after_optimizer_step()
            self.stepping = False
            self.updates += 1
        self._scope.close()
        self.updating, self.micro = False, 0

    @contextmanager
    def following_steps(self) -> Iterator[None]:
        """Call the points around a step inside the context, wherever code of others calls the optimizer."""
        handles = (
            self.optimizer.register_step_pre_hook(lambda *_: self.begin_step()),
            self.optimizer.register_step_post_hook(lambda *_: self.end_step()),
        )
        try:
            with self._scope:
                yield
        finally:
            for handle in handles:
                handle.remove()

    # -- the scale of fp16

    def _update_scale(self, scaler: torch.amp.GradScaler) -> None:
        """Update the scale, and find out whether the scaler skipped the step: then the scale is lower than before.

        Reading the scale waits for the device, so it happens only for hooks that need to know.
        """
        needed = bool(self.plan.after_optimizer_step)
        before = scaler.get_scale() if needed else 0.0
        scaler.update()
        self.scaler_skipped = needed and scaler.get_scale() < before

    def _drop_window(self) -> None:
        self._zero_window()
        self.micro = 0
        self.weights.clear()

    def _rescale(self, factor: float) -> None:
        """Correct the gradients of a partial window: each loss was divided by the expected size of the window."""
        for parameter in self.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(factor)

    # -- around the update

    def parameters(self) -> list[Tensor]:
        """Return all parameters that this optimizer updates."""
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    @property
    def kinds(self) -> list[str]:
        """Return the class names of the optimizer and its schedulers, to compare with the names in a checkpoint."""
        return [type(self.optimizer).__name__, *(type(each.scheduler).__name__ for each in self.schedulers)]

    def clip_gradients(self, clip: Clip) -> Tensor:
        """Clip the gradients now, and return their total norm before clipping, on the device."""
        self.grad_norm = clip(self.parameters(), self._strategy)
        return self.grad_norm

    def named_groups(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the parameter groups by the names of their learning rates: `lr`, `lr_1`, `lr_<name>`."""
        labels = [group.get("name", number) for number, group in enumerate(self.optimizer.param_groups)]
        names = [f"lr_{label}" if label else "lr" for label in labels]
        return list(zip(names, self.optimizer.param_groups, strict=True))

    def learning_rates(self) -> list[float]:
        """Return the learning rate of every parameter group."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]
