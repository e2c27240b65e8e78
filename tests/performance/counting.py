"""Counts of what Python does in a step: function calls and bytecode instructions. They are the same on any machine.

    data = Counted(batch, steps=62)
    train_on(data)                # anything that iterates over it
    data.calls_per_step, data.instructions_per_step

Counting begins after `WARM_UP` batches, when everything that happens once has happened. Code in C and in other
threads is not counted. `python -m tests.performance.counting everything` prints the functions with the most of them.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

WARM_UP = 40
#: Two periods of the ledger, which measures one step of 31, and six records.
STEPS = 62


class Counted(list[Any]):
    """The batches of one epoch, which counts what happens between them."""

    def __init__(self, batch: Any, steps: int = STEPS) -> None:
        super().__init__([batch] * (WARM_UP + steps + 1))
        self.steps = steps
        #: How often each function was called, and how many instructions it ran.
        self.calls: Counter[CodeType | str] = Counter()
        self.instructions: Counter[CodeType | str] = Counter()

    def __iter__(self) -> Iterator[Any]:
        for number in range(len(self)):
            yield self.take(number)

    def take(self, number: int) -> Any:
        """Return one batch, and start or stop counting."""
        if number == WARM_UP:
            self._start()
        elif number == WARM_UP + self.steps:
            self._stop()
        return self[number]

    @property
    def calls_per_step(self) -> float:
        """Return the mean number of calls per step."""
        return self._per_step(self.calls)

    @property
    def instructions_per_step(self) -> float:
        """Return the mean number of instructions per step."""
        return self._per_step(self.instructions)

    def _per_step(self, found: Counter[CodeType | str]) -> float:
        own = (Counted.__iter__.__code__, Counted.take.__code__)
        return sum(number for code, number in found.items() if code not in own) / self.steps

    def _start(self) -> None:
        frame: FrameType | None = sys._getframe(1)
        gc.collect()
        gc.disable()  # it could find objects of other tests, whose finalizers would be counted
        sys.setprofile(self._on_call)
        sys.settrace(self._on_instruction)
        while frame is not None:  # the frames that are already running
            frame.f_trace, frame.f_trace_opcodes, frame.f_trace_lines = self._on_instruction, True, False
            frame = frame.f_back

    def _stop(self) -> None:
        sys.setprofile(None)
        sys.settrace(None)
        gc.enable()
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            frame.f_trace, frame.f_trace_opcodes = None, False
            frame = frame.f_back

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self.calls[frame.f_code] += 1
        elif event == "c_call":
            self.calls[str(getattr(argument, "__qualname__", argument))] += 1

    def _on_instruction(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            self.instructions[frame.f_code] += 1
        elif event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._on_instruction


def count_calls(function: Callable[[], Any]) -> int:
    """Return how many functions are called, in Python and in C, except about paths: they depend on the folder."""
    number = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal number
        number += event in ("call", "c_call") and "posixpath" not in frame.f_code.co_filename

    gc.collect()
    gc.disable()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
        gc.enable()
    return number


def count_instructions(function: Callable[[], Any]) -> int:
    """Return how many bytecode instructions a function and all that it calls run, with those of `function` itself."""
    number = 0

    def note(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal number
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        number += event == "opcode"
        return note

    sys.settrace(note)
    try:
        function()
    finally:
        sys.settrace(None)
    return number


def main() -> None:
    """Print the functions of a case with the most instructions per step, and how often each is called."""
    from tests.performance.cases import counted_case

    data = counted_case(sys.argv[1])
    print(f"{data.instructions_per_step:8.1f} instructions, {data.calls_per_step:.1f} calls per step")
    for code, number in data.instructions.most_common(60):
        assert not isinstance(code, str), "only Python code has instructions"
        calls = data.calls[code] / data.steps
        print(f"{number / data.steps:8.1f} {calls:6.2f}  {code.co_qualname}  {code.co_filename.rpartition('/')[2]}")


if __name__ == "__main__":
    main()
