"""A walk through the instructions of a pickle that calls nothing: it returns what they describe.

Lists and tuples stand for themselves. A dict is a list of its keys and values, so that no key is hashed. A call is a
`Call`. The memory for all of this is in proportion to the pickle. Python's own reader follows the instructions, as far
as torch follows them with `weights_only=True`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any, ClassVar

from hookline.checkpoint.zip_entries import UnreadableError

CODE = "it holds more than tensors and plain data, and hookline never runs code from a file"
#: The function that returns a tensor with attributes, or of a subclass. Its first argument is a function to call.
WITH_STATE = "torch._tensor._rebuild_from_type_v2"
#: The codes of the instructions that Python's reader follows safely: numbers, texts, tuples, lists, and the memo.
SAFE = b"\x80NKMJGXU\x88\x89\x8a)\x85\x86\x87(t]aehjqrc."


class Pairs(list[Any]):
    """A dict: a key, its value, the next key, and so on."""


@dataclass(eq=False, slots=True)
class Global:
    """A function, class or constant, by its name."""

    name: str


@dataclass(eq=False, slots=True)
class Storage:
    """The memory of tensors: the class and key, and the number of elements."""

    kind: str
    key: str | bytes
    count: int


@dataclass(eq=False, slots=True)
class Call:
    """The result of a call, and the entries and states that it was given afterwards."""

    function: str
    arguments: tuple[Any, ...]
    entries: Pairs = field(default_factory=Pairs)
    states: list[Any] = field(default_factory=list)


class _Walk(pickle._Unpickler):
    """Python's reader, written in Python, with other results of all instructions that create or change objects."""

    stack: list[Any]

    def find_class(self, module: str, name: str) -> Global:
        return Global(f"{module}.{name}")

    def push_dict(self) -> None:
        self.stack.append(Pairs())

    def set_item(self) -> None:
        items = self.stack[-2:]
        del self.stack[-2:]
        self._fill(items)

    def set_items(self) -> None:
        self._fill(self.pop_mark())  # type: ignore[attr-defined]  # the types of Python leave it out

    def _fill(self, items: list[Any]) -> None:
        into = self.stack[-1]
        pairs = into.entries if type(into) is Call else into
        if type(pairs) is not Pairs:
            raise UnreadableError(CODE)
        pairs += items

    def call(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if type(function) is not Global or type(arguments) is not tuple:
            raise UnreadableError(CODE)
        if function.name == WITH_STATE:
            inner, _, given, *state = arguments
            self.stack += [inner, given]
            self.call()
            arguments = (self.stack.pop(), *state)
        self.stack.append(Call(function.name, arguments))

    def build(self) -> None:
        state = self.stack.pop()
        if type(self.stack[-1]) is not Call:
            raise UnreadableError(CODE)
        self.stack[-1].states.append(state)

    def push_storage(self) -> None:
        _, kind, key, _, count = self.stack.pop()[:5]
        self.stack.append(Storage(kind.name, key, count))

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **{code: pickle._Unpickler.dispatch[code] for code in SAFE},
        **{ord("}"): push_dict, ord("s"): set_item, ord("u"): set_items, ord("b"): build, ord("Q"): push_storage},
        **{ord("R"): call, 0x81: call},
    }


def walk(file: IO[bytes]) -> Any:
    """Follow the next pickle of a file, and return the value that it describes."""
    try:
        return _Walk(file, encoding="bytes").load()
    except KeyError as error:  # an instruction that is not in `dispatch`
        raise UnreadableError(CODE) from error
