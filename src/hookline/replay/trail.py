"""Trail: the bits of everything in every step, in a file, so that two repetitions of a run can be compared anywhere.

A trail is a file of JSON lines: one per step and process. Each has the hashes by kind, in the order in which a step
reads and makes them, so the first difference between two trails is where the runs part.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.common.files import regular, write_text
from hookline.common.watching import compiled_modules, tensors_in
from hookline.errors import StorageError
from hookline.plan.modules import Watch
from hookline.replay import bits
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from hookline.runner.runner import Runner

#: The kinds of the state that a step leaves. A validation, a save or a hook may change it before the next step.
BETWEEN = ("parameter", "buffer", "mode", "learning rate", "optimizer", "hook state")
#: The kinds in a step, in the order in which a difference is looked for.
INSIDE = ("batch", "random numbers", "module output", "loss", "gradient", *BETWEEN)
#: The longest line that is read.
LONGEST = 1 << 28

Key = tuple[int, int]
Record = dict[str, bits.Bits]


class Trail(Hook):
    """Writes the bits of every step into a file of its process.

    Args:
        folder: The folder of the file.
        model: The model whose modules are watched.
        first: The first step that is written.
        hooks: Also write the states of hooks.
    """

    priority = "LOWEST"
    role = "observer"
    draws_random_numbers = False

    def __init__(self, folder: Path, model: nn.Module, first: int = 1, hooks: bool = True) -> None:
        self.folder, self.first, self.hooks = folder, first, hooks
        self._watches_modules = not compiled_modules(model)
        self._has_modules = next(model.children(), None) is not None
        self._record: Record = {}
        #: The state after the step before.
        self._left: Record = {}

    def watches(self) -> Iterator[Watch]:
        """Watch all modules, unless they are compiled."""
        if self._watches_modules:
            yield Watch(["", "*"] if self._has_modules else "", "forward", self._note_output)

    def before_train_iter(self, runner: Runner, data_batch: Any) -> None:
        """Note the batch, the random generators, and the changes since the step before."""
        if runner.iter + 1 < self.first:
            return
        self._record = {
            f"{kind} before the step": changed
            for kind, found in self._state(runner).items()
            if (changed := {name: each for name, each in found.items() if self._left.get(kind, {}).get(name) != each})
        }
        self._record |= {"batch": bits.bits_of(data_batch), "random numbers": bits.bits_of_generators()}
        self._record |= {"module output": {}, "loss": {}, "gradient": {}}

    def _note_output(self, runner: Runner, name: str, call: int, outputs: Any) -> None:
        if self._record:
            found = self._record["module output"]
            for number, tensor in enumerate(tensors_in(outputs)):
                place = (
                    f"{name or 'the model'}" + f", call {call + 1}" * bool(call) + f", output {number}" * bool(number)
                )
                found |= bits.bits_of(tensor, place)

    def before_optimizer_step(self, runner: Runner) -> None:
        """Note the gradients, which a step may remove."""
        if self._record:
            self._record["gradient"] |= bits.bits_of_gradients(runner)

    def after_train_iter(self, runner: Runner, outputs: Any) -> None:
        """Note the loss and what the step has left, and write everything."""
        if not self._record:
            return
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        self._record["loss"] = bits.bits_of(loss, "loss")
        if not self._record["gradient"]:
            self._record["gradient"] = bits.bits_of_gradients(runner)
        self._left = left = self._state(runner)
        line = json.dumps({"step": runner.iter + 1, "rank": runner.rank, **self._record, **left})
        with open(self.folder / name_of(runner.rank), "a", encoding="utf-8") as file:
            file.write(line + "\n")
        self._record = {}

    def _state(self, runner: Runner) -> Record:
        return bits.bits_of_run(runner) | ({"hook state": bits.bits_of_hooks(runner)} if self.hooks else {})


def name_of(rank: int) -> str:
    """Return the name of the file of a process."""
    return "trail.jsonl" if rank == 0 else f"trail-rank{rank}.jsonl"


def read_folder(folder: Path) -> dict[Key, Record]:
    """Return the trails of all processes in a folder, by step and rank."""
    found: dict[Key, Record] = {}
    for path in sorted(folder.glob("trail*.jsonl")):
        found |= read(path)
    return found


def write(path: Path, trail: Mapping[Key, Record]) -> None:
    """Write the trails of all processes into one file."""
    lines = [json.dumps({"step": step, "rank": rank, **record}) for (step, rank), record in sorted(trail.items())]
    write_text(path, "\n".join([*lines, ""]))


def read(path: Path) -> dict[Key, Record]:
    """Read a trail, which may come from anyone."""
    found: dict[Key, Record] = {}
    try:
        with open(path, encoding="utf-8", opener=regular) as file:
            while line := file.readline(LONGEST):
                data = json.loads(line)
                step, rank = data.pop("step"), data.pop("rank")
                if type(step) is not int or type(rank) is not int or not all(map(_is_bits, data.values())):
                    raise ValueError(line[:100])
                found[step, rank] = data
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise StorageError(
            f"{path} is not a trail; hookline replay RUN --steps A..B --trail FILE writes one"
        ) from error
    return found


def _is_bits(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(digest, str) for digest in value.values())


@dataclass(frozen=True)
class Difference:
    """The first place where two trails differ."""

    step: int
    rank: int
    kind: str
    name: str
    #: How many names of this kind differ.
    count: int
    #: All kinds that differ in this step.
    kinds: tuple[str, ...]

    def __str__(self) -> str:
        more = f" and {self.count - 1} more" if self.count > 1 else ""
        return f"{self.kind} {self.name}{more}".replace("loss loss", "the loss")


def first_difference(
    one: Mapping[Key, Record], other: Mapping[Key, Record], without: Sequence[str] = ()
) -> Difference | None:
    """Return the first difference between two trails, in steps that both have; None if these are equal."""
    begins = min(one, default=None) == min(other, default=None)
    for step, rank in sorted(one.keys() & other.keys()):
        a, b = one[step, rank], other[step, rank]
        kinds = [kind for kind in INSIDE if kind not in without]
        if begins or (step - 1, rank) in one.keys() & other.keys():
            kinds = [*(f"{kind} before the step" for kind in BETWEEN if kind not in without), *kinds]
        differing = {kind: names for kind in kinds if (names := _differing(a.get(kind, {}), b.get(kind, {})))}
        if differing:
            kind, names = next(iter(differing.items()))
            return Difference(step, rank, kind, names[0], len(names), tuple(differing))
    return None


def _differing(one: bits.Bits, other: bits.Bits) -> list[str]:
    """Return the names whose hashes differ, in the order of the first record."""
    return [name for name in dict.fromkeys((*one, *other)) if one.get(name) != other.get(name)]
