"""AutogradAnomalyHook: finds the line of the forward pass that a failing gradient comes from."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import hookline
from hookline.common.checks import check_int
from hookline.errors import ConfigError, NumericsError, blame
from hookline.plan.milestones import Milestone
from hookline.plan.sources import short_path
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from hookline.runner.runner import Runner

# The beginning of torch's warning about where in the forward pass something was computed, and a stack frame in it.
REPORT = re.compile(r"\s*(?:Error detected in|Previous calculation was induced by) (\w+)")
FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)(?:\n    (.+))?', re.MULTILINE)


class AutogradAnomalyHook(Hook):
    """Names the line of the forward pass when a backward pass fails or produces NaN.

    This turns on autograd's anomaly detection, for the whole run or for a range of iterations, including their hooks. A
    NaN gradient ends the run with exit code 4 before it reaches the weights. With fp16, this includes overflows that
    the gradient scaler would have skipped. The usual causes are the square root or norm of 0, 0 divided by 0, and a
    `where` around one of these.

    Cost: a stack trace per operation and a NaN check of every gradient, which waits for the device. On a CPU, an
    iteration takes 4 to 6 times as long with three small linear layers, and 1.1 times as long with two convolutions of
    32 images. Outside the range, almost nothing.

    Example:
        from hookline.hooks import AutogradAnomalyHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[AutogradAnomalyHook(begin=2, end=4)]).train()

    YAML:
        custom_hooks:
          - {type: AutogradAnomalyHook, end: 100}

    Args:
        begin: Start after this many finished iterations. 0 starts with the first one.
        end: Stop after this many finished iterations. None means at the end of the run.
        check_nan: Also fail if a gradient is NaN, not only if the backward pass itself fails.
    """

    def __init__(self, begin: int = 0, end: int | None = None, check_nan: bool = True) -> None:
        check_int("AutogradAnomalyHook: begin", begin, least=0)
        if end is not None:
            check_int("AutogradAnomalyHook: end", end, least=1)
            if end <= begin:
                raise ConfigError(f"AutogradAnomalyHook: end must be greater than begin ({begin}), not {end}")
        self.begin = begin
        self.end = end
        self.check_nan = check_nan
        self._reports: list[Report] = []

    def idle_points(self, runner: Runner) -> list[str]:
        """Return the points to skip: both scopes if the run ends before the range, or is already past it."""
        never = runner.max_iters is not None and self.begin >= runner.max_iters
        over = self.end is not None and runner.iter >= self.end
        return ["around_train", "around_train_iter"] if never or over else []

    def must_reach(self, runner: Runner) -> list[Milestone]:
        """Return the first iteration of the range, which comes after `begin` finished ones."""
        return [Milestone("begin", self.begin, self.begin + 1, "iteration", "no iteration is checked")]

    def around_train(self, runner: Runner) -> Iterator[None]:
        """Collect torch's reports during the whole training.

        Setting the filters once is enough. Each change of the filters makes Python forget which warnings it has shown.
        """
        with capture_reports(self._reports):
            yield

    def around_train_iter(self, runner: Runner) -> Iterator[None]:
        """Run the iteration with anomaly detection. If it fails, add the line to the error."""
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
            for report in self._reports:  # the step has handled these failures itself
                report.show()
            self._reports.clear()

    def _explain(self, error: Exception) -> None:
        """Add torch's reports to the error as notes. A NaN also sets the exit code."""
        nan = isinstance(error, RuntimeError) and "returned nan values" in str(error)
        for report in self._reports:
            blame(
                error, f"AutogradAnomalyHook: {describe(str(report.message))}", NumericsError.exit_code if nan else None
            )
        if nan and not self._reports:
            blame(error, "AutogradAnomalyHook: torch's warning above names the line", NumericsError.exit_code)
        self._reports.clear()


class Report(NamedTuple):
    """A warning from torch that was not shown yet, and the function that would have shown it."""

    message: Warning | str
    arguments: tuple[Any, ...]
    shown_by: Any

    def show(self) -> None:
        """Show the warning now."""
        self.shown_by(self.message, *self.arguments)


@contextmanager
def capture_reports(reports: list[Report]) -> Iterator[None]:
    """Collect torch's reports about failing backward passes, whatever the filters. Show other warnings as usual."""
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
    """Return the line of the forward pass that a report is about, and its callers."""
    match = REPORT.match(report)
    what = match[1] if match else "it"
    frames = user_frames(report)
    if not frames:
        return f"{what} failed; its line is unknown, because it was computed while anomaly detection was off"
    *callers, line = frames
    return "\n  called from ".join([f"{what} failed; its forward pass is {line}", *reversed(callers)])


def user_frames(report: str) -> list[str]:
    """Return the frames of a forward pass below the training loop, without torch's: `file:line, in name: source`."""
    import torch

    from hookline.engine import loops

    frames = FRAME.findall(report)
    below = [number for number, frame in enumerate(frames, 1) if frame[0] == loops.__file__]
    frames = frames[below[-1] :] if below else frames
    of_torch, of_hookline = (package.__path__[0] + os.sep for package in (torch, hookline))
    not_torch = [frame for frame in frames if not frame[0].startswith(of_torch)]
    users = [frame for frame in not_torch if not frame[0].startswith(of_hookline)]
    return [f"{short_path(path)}:{line}, in {name}: {code}" for path, line, name, code in users or not_torch or frames]
