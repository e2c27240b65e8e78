"""DefaultTrainer: the loop, on one page."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from hookline.dialects.pointrix.engine import parts, running
from hookline.dialects.pointrix.engine.base_trainer import BaseTrainer
from hookline.engine.driver import Driver
from hookline.engine.loops import handle_requests
from hookline.errors import ConfigError
from hookline.lifecycle.session import session
from hookline.plan.calls import blame_step
from hookline.run.handling import RequestedValidations, Validations


class TrainerValidations(RequestedValidations):
    """The validations of a trainer: those that are due, and those that are requested from outside."""

    def __init__(self, trainer: DefaultTrainer) -> None:
        super().__init__(trainer.requests)
        self._trainer = trainer

    @property
    def possible(self) -> bool:
        """Return whether there is data to validate on."""
        return getattr(self._trainer.datapipeline, "validation_dataset", None) is not None

    def due(self) -> bool:
        """Return whether a validation is due at this step, or was requested from outside."""
        return self._trainer.is_validation_due() or super().due()

    def validate(self) -> None:
        """Run a validation with its points."""
        self._trainer.validate(self._trainer.position.iter)


class DefaultTrainer(BaseTrainer):
    """Trains and validates a model of points. `hook.points` shows the order of events."""

    def train_loop(self) -> None:
        """Train from step `start_steps` to `max_steps`, and validate in between."""
        parts.refuse_missing(self)
        with session(self, "train", self.start, self.stages), self.plan.around("train"):
            interval, last = self.cfg.val_interval, self.cfg.max_steps
            driver = Driver(self, last)
            self.global_step, self.loss_dict = self.start_steps, {}
            self.call_hook("before_train")
            driver.resume()
            for iteration in range(self.start_steps, last + 1):
                if self.plan.around_train_iter:
                    with self.plan.around("train_iter"):
                        self.train_iter(iteration)
                else:
                    self.train_iter(iteration)
                self.global_step += 1
                if driver.after_iteration(interval > 0 and (iteration % interval == 0 or iteration == last)):
                    break
            self.check_loss()
            self.call_hook("after_train")
            handle_requests(self)

    def train_iter(self, iteration: int) -> None:
        """Run one step and its points; `global_step` is its number."""
        plan = self.plan
        if plan.before_train_iter:  # the check is cheaper than a call without hooks
            self.call_hook("before_train_iter")
        try:
            began = time.perf_counter()
            batch = self.datapipeline.next_train(self.global_step)
            plan.ledger.parts["data"].add(time.perf_counter() - began)
            if self.renderer is not None:
                self.renderer.update_sh_degree(iteration)
            if self.schedulers is not None:
                self.schedulers.step(self.global_step, self.optimizer)
            self.train_step(batch)
            if plan.around_optimizer_step:
                with plan.around("optimizer_step"):
                    self.optimizer.update_model(**self.optimizer_dict)
            else:
                self.optimizer.update_model(**self.optimizer_dict)
        except Exception as error:
            blame_step(error, self)
            raise
        self.position.iter = iteration
        if plan.after_train_iter:
            self.call_hook("after_train_iter")

    def train_step(self, batch: Any) -> None:
        """Compute the loss and the gradients of a batch. Set `loss_dict`, and `optimizer_dict` for the optimizer."""
        plan = self.plan
        if plan.around_train_forward:
            with plan.around_forward_of_training():
                render_results, losses = self._forward(batch)
        else:
            render_results, losses = self._forward(batch)
        if plan.around_backward:
            with plan.around("backward"):
                parts.backward(self.model, losses)
        else:
            parts.backward(self.model, losses)
        # Detached, so that no graph is left when a hook changes the number of points.
        self.loss_dict = {
            name: value.detach() if isinstance(value, Tensor) else value for name, value in losses.items()
        }
        if hasattr(self.model, "get_optimizer_dict"):
            self.optimizer_dict = self.model.get_optimizer_dict(self.loss_dict, render_results, self.white_bg)

    def _forward(self, batch: Any) -> tuple[Any, Any]:
        """Return the output of the model, and its losses."""
        get_losses = self.model.get_loss_dict
        more = {"step": self.global_step} if parts.takes(get_losses, "step") else {}
        render_results = self.render(batch)
        return render_results, get_losses(render_results, batch, **more)

    def render(self, batch: Any) -> Any:
        """Return the model's output for a batch, rendered if there is a renderer. Newer models get step or mode."""
        name, value = ("iteration", self.global_step) if torch.is_grad_enabled() else ("training", False)
        more = {name: value} if parts.takes(getattr(self.model, "forward", self.model), name) else {}
        render_dict = self.model(batch, **more)
        return render_dict if self.renderer is None else self.renderer.render_batch(render_dict, batch)

    # -- validation

    def _new_validations(self) -> Validations:
        return TrainerValidations(self)

    def is_validation_due(self) -> bool:
        """Return whether a validation must run before the next step. A resumed run may have missed it."""
        step, interval = self.position.iter, self.cfg.val_interval
        due = interval > 0 and step > 0 and (step % interval == 0 or step == self.cfg.max_steps)
        return due and self.position.validated_at != step

    def validate(self, iteration: int) -> None:
        """Run a validation with its points."""
        with self.plan.ledger.part("validation"), self.plan.around("val"), parts.evaluating(self.model):
            self.call_hook("before_val")
            self.validation()
            self.call_hook("after_val")
        self.position.validated_at = iteration
        self.position.validations += 1
        self.journal.note("validation")

    @torch.no_grad()
    def validation(self) -> None:
        """Evaluate every item of the validation data; `metric_dict` has the metrics of the current item."""
        dataset = getattr(self.datapipeline, "validation_dataset", None)
        if dataset is None:
            raise ConfigError(
                "datapipeline has no validation_dataset; to train without validation, set val_interval: 0"
            )
        self.val_dataset_size = len(dataset)
        for i in range(self.val_dataset_size):
            with self.plan.around("val_iter"):
                self.call_hook("before_val_iter")
                try:
                    batch = self.datapipeline.next_val(i)
                    self.metric_dict = self.model.get_metric_dict(self.render(batch), batch)
                except Exception as error:
                    blame_step(error, self, f"item {i} of the validation")
                    raise
                self.call_hook("after_val_iter")

    def test(self, model_path: str | None = None) -> None:
        """Run one validation with its points, with the weights of a checkpoint if a path is given."""
        if model_path:
            self.load_model(model_path)
        with (
            self.records.opened(),
            self.plan.around("val"),
            parts.evaluating(self.model),
            running.hooks_see_failures(self.plan),
        ):
            self.call_hook("before_val")
            self.validation()
            self.call_hook("after_val")
