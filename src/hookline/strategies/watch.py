"""A watch over the processes of a run: which of them hangs, where, and since when.

A thread of every process looks each second at where its loop is, and leaves a note about it in the store. Rank 0 reads
the notes of all processes, and rank 1 reads the notes of rank 0. A process without a new note does not answer. A
process with new notes hangs if its loop stays in one place for much longer than usual, while others wait for it. The
loop itself does nothing for this.

A process that hangs is named in a warning. The run ends with the timeout of the group, or earlier if it continues.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from torch import distributed

from hookline.common.escape import escaped_message
from hookline.common.torch_private import exchanges_of
from hookline.strategies import stacks, stays
from hookline.strategies.stays import Place, Stays

if TYPE_CHECKING:
    from hookline.strategies.group import Group

log = logging.getLogger("hookline")

#: Seconds between two notes, for up to MANY processes; with more, this grows with their number.
PERIOD, MANY = 1.0, 256
#: The number of processes that are named if all wait for each other.
SOME = 4
#: The share of the group's timeout after which a stay is too long, before its usual duration is known.
UNKNOWN = 0.1

#: Returns where the loop of a thread is, by its innermost frame.
Locate = Callable[[FrameType], Place]


class Watch:
    """The watch of one process, while a session lasts."""

    def __init__(self, group: Group, store: Any, locate: Locate) -> None:
        self._group, self._locate = group, locate
        self.period = PERIOD * max(1.0, group.world_size / MANY)
        # A call that blocks must not block others, so the thread has its own connection.
        self._store = store
        #: The processes that hang now, with a description: as all watchers see it, and as this one does.
        self.hanging: dict[int, str] = {}
        self._found: dict[int, str] = {}
        #: When the store has answered last.
        self._answered = time.monotonic()
        self._thread_of_loop = threading.get_ident()
        self._stacks = stacks.StackFile()
        self._stays = Stays(UNKNOWN * group.timeout)
        self._place, self._since = Place("the start"), time.monotonic()
        self._beats = 0
        #: True once this process fails because others did not answer. Nobody continues from then on.
        self.is_failing = False
        #: The process and the stack of each rank.
        self._facts: list[dict[str, Any]] = group.gather(
            {
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "thread": self._thread_of_loop,
                "file": self._stacks.number,
            }
        )
        #: The last note of each process that is watched, and when it came.
        watched = range(group.world_size) if group.rank == 0 else [0] if group.rank == 1 else []
        self._notes = {rank: (b"{}", time.monotonic()) for rank in watched}
        self._over = threading.Event()
        self.launcher_has_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Watch while the context lasts."""
        # With a process that is stopped, its store does not answer either, for ever, whatever timeout is set.
        tasks = [self._watch_notes, *([self._watch_store] if self._group.rank and not self.launcher_has_store else [])]
        threads = [threading.Thread(target=each, name="hookline-watch", daemon=True) for each in tasks]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join(2 * self.period)
            self._stacks.close()

    def _watch_notes(self) -> None:
        """Leave and read notes."""
        while not self._over.wait(self.period if self._beats else 0.0):
            self._stacks.put_off(self.period + 0.6 * stays.FLOOR)
            with suppress(RuntimeError):  # the store has gone with its process
                self._leave_note(self._look())
                self._read_notes()
        with suppress(RuntimeError):
            self._leave_note({"ended": True})

    def _watch_store(self) -> None:
        """Conclude that rank 0, which has the store, does not answer if the store does not."""
        while not self._over.wait(self.period):
            silent = time.monotonic() - self._answered
            note = json.loads(self._notes.get(0, (b"{}", 0.0))[0])
            if silent > stays.FLOOR + self.period and "ended" not in note:
                self._show({0: describe_silent(0, self._facts[0] | note, silent)})
                self.hanging = dict(self._found)
                self._cut_after(silent)

    @property
    def misses_store(self) -> bool:
        """Return whether the store does not answer, so that a call of it would not return."""
        return 0 in self.hanging and time.monotonic() - self._answered > stays.FLOOR + self.period

    # -- this process

    def _look(self) -> dict[str, Any]:
        """Look at where the loop is, and return the note about it."""
        frame = sys._current_frames().get(self._thread_of_loop)
        place, now = self._locate(frame) if frame is not None else Place("the end"), time.monotonic()
        if place != self._place:
            self._stays.add(self._place, now - self._since, place.step - self._place.step)
            self._place, self._since = place, now
        seconds = now - self._since
        late = seconds > self._stays.limit(place)
        about = {"place": str(place), "waits": place.waits, "since": round(seconds, 1), "exchange": exchanges()}
        about["failing"] = self.is_failing
        return about | {"late": late, "stack": stacks.own(frame) if late and frame is not None else []}

    def _leave_note(self, note: dict[str, Any]) -> None:
        self._beats += 1
        self._store.set(f"note/{self._group.rank}", json.dumps({"beat": self._beats, **note}))

    # -- the other processes

    def _read_notes(self) -> None:
        """Read the notes of the processes that this one watches, and what other watchers have found."""
        rank, size = self._group.rank, self._group.world_size
        for each, (before, _) in self._notes.items():
            if before != b"{}" or self._store.check([f"note/{each}"]):
                note = self._store.get(f"note/{each}")
                if note != before:
                    self._notes[each] = note, time.monotonic()
        if self._notes:
            self._show(self._judge())
            self._store.set(f"hanging/{rank}", json.dumps(self._found))
        told: dict[int, str] = {}
        for each in range(min(size, 2)):
            if each != rank and self._store.check([f"hanging/{each}"]):
                told |= {int(key): text for key, text in json.loads(self._store.get(f"hanging/{each}")).items()}
        self.hanging = told | self._found
        self._answered = time.monotonic()

    def _judge(self) -> dict[int, str]:
        """Return the processes that hang, with a description of each."""
        now, found, answering = time.monotonic(), dict[int, str](), dict[int, dict[str, Any]]()
        for rank, (text, came) in self._notes.items():
            note, silent = json.loads(text), now - came
            if silent <= stays.FLOOR + self.period or "ended" in note:
                answering[rank] = note
            else:
                found[rank] = describe_silent(rank, self._facts[rank] | note, silent)
                self._cut_after(silent)
        late = {rank: note for rank, note in answering.items() if note.get("late")}
        if any(note.get("waits") for note in answering.values()):
            found |= {rank: describe_late(rank, note) for rank, note in late.items() if not note["waits"]}
        if not found and len(late) == self._group.world_size and all(note["waits"] for note in late.values()):
            least = min(note["exchange"] for note in late.values())  # those that are behind the others
            behind = [rank for rank, note in late.items() if note["exchange"] == least][:SOME]
            found = {rank: describe_late(rank, late[rank]) for rank in behind}
        return found

    def _cut_after(self, silent: float) -> None:
        """End the run if a process does not answer for too long. Whoever waits for files would wait much longer."""
        if silent > self._group.timeout:
            self._group.cut()

    def _show(self, found: dict[int, str]) -> None:
        """Keep who hangs now. Warn about a process that has begun to hang, and say if it continues."""
        ending = self.is_failing or any(json.loads(text).get("failing") for text, _ in self._notes.values())
        before, self._found = self._found, {**self._found, **found} if ending else found
        for rank in sorted(found.keys() - before.keys()):
            self._say(f"{found[rank]}\n  The run ends if it does not continue within {self._group.timeout:g} seconds.")
        for rank in sorted(before.keys() - self._found.keys()):
            self._say(f"rank {rank} continues")

    def _say(self, text: str) -> None:
        """Show a warning: in the main process as always, elsewhere on stderr, because the main process cannot."""
        if self._group.rank > 1:
            return
        if self._group.rank == 0:
            log.warning("%s", text)
        else:
            with suppress(OSError):
                os.write(2, f"warning: {escaped_message(text)}\n".encode())

    def describe(self, rank: int) -> str:
        """Describe a process that no longer takes part; empty if nothing is known."""
        if self.is_dead(rank):
            return f"rank {rank} was killed, or ended without a reason"
        return self.hanging.get(rank, "")

    def is_dead(self, rank: int) -> bool:
        """Return whether a process of this machine is gone."""
        facts = self._facts[rank]
        return facts["host"] == socket.gethostname() and stacks.state(facts["pid"]) in ("", "Z", "X")


