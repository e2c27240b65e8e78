"""Session: the loop that the user writes, and the verbs in its body.

`inverted.py` has the training loop as a generator. A body of the user's loop runs where `Runner.train` would call the
step, and `run.step` sends the result of the step back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from hookline.engine.loops import handle_requests
from hookline.engine.steps import as_outputs
from hookline.errors import HooklineError
from hookline.integrations import open_session
from hookline.integrations.epoch import Epoch
from hookline.integrations.inverted import LEAVE, PASS_ENDED, SKIPPED, STEPPED, Inverted, Mark, Stepped
from hookline.integrations.leftovers import Leftovers, refuse_own_steps
from hookline.integrations.own_model import OwnModel
from hookline.integrations.own_validation import OwnValidation, counted
from hookline.plan.calls import blame_step

if TYPE_CHECKING:
    from types import TracebackType

    from torch import nn

    from hookline.integrations.inverted import Drive
    from hookline.runner.runner import Runner


class Session:
    """A training whose loop is yours: `for batch in run`, and `run.step(loss)` once per batch."""

    def __init__(self, runner: Runner, model: nn.Module | None = None) -> None:
        #: The Runner behind it, which hooks see.
        self.runner = runner
        self._host = host = runner._host
        host.validates_itself = not host.val_loops
        host.hints.resume = "session(..., resume=True)"
        self._leaving = ExitStack()
        self._loop: Inverted | None = None
        self._drive: Drive | None = None
        #: Where the loop is: before it begins, with a batch that was not stepped, at a mark, or over.
        self._place: Literal["before", "batch", "over"] | Mark = "before"
        self._validation = OwnValidation(host)
        self._error: BaseException | None = None
        #: What was passed to `step` for the current batch, by the name of the optim.
        self._by_optim: dict[str, Any] = {}
        #: True once a step needs no more checks: one optim, whose steps `run.step` makes, and a model without wrappers.
        self._is_simple = False
        self._leftovers = Leftovers(host.optims)
        self._has_stepped, self._is_closed, self._skipped_at = False, False, -1
        self._model = OwnModel(host, model)

    def __repr__(self) -> str:
        return f"<Session of {self.runner!r}>"

    def __bool__(self) -> bool:
        return True

    # -- the context

    def __enter__(self) -> Session:
        if self._drive is not None:
            raise HooklineError("this session was already used; create a new one with hookline.session(...)")
        with ExitStack() as leaving:
            leaving.enter_context(open_session.only(self))
            leaving.enter_context(self._host.training_session())
            self._loop = Inverted(self._host.training)
            self._drive = self._loop.drive()
            self._leftovers.start(leaving)
            self._model.watch(leaving)
            self._leaving = leaving.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_closed:  # at the end of the process, before the generator that it is in
            return
        try:
            self._end(None if isinstance(error, GeneratorExit) else error)
        except BaseException as raised:
            self._leaving.__exit__(type(raised), raised, raised.__traceback__)
            if raised is not error:
                raise
        else:
            self._leaving.close()
        finally:
            self._is_closed = True

    def _end(self, error: BaseException | None) -> None:
        """End the loop: at its end, where the user left it, or with an error, which hooks and scopes see."""
        assert self._drive is not None, "it was entered"
        suspended = self._place not in ("before", "over")
        if error is None:
            if self._error is not None:
                raise self._error
            if suspended:
                self._leave(self._drive)
            elif self._place == "before" and self._host.training.continues and not self._validation.was_used:
                raise HooklineError("the loop over the batches never began, so nothing was trained: for batch in run")
            if self._has_stepped:
                self._leftovers.refuse_no_step()
            self._validation.warn_if_never_reported()
            return
        if suspended:
            if isinstance(error, Exception) and self._place != "batch":
                blame_step(error, self._host.plan.host, "the body of the loop")
            self._place = "over"
            try:
                self._drive.throw(error)
            except RuntimeError as raised:
                if raised.__cause__ is not error:  # a StopIteration cannot pass through a generator
                    raise
        raise error

    def _leave(self, drive: Drive) -> None:
        self._validation.end_unreported()
        self._finish_steps()
        with suppress(StopIteration):
            drive.send(LEAVE)
        self._place = "over"

    # -- the loop

    def __iter__(self) -> Session:
        if self._entered().pauses:
            raise HooklineError("inside `for epoch in run.epochs()`, write: for batch in epoch, not: for batch in run")
        if self._place == "over":
            raise HooklineError(
                "the loop over the batches is over: `for batch in run` has the batches of all epochs, so write it "
                "once; for code between epochs, write: for epoch in run.epochs(), and inside: for batch in epoch"
            )
        return self

    def __len__(self) -> int:
        """Return the number of batches that are left, as progress bars ask for it."""
        total = self._host.train_loop.total_iters
        if total is None:
            raise TypeError("the number of batches is not known: the loader has no length")
        return max(total - self._host.position.iter, 0)

    def __next__(self) -> Any:
        value = self._advance()
        while value.__class__ is Mark:
            value = self._advance()
        return value

    def epochs(self) -> Iterator[Epoch]:
        """Yield the epochs, each of which yields its batches: the same loop, with room for your code between epochs.

        A run that was killed in that code begins with it when it resumes: then the first epoch has no batches left.
        """
        if self._place != "before":
            raise HooklineError("run.epochs() was called inside the loop; it is the loop: for epoch in run.epochs()")
        self._entered().pauses = True
        while True:
            try:
                self._advance()
            except StopIteration:
                return
            position = self._host.position
            epoch = Epoch(self._advance, self._leftovers.begin, position.epoch - position.between_epochs)
            yield epoch
            if not epoch.ended:
                raise HooklineError(
                    f"the loop over {epoch} was left before its end, and then continued with the next epoch; to end "
                    "training, leave both loops or call run.stop(reason); for shorter epochs, use limit_batches"
                )

    def _advance(self) -> Any:
        """Continue the loop to the next place, and return the batch or the mark there."""
        if self._place is STEPPED:
            if self._is_simple:
                return self._send(None)
            self._check_first_steps()
        elif self._place is PASS_ENDED and self._entered().pauses:
            self._leftovers.refuse_schedules()
        if self._place == "batch":
            if not self._by_optim:
                raise HooklineError(
                    "the body of the loop ended without run.step(loss); call it once per batch, or run.skip(reason), "
                    "or run.stepped(loss) after your own optimizer step"
                )
            self._finish_steps()
        self._validation.end_unreported()
        self._entered()
        self._model.was_called = False
        value = self._send(None)
        if self._leftovers.is_new:
            self._leftovers.begin()
        return value

    def _check_first_steps(self) -> None:
        """Check the code after `run.step`, and, after the first update, whether it has changed anything."""
        if self._leftovers.is_new:
            self._leftovers.refuse_schedules()
            if self._leftovers.has_updated():
                self._leftovers.is_new = False
                is_special = self._entered().follows or self._host.optims.are_named or self._model.must_be_called
                self._is_simple = not is_special

    def _entered(self) -> Inverted:
        if self._loop is None:
            raise HooklineError("the session was not entered; write: with hookline.session(...) as run")
        return self._loop

    def _send(self, answer: Any) -> Any:
        if self._error is not None:
            raise self._error  # the code in the loop has caught it, but the run has ended with it
        try:
            value = self._drive.send(answer)  # type: ignore[union-attr]  # it was entered
        except StopIteration:
            self._place = "over"
            raise
        except BaseException as error:
            self._place, self._error = "over", error
            raise
        self._place = value if value.__class__ is Mark else "batch"
        return value

    # -- a step

    def step(self, loss: Any, optim: str = "") -> None:
        """Update the weights with the loss of the current batch: backward, clipping, optimizer, schedulers, records.

        Args:
            loss: The loss, or anything else that a step of a TrainLoop may return.
            optim: The name of the optim, if there are several. Each of them may be stepped once per batch.
        """
        if self._place != "batch":
            self._refuse_call("step")
        if self._is_simple and not optim:
            self._send(loss)
            return
        loop = self._entered()
        if loop.follows:
            if self._host.optims.updates != loop.updates_before:
                raise HooklineError(
                    "the body of the loop has stepped the optimizer itself, and run.step(loss) would step it again; "
                    "call run.stepped(loss) instead, or leave backward() and step() to run.step(loss)"
                )
            if self._has_stepped:
                raise HooklineError("this loop has called run.stepped(loss) before; use run.step or run.stepped alone")
            loop.stop_following()
        if self._leftovers.is_new:
            self._leftovers.refuse_backward()
            self._leftovers.refuse_schedules()
        self._model.refuse_uncalled()
        if optim or self._host.optims.are_named:
            self._step_one(loss, optim)
        else:
            self._send(loss)
            self._leftovers.begin()

    def _step_one(self, loss: Any, name: str) -> None:
        """Update one of several optims. The iteration ends with the body of the loop."""
        if not name:
            names = ", ".join(map(repr, self._host.optims))
            raise HooklineError(f"this session has several optims ({names}); name one: run.step(loss, optim=...)")
        optim = self._host.optims[name]
        if name in self._by_optim:
            self._refuse_second("step", f", optim={name!r}")
        outputs = self._by_optim[name] = as_outputs(loss)
        optim.update(outputs["loss"], outputs)

    def _finish_steps(self) -> None:
        """End the iteration of a batch whose optims were updated one by one."""
        if not self._by_optim:
            return
        together: dict[str, Any] = {}
        for name, outputs in self._by_optim.items():
            together |= {key: value for key, value in outputs.items() if key != "loss"}
            together[f"{name}_loss"] = outputs["loss"].detach()
        self._by_optim = {}
        self._send(Stepped(together))

    def stepped(self, loss: Any = None) -> None:
        """End the current batch after your own `loss.backward()` and `optimizer.step()`.

        Hooks at `before_backward` and `after_backward` are refused in such a loop, because nothing calls them.

        Args:
            loss: The loss, or anything else that a step may return, for records and checks; None if there is none.
        """
        if self._place != "batch":
            self._refuse_call("stepped")
        loop = self._entered()
        self._model.refuse_uncalled()
        if not loop.follows or self._by_optim:
            raise HooklineError("this loop has called run.step(loss) before; use either run.step or run.stepped in it")
        refuse_own_steps(self._host)
        self._has_stepped = True
        self._send(Stepped(loss))
        self._leftovers.begin()

    def skip(self, reason: str) -> None:
        """Skip the current batch: it does not change the weights, and `after_train_iter` is not called."""
        if self._place != "batch":
            self._refuse_call("skip")
        if not self._host.strategy.acts_alone:
            raise HooklineError(
                "with several processes, run.skip(reason) could leave the others waiting; let a hook call "
                "runner.skip_step(reason) at before_backward, where the processes agree"
            )
        if self._by_optim:
            names = ", ".join(map(repr, self._by_optim))
            raise HooklineError(f"run.skip(reason) was called after run.step(loss, optim={names}) of the same batch")
        self.runner.skip_step(reason or "requested by the loop")
        self._skipped_at = self._host.position.iter
        self._send(SKIPPED)
        self._leftovers.begin()

    def _refuse_call(self, verb: str) -> NoReturn:
        if self._error is not None:
            raise self._error  # the code in the loop has caught it, but the run has ended with it
        if self._place is STEPPED:
            self._refuse_second(verb)
        where = "before the first batch" if self._place == "before" else "outside the loop over the batches"
        raise HooklineError(f"run.{verb} was called {where}; call it in the body of the loop: for batch in run")

    def _refuse_second(self, verb: str, more: str = "") -> NoReturn:
        before = "skip" if self._skipped_at == self._host.position.iter else "stepped" if self._has_stepped else "step"
        if before != verb:
            raise HooklineError(f"run.{verb}() was called after run.{before}() of the same batch; call one of them")
        what = "" if verb == "skip" else "; add up the losses, and call it once"
        raise HooklineError(
            f"run.{verb}({'reason' if verb == 'skip' else 'loss'}{more}) was called a second time for one batch{what}"
        )

    # -- between steps

    def evaluating(self) -> Any:
        """Return the context of an evaluation of yours; it yields the model to call.

        Inside, the model is in evaluation mode, without gradients, and with averaged weights if a hook has them. Report
        the result inside or right after it, with `run.report`.
        """
        self._refuse_unfinished_batch("run.evaluating()")
        return self._evaluating()

    @contextmanager
    def _evaluating(self) -> Iterator[nn.Module]:
        with counted(self._host, self._place is STEPPED), self._validation.running() as model:
            yield model
        self._is_simple = self._is_simple and not self._validation.is_unreported
        self._after_validation()

    def report(self, metrics: Mapping[str, Any]) -> None:
        """Hand over the metrics of your own validation: they are recorded, and hooks see them as any validation's."""
        self._refuse_unfinished_batch("run.report()")
        with counted(self._host, self._place is STEPPED):
            self._validation.report(metrics)
        self._after_validation()

    def _after_validation(self) -> None:
        """Expect the schedulers where the validation left them, and after the loop, handle its requests."""
        self._leftovers.begin()
        if self._place == "over" and self._host.requests.pending:
            handle_requests(self._host)

    def _refuse_unfinished_batch(self, what: str) -> None:
        self._entered()
        self._refuse_closed(what)
        if self._place == "batch" and self._by_optim:
            self._finish_steps()
        if self._place == "batch":
            raise HooklineError(f"{what} was called before run.step(loss) of the current batch; call it after the step")

    def log(self, values: Mapping[str, Any]) -> None:
        """Record numbers of the current step: `run.log({"train/margin": 0.3})`. Call it before `run.step`."""
        self._refuse_closed("run.log()")
        for name, value in values.items():
            if name in ("train/loss", "train/lr"):
                raise HooklineError(f"run.log() cannot record '{name}': every step records it; use another name")
            self.runner.hub.update_scalar(name, value)

    def _refuse_closed(self, what: str) -> None:
        if self._is_closed:
            raise HooklineError(f"{what} was called after the session had ended; call it inside the session")

    def stop(self, reason: str, when: Literal["iter", "epoch"] = "iter") -> None:
        """End training after this iteration, or after this epoch. The loop then simply ends."""
        self.runner.stop(reason, when)

    @property
    def model(self) -> nn.Module:
        """Return the model to call in the loop: your model, or what several processes or a compiler make of it."""
        return self._model.taken()
