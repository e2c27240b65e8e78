"""A walk through the instructions of a pickle that creates nothing of what they describe, and only counts it.

It finds what a reader of the loaded value would find:

    entries   the values in it, as often as they are referred to
    claimed   the bytes of its tensors, if each had its own memory
    depth     the levels of lists and dicts inside each other

The walk knows the instructions that torch follows with `weights_only=True`. A subclass knows calls and storages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any

from hookline.checkpoint.zip_entries import DAMAGED, UnreadableError
from hookline.common import plain

CODE = "it holds more than tensors and plain data, and hookline never runs code from a file"
STOP, MARK, PUT, LONG_PUT, GET, LONG_GET, SMALL_INT = map(ord, ".(qrhjK")
INT, SIGNED, SHORT = Struct("<I"), Struct("<i"), Struct("<H")


class Node:
    """A value that contains others, and the counts of what is in it. Numbers, texts and tuples stand for themselves."""

    __slots__ = ("claimed", "depth", "entries", "facts", "has_tensors", "kind", "placed")

    def __init__(self, kind: str, facts: Any = None) -> None:
        #: tuple, list, dict, global, storage, tensor, or result (of any other call)
        self.kind = kind
        #: The name of a global, or the bytes of a storage and of one element.
        self.facts = facts
        self.entries, self.claimed, self.depth = 1, 0, 1
        #: True if some of the values directly in it are tensors.
        self.has_tensors = False
        #: True once it is part of another value. It must not change any more, or the counts would be wrong.
        self.placed = False


class Walk:
    """The stack machine of a pickle, for a file of a certain size."""

    def __init__(self, size: int) -> None:
        #: The functions and classes that the pickle names.
        self.globals: set[str] = set()
        self.size = size
        self._most_claimed = plain.most_bytes(size)
        self._most_entries = self._hashed = self._level = self._position = 0
        self._data = b""
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        #: The counts of tuples, by id. The tuples are kept, so that no other tuple gets the same id.
        self._tuples: dict[int, tuple[tuple[Any, ...], Node]] = {}

    def follow(self, data: bytes, position: int = 0) -> int:
        """Follow one pickle in the data, and return the position of its end.

        The most frequent instructions are here and not in the table: a checkpoint has about twenty of them per tensor.
        """
        self._data, self._most_entries, self._hashed, self._marks = data, plain.most_entries(len(data)), 0, []
        stack: list[Any] = []
        memo: dict[int, Any] = {}
        while (code := data[position]) != STOP:
            position += 1
            if code == PUT:
                memo[data[position]] = stack[-1]
                position += 1
            elif code == LONG_PUT:
                memo[INT.unpack_from(data, position)[0]] = stack[-1]
                position += 4
            elif code == GET:
                stack.append(memo[data[position]])
                position += 1
            elif code == LONG_GET:
                stack.append(memo[INT.unpack_from(data, position)[0]])
                position += 4
            elif code == SMALL_INT:
                stack.append(data[position])
                position += 1
            elif code == MARK:
                self._marks.append(stack)
                stack = []
            else:
                self._stack, self._position = stack, position
                instruction = INSTRUCTIONS.get(code)
                if instruction is None:
                    raise UnreadableError(CODE)
                instruction(self)
                stack, position = self._stack, self._position
        return position + 1

    # -- what a subclass knows

    def storage(self, items: tuple[Any, ...]) -> Node:
        """Return the memory that a persistent id describes."""
        raise NotImplementedError

    def result(self, function: Node, arguments: tuple[Any, ...]) -> Node:
        """Return the result of a call."""
        raise NotImplementedError

    # -- counting

    def place(self, items: Iterable[Any], into: Node) -> Node:
        """Count values as part of another one, and return it."""
        entries, claimed, depth = into.entries, into.claimed, into.depth
        for item in items:
            node = item if type(item) is Node else self.weigh(item) if type(item) is tuple else None
            if node is None:
                entries += 1
                continue
            node.placed = True
            if node.kind == "tensor":
                into.has_tensors = True
            entries += node.entries
            claimed += node.claimed
            if node.depth >= depth:
                depth = node.depth + 1
        if entries > self._most_entries:
            raise UnreadableError(f"it repeats the same lists or dicts, to more than {self._most_entries:,} entries")
        if claimed > self._most_claimed:
            raise UnreadableError(f"its tensors claim {claimed:,} bytes, but the file has only {self.size:,}")
        if depth > plain.DEPTH:
            raise UnreadableError(f"it {plain.TOO_DEEP}")
        into.entries, into.claimed, into.depth = entries, claimed, depth
        return into

    def hash(self, value: Any) -> None:
        """Count the work of hashing a value, which every use of a key causes."""
        node = self.weigh(value) if type(value) is tuple else value
        if type(node) is Node:
            self._hashed += node.entries
            if self._hashed > self._most_entries:
                raise UnreadableError(f"its keys have more than {self._most_entries:,} entries")

    def weigh(self, value: tuple[Any, ...]) -> Node:
        """Return the counts of a tuple."""
        known = self._tuples.get(id(value))
        if known is None:
            self._level += 1
            if self._level > plain.DEPTH:
                raise UnreadableError(f"it {plain.TOO_DEEP}")
            known = self._tuples[id(value)] = (value, self.place(value, Node("tuple")))
            self._level -= 1
        return known[1]

    def _change(self, items: Iterable[Any]) -> None:
        into = self._stack[-1]
        self.place(items, into)
        if into.placed:  # Python writes this only for a value that contains itself
            raise UnreadableError("a list or dict in it contains itself")

    # -- reading arguments

    def _number(self, form: Struct) -> int:
        self._position += form.size
        number: int = form.unpack_from(self._data, self._position - form.size)[0]
        return number

    def _bytes(self, length: int) -> bytes:
        begin, self._position = self._position, self._position + length
        if self._position > len(self._data):
            raise UnreadableError(DAMAGED)
        return self._data[begin : self._position]

    def _short_bytes(self) -> bytes:
        return self._bytes(self._bytes(1)[0])

    def _line(self) -> str:
        begin, end = self._position, self._data.index(b"\n", self._position)
        self._position = end + 1
        return self._data[begin:end].decode()

    def _group(self) -> list[Any]:
        group, self._stack = self._stack, self._marks.pop()
        return group

    # -- instructions

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _push_tuple(self, length: int) -> None:
        self._stack[-length:] = [tuple(self._stack[-length:])]

    def _push_global(self) -> None:
        module, name = self._line(), self._line()
        name = f"{'builtins' if module == '__builtin__' else module}.{name}"
        self.globals.add(name)
        self._stack.append(Node("global", name))

    def _set(self, items: list[Any]) -> None:
        for key in items[::2]:
            self.hash(key)
        self._change(items)

    def _set_item(self) -> None:
        items = self._stack[-2:]
        del self._stack[-2:]
        self._set(items)

    def _build(self) -> None:
        state = self._stack.pop()
        if self._stack[-1].kind != "result":  # it would turn a tensor into another one
            raise UnreadableError(CODE)
        self._change([state])

    def _persistent(self) -> None:
        self._stack.append(self.storage(self._stack.pop()))

    def _call(self) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        if type(function) is not Node or type(arguments) is not tuple:
            raise UnreadableError(CODE)
        self._stack.append(self.result(function, arguments))


#: All other instructions, by their codes.
INSTRUCTIONS: dict[int, Callable[[Walk], object]] = {
    0x80: lambda walk: walk._bytes(1),  # the protocol
    ord("N"): lambda walk: walk._push(None),
    0x88: lambda walk: walk._push(True),
    0x89: lambda walk: walk._push(False),
    ord("M"): lambda walk: walk._push(walk._number(SHORT)),
    ord("J"): lambda walk: walk._push(walk._number(SIGNED)),
    0x8A: lambda walk: walk._push(int.from_bytes(walk._short_bytes(), "little", signed=True)),
    ord("G"): lambda walk: walk._push(walk._bytes(8)),
    ord("X"): lambda walk: walk._push(walk._bytes(walk._number(INT))),
    ord("U"): lambda walk: walk._push(walk._short_bytes()),
    ord(")"): lambda walk: walk._push(()),
    0x85: lambda walk: walk._push_tuple(1),
    0x86: lambda walk: walk._push_tuple(2),
    0x87: lambda walk: walk._push_tuple(3),
    ord("t"): lambda walk: walk._push(tuple(walk._group())),
    ord("]"): lambda walk: walk._push(Node("list")),
    ord("a"): lambda walk: walk._change([walk._stack.pop()]),
    ord("e"): lambda walk: walk._change(walk._group()),
    ord("}"): lambda walk: walk._push(Node("dict")),
    ord("s"): Walk._set_item,
    ord("u"): lambda walk: walk._set(walk._group()),
    ord("c"): Walk._push_global,
    ord("R"): Walk._call,
    0x81: Walk._call,  # a class is called
    ord("b"): Walk._build,
    ord("Q"): Walk._persistent,
}
