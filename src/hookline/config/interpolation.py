r"""`${...}`: references to other values of the config, and to environment variables.

    lr: 0.1
    optim: {optimizer: {type: SGD, lr: "${lr}"}}      the value itself, whatever it is
    work_dir: runs/${experiment_name}                 inside of a text, a scalar
    data: ${oc.env:DATA,/data}                        an environment variable (always text), or a default
    text: \${not a reference}                         a backslash keeps it as it is

The syntax is omegaconf's, without what could run code or grow without limit: no other resolvers, no references built
out of references. omegaconf itself is not used, since it resolves a text of references to texts of references
without any bound, takes resolvers from whatever has been imported, and does not know positions.
"""

from __future__ import annotations

import os
import re

from hookline.common.marks import Keys, Mark, dotted, refusal, show
from hookline.common.nodes import Node, TooLargeError, is_text, walk
from hookline.config.overrides import split_path
from hookline.errors import did_you_mean

MISSING = "???"
MAX_TEXT = 1_000_000
MAX_CHAIN = 100

_REFERENCE = re.compile(r"(\\?)\$\{([^{}]*)(\}?)")
_ENV = re.compile(r"oc\.env:\s*([A-Za-z_][A-Za-z0-9_]*)\s*(?:,(.*))?", re.DOTALL)


def missing(root: Node) -> list[tuple[Keys, Mark]]:
    """The values that are left to be given: `???`."""
    return [(keys, node.mark) for keys, node in walk(root) if node.value == MISSING]


def interpolate(root: Node) -> Node:
    """The tree with every reference replaced by what it refers to."""
    if not any(isinstance(node.value, str) and "${" in node.value for _, node in walk(root)):
        return root
    return _Interpolation(root).whole(root, ())


class _Interpolation:
    """One pass over a tree. What is resolved is remembered, so that the work is never more than the result's size."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.done: dict[Keys, Node] = {}
        self.open: list[Keys] = []
        self.characters = 0

    def whole(self, node: Node, keys: Keys) -> Node:
        """This value and everything in it, resolved."""
        if keys in self.done:
            return self.done[keys]
        if keys in self.open:
            chain = " -> ".join(dotted(step) for step in [*self.open[self.open.index(keys) :], keys])
            raise refusal(node.mark, keys, f"the reference goes round in a circle: {chain}")
        if len(self.open) > MAX_CHAIN:
            raise refusal(node.mark, keys, f"a chain of more than {MAX_CHAIN} references; this is not a config")
        self.open.append(keys)
        try:
            result = self.inside(node, keys)
        except TooLargeError as error:
            raise refusal(node.mark, keys, error.reason) from None
        self.open.pop()
        self.done[keys] = result
        return result

    def inside(self, node: Node, keys: Keys) -> Node:
        if isinstance(node.value, dict):
            return Node({key: self.whole(child, (*keys, key)) for key, child in node.value.items()}, node.mark)
        if isinstance(node.value, list):
            return Node([self.whole(child, (*keys, index)) for index, child in enumerate(node.value)], node.mark)
        if isinstance(node.value, str) and "${" in node.value:
            return self.text(node.value, node, keys)
        return node

    def text(self, text: str, node: Node, keys: Keys) -> Node:
        """A text with references in it; a single one gives the value itself."""
        alone = _REFERENCE.fullmatch(text)
        if alone and not alone[1]:
            return self.reference(alone, node, keys).at(node.mark)
        parts, end = [], 0
        for match in _REFERENCE.finditer(text):
            piece = match[0][1:] if match[1] else self.spelt(self.reference(match, node, keys), match[0], node, keys)
            parts += [text[end : match.start()], piece]
            end = match.end()
            self.characters += len(piece)
            if self.characters > MAX_TEXT:
                raise refusal(node.mark, keys, f"the references make texts of more than {MAX_TEXT:,} characters")
        return Node("".join([*parts, text[end:]]), node.mark)

    def spelt(self, value: Node, reference: str, node: Node, keys: Keys) -> str:
        if isinstance(value.value, (dict, list)):
            raise refusal(node.mark, keys, f"{reference} is {show(value.value)}, which cannot stand inside of a text")
        if isinstance(value.value, str):
            return value.value
        return show(value.value)

    def reference(self, match: re.Match[str], node: Node, keys: Keys) -> Node:
        inner = match[2].strip()
        if not match[3]:
            raise refusal(node.mark, keys, f"'{match[0]}' is no reference; write ${{key.path}}, without braces in it")
        if env := _ENV.fullmatch(inner):
            return self.environment(env[1], env[2], node, keys)
        if ":" in inner:
            name = inner.partition(":")[0]
            raise refusal(
                node.mark, keys, f"${{{name}:...}} is refused; there is ${{key.path}} and ${{oc.env:NAME,default}}"
            )
        target = split_path(inner)
        if target is None:
            raise refusal(node.mark, keys, f"'{match[0]}' is no reference; write ${{key.path}}")
        return self.lookup(target, node, keys)

    def environment(self, name: str, default: str | None, node: Node, keys: Keys) -> Node:
        value = os.environ.get(name, default.strip() if default is not None else None)
        if value is None:
            example = f"${{oc.env:{name},default}}"
            raise refusal(node.mark, keys, f"the environment variable {name} is not set; a default: {example}")
        if not is_text(value):
            raise refusal(node.mark, keys, f"the environment variable {name} is not UTF-8")
        return Node(value, node.mark)

    def lookup(self, target: Keys, node: Node, keys: Keys) -> Node:
        """The value under absolute keys; containers on the way stay unresolved, or a sibling would be a circle."""
        at, final = self.root, False
        place: Keys = ()
        for depth, key in enumerate(target):
            if not final and isinstance(at.value, str) and "${" in at.value:
                at, final = self.whole(at, place), True
            child = _child(at, key)
            if child is None:
                hint = self.hint(at, key, target[:depth])
                raise refusal(node.mark, keys, f"${{{dotted(target)}}} refers to nothing; {hint}")
            place = (*place, key if isinstance(at.value, dict) else int(key))
            at = child
        return at if final else self.whole(at, place)

    def hint(self, at: Node, key: str | int, above: Keys) -> str:
        if isinstance(at.value, dict):
            known = [dotted((*above, name)) for name in at.value]
            return did_you_mean(dotted((*above, key)), known)
        where = dotted(above)
        if isinstance(at.value, list):
            return f"'{where}' is a list of length {len(at.value)}"
        return f"'{where}' is {show(at.value)}"


def _child(node: Node, key: str | int) -> Node | None:
    if isinstance(node.value, dict):
        return node.value.get(str(key))
    if isinstance(node.value, list) and re.fullmatch("[0-9]{1,9}", str(key)):
        index = int(key)
        return node.value[index] if index < len(node.value) else None
    return None
