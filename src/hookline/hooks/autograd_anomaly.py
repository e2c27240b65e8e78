"""AutogradAnomalyHook: which line of the forward pass a failing gradient comes from."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import hookline
from hookline.common.checks import check_int, warn_if_never_reached
from hookline.errors import ConfigError, NumericsError, blame
from hookline.plan.calls import short_path
from hookline.plan.hook import Hook

if TYPE_CHECKING:
    from hookline.engine.runner import Runner

# How torch begins its warning about where in the forward pass something was computed, and a frame in it.
REPORT = re.compile(r"\s*(?:Error detected in|Previous calculation was induced by) (\w+)")
FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)(?:\n    (.+))?', re.MULTILINE)


class AutogradAnomalyHook(Hook):
    """Names the line of the forward pass when a backward pass fails or gives a NaN.

    This is autograd's anomaly detection, for a whole run or a range of iterations. A NaN in a gradient ends the run
    with exit code 4, before it reaches the weights. With fp16, this also holds for an overflow that the gradient scaler
    would have passed over. A square root or a norm of 0, a division of 0 by 0 and a `where` around one of them are the
    usual reasons.

    Anomaly detection is on during the chosen iterations, their hooks included, and afterwards as it was before.
    torch's warning about the line is kept for the error; all other warnings are shown as ever.

    Cost: a stack trace at every operation and a look for NaN in every gradient, which waits for the device. Measured on
    a CPU: 4 to 6 times the time of an iteration where there is little to compute (three small linear layers), 1.1 times
    where there is more (two convolutions of 32 images). Before the range, a comparison an iteration; behind it,
    nothing.

    Example:
        from hookline.hooks import AutogradAnomalyHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[AutogradAnomalyHook(begin=2, end=4)]).train()

    YAML:
        custom_hooks:
          - {type: AutogradAnomalyHook, end: 100}

    Args:
        begin: From how many finished iterations on: 0 is from the start.
        end: Until how many iterations are finished; None is until the end.
        check_nan: Also fail when a gradient is NaN, and not only where the backward pass itself fails.
    """

    def __init__(self, begin: int = 0, end: int | None = None, check_nan: bool = True) -> None:
        check_int("AutogradAnomalyHook: begin", begin, least=0)
        if end is not None:
            check_int("AutogradAnomalyHook: end", end, least=1)
            if end <= begin:
                raise ConfigError(f"AutogradAnomalyHook: end must be above begin, so {begin} to {end} is no range")
        self.begin = begin
        self.end = end
        self.check_nan = check_nan
        self._reports: list[Report] = []

    def idle_points(self, runner: Runner) -> list[str]:
        """A run that ends before the range begins, or is behind it."""
        never = runner.max_iters is not None and self.begin >= runner.max_iters
        over = self.end is not None and runner.iter >= self.end
        return ["around_train", "around_train_iter"] if never or over else []

    def before_train(self, runner: Runner) -> None:
        """Warn of a beginning that never comes; it counts finished iterations, so the last is one too late."""
        last = None if runner.max_iters is None else runner.max_iters - 1
        warn_if_never_reached("AutogradAnomalyHook: begin", self.begin, last)

    def around_train(self, runner: Runner) -> Iterator[None]:
        """Keep torch's reports. Once for all iterations: changing filters makes Python forget what it has shown."""
        with reports_kept_in(self._reports):
            yield

    def around_train_iter(self, runner: Runner) -> Iterator[None]:
        """An iteration with anomaly detection; its failure is told where it comes from."""
        if self.end is not None and runner.iter >= self.end:
            runner.plan.skip_idle_points(self)
            yield
            return
        if runner.iter < self.begin:
            yield
            return
        import torch

        try:
            with torch.autograd.set_detect_anomaly(True, self.check_nan):
                yield
        except Exception as error:
            self._explain(error)
            raise
        finally:
            for report in self._reports:  # of a failure that the step has dealt with
                report.show()
            self._reports.clear()

    def _explain(self, error: Exception) -> None:
        """Note on the error what torch has reported; a NaN has its own exit code."""
        nan = isinstance(error, RuntimeError) and "returned nan values" in str(error)
        for report in self._reports:
            blame(
                error, f"AutogradAnomalyHook: {describe(str(report.message))}", NumericsError.exit_code if nan else None
            )
        if nan and not self._reports:
            blame(error, "AutogradAnomalyHook: torch has said above where it was computed", NumericsError.exit_code)
        self._reports.clear()


class Report(NamedTuple):
    """A warning of torch as it was about to be shown, and what would have shown it."""

    message: Warning | str
    arguments: tuple[Any, ...]
    shown_by: Any

    def show(self) -> None:
        """Show it after all."""
        self.shown_by(self.message, *self.arguments)


@contextmanager
def reports_kept_in(reports: list[Report]) -> Iterator[None]:
    """Keep what torch reports about failing backward passes, whatever the filters; all other warnings go their way."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def keep(message: Warning | str, *arguments: Any, **named: Any) -> None:
            if REPORT.match(str(message)):
                reports.append(Report(message, arguments, show))
            else:
                show(message, *arguments, **named)

        warnings.filterwarnings("always", REPORT.pattern)
        warnings.showwarning = keep
        yield


def describe(report: str) -> str:
    """The line of the forward pass that a report is about, and from where it was called."""
    found = REPORT.match(report)
    what = found[1] if found else "it"
    frames = user_frames(report)
    if not frames:
        return f"{what} failed, and was computed where anomaly detection was not on"
    *callers, line = frames
    return "\n  called at ".join([f"{what} failed; it belongs to {line}", *reversed(callers)])


def user_frames(report: str) -> list[str]:
    """The frames of a forward pass from the user's step on, without those of torch, as `file:line, in name: source`."""
    import torch

    from hookline.engine import loops

    frames = FRAME.findall(report)
    below = [number for number, frame in enumerate(frames, 1) if frame[0] == loops.__file__]
    frames = frames[below[-1] :] if below else frames
    of_torch, of_hookline = (package.__path__[0] + os.sep for package in (torch, hookline))
    not_torch = [frame for frame in frames if not frame[0].startswith(of_torch)]
    own = [frame for frame in not_torch if not frame[0].startswith(of_hookline)]
    return [f"{short_path(path)}:{line}, in {name}: {code}" for path, line, name, code in own or not_torch or frames]