def exchanges() -> int:
    """Return how many exchanges this process has begun; 0 if the backend does not count them."""
    group: Any = distributed.group.WORLD
    with suppress(RuntimeError, AttributeError):
        return exchanges_of(group)
    return 0


def describe_silent(rank: int, note: dict[str, Any], seconds: float) -> str:
    """Describe a process that leaves no notes, with its stack if it is on this machine."""
    here = note["host"] == socket.gethostname()
    state = stacks.state(note["pid"]) if here else "?"
    why = {"T": "it is stopped", "t": "a debugger has stopped it", "": "it was killed", "Z": "it was killed"}.get(
        state, "a thread of it holds the GIL" if here else "it is stopped, or a thread of it holds the GIL"
    )
    lines = stacks.read(note["pid"], note["file"], note["thread"]) if here else []
    where = f"; last seen {note['place']}" if "place" in note and not lines else ""
    return "\n  ".join([f"rank {rank} does not answer for {seconds:.0f} s: {why}{where}", *lines])


def describe_late(rank: int, note: dict[str, Any]) -> str:
    """Describe a process that stays in one place, with its stack."""
    verb = "waits" if note["waits"] else "hangs"
    return "\n  ".join([f"rank {rank} {verb} {note['place']}, for {note['since']:.0f} s", *note["stack"]])
