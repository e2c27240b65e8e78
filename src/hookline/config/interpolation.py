r"""`${...}`: references to other values of the config, and to environment variables.

    lr: 0.1
    optim: {optimizer: {type: SGD, lr: "${lr}"}}      the value itself, of any type
    work_dir: runs/${experiment_name}                 a scalar inside a text
    data: ${oc.env:DATA,/data}                        an environment variable (always text), or a default
    text: \${not a reference}                         a backslash prevents the replacement

A value from the environment may be a secret. It knows its reference, which files and messages hold instead of it (see
`hookline.common.environment`).

The syntax is omegaconf's, without the parts that could run code or grow without limit: there are no other
resolvers and no nested references. omegaconf itself is not used for three reasons: nested references can grow without
limit, any imported module can add resolvers, and positions in the file are lost.
"""

from __future__ import annotations

import os
import re

from hookline.common.environment import FromEnvironment, written
from hookline.common.escape import hide_in_texts
from hookline.common.marks import Keys, Mark, dotted, refusal, show
from hookline.common.nodes import Node, TooLargeError, is_text, walk
from hookline.config.overrides import split_path
from hookline.errors import did_you_mean

MISSING = "???"
MAX_TEXT = 1_000_000
MAX_CHAIN = 100

_REFERENCE = re.compile(r"(\\?)\$\{([^{}]*)(\}?)")
_ENV = re.compile(r"oc\.env:\s*([A-Za-z_][A-Za-z0-9_]*)\s*(?:,(.*))?", re.DOTALL)


def find_missing(root: Node) -> list[tuple[Keys, Mark]]:
    """Return the keys and positions of all values that must still be set: `???`."""
    return [(keys, node.mark) for keys, node in walk(root) if node.value == MISSING]


def interpolate(root: Node) -> Node:
    """Return the tree with every reference replaced by its value."""
    if not any(isinstance(node.value, str) and "${" in node.value for _, node in walk(root)):
        return root
    interpolation = _Interpolation(root)
    resolved = interpolation.resolve(root, ())
    for value, (reference, keys) in interpolation.from_environment.items():
        # The settings of the run itself, such as its folder, are shown to people.
        if all(len(each) > 1 for each in keys):
            hide_in_texts(value, reference)
    return resolved


class _Interpolation:
    """One pass over a tree. Results are remembered, so the work never exceeds the size of the result."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.resolved: dict[Keys, Node] = {}
        self.in_progress: list[Keys] = []
        self.characters = 0
        #: The values from the environment: their references, and the keys of the values that they are part of.
        self.from_environment: dict[str, tuple[str, list[Keys]]] = {}

    def resolve(self, node: Node, keys: Keys) -> Node:
        """Return this value with everything in it resolved."""
        if keys in self.resolved:
            return self.resolved[keys]
        if keys in self.in_progress:
            chain = " -> ".join(dotted(step) for step in [*self.in_progress[self.in_progress.index(keys) :], keys])
            raise refusal(node.mark, keys, f"circular reference: {chain}")
        if len(self.in_progress) > MAX_CHAIN:
            raise refusal(node.mark, keys, f"a chain of more than {MAX_CHAIN} references; this is not a config")
        self.in_progress.append(keys)
        try:
            result = self.resolve_content(node, keys)
        except TooLargeError as error:
            raise refusal(node.mark, keys, error.reason) from None
        self.in_progress.pop()
        self.resolved[keys] = result
        return result

    def resolve_content(self, node: Node, keys: Keys) -> Node:
        if isinstance(node.value, dict):
            return Node({key: self.resolve(child, (*keys, key)) for key, child in node.value.items()}, node.mark)
        if isinstance(node.value, list):
            return Node([self.resolve(child, (*keys, index)) for index, child in enumerate(node.value)], node.mark)
        if isinstance(node.value, str) and "${" in node.value:
            return self.resolve_text(node.value, node, keys)
        return node

    def resolve_text(self, text: str, node: Node, keys: Keys) -> Node:
        """Resolve the references in a text. A text that is a single reference becomes the value itself."""
        alone = _REFERENCE.fullmatch(text)
        if alone and not alone[1]:
            return self.follow(alone, node, keys).at(node.mark)
        parts, sources, end = [], [], 0
        secret = False
        for match in _REFERENCE.finditer(text):
            piece = match[0][1:] if match[1] else self.to_text(self.follow(match, node, keys), match[0], node, keys)
            secret = secret or isinstance(piece, FromEnvironment)
            parts += [text[end : match.start()], piece]
            sources += [text[end : match.start()], written(piece)]
            end = match.end()
            self.characters += len(piece)
            if self.characters > MAX_TEXT:
                raise refusal(node.mark, keys, f"the references expand to more than {MAX_TEXT:,} characters")
        whole = "".join([*parts, text[end:]])
        return Node(FromEnvironment(whole, "".join([*sources, text[end:]])) if secret else whole, node.mark)

    def to_text(self, value: Node, reference: str, node: Node, keys: Keys) -> str:
        if isinstance(value.value, (dict, list)):
            raise refusal(node.mark, keys, f"{reference} is {show(value.value)}, which cannot be inserted into a text")
        if isinstance(value.value, str):
            return value.value
        return show(value.value, longest=MAX_TEXT)

    def follow(self, match: re.Match[str], node: Node, keys: Keys) -> Node:
        inner = match[2].strip()
        if not match[3]:
            raise refusal(
                node.mark, keys, f"'{match[0]}' is not a valid reference; write ${{key.path}}, without braces in it"
            )
        if env := _ENV.fullmatch(inner):
            return self.read_environment(env, match[0], node, keys)
        if ":" in inner:
            name = inner.partition(":")[0]
            raise refusal(
                node.mark, keys, f"${{{name}:...}} is not allowed; use ${{key.path}} or ${{oc.env:NAME,default}}"
            )
        target = split_path(inner)
        if target is None:
            raise refusal(node.mark, keys, f"'{match[0]}' is not a valid reference; write ${{key.path}}")
        return self.look_up(target, node, keys)

    def read_environment(self, match: re.Match[str], reference: str, node: Node, keys: Keys) -> Node:
        name, default = match[1], match[2]
        value = os.environ.get(name, default.strip() if default is not None else None)
        if value is None:
            example = f"${{oc.env:{name},default}}"
            raise refusal(
                node.mark, keys, f"the environment variable {name} is not set; to give a default, write {example}"
            )
        if not is_text(value):
            raise refusal(node.mark, keys, f"the environment variable {name} is not UTF-8")
        if name in os.environ:
            self.from_environment.setdefault(value, (reference, []))[1].append(keys)
        return Node(FromEnvironment(value, reference), node.mark)

    def look_up(self, target: Keys, node: Node, keys: Keys) -> Node:
        """Return the value at absolute keys.

        Containers on the way stay unresolved, or a reference to a sibling would be circular.
        """
        at, final = self.root, False
        place: Keys = ()
        for depth, key in enumerate(target):
            if not final and isinstance(at.value, str) and "${" in at.value:
                at, final = self.resolve(at, place), True
            child = _child(at, key)
            if child is None:
                hint = self.hint(at, key, target[:depth])
                raise refusal(node.mark, keys, f"${{{dotted(target)}}} does not exist; {hint}")
            place = (*place, key if isinstance(at.value, dict) else int(key))
            at = child
        return at if final else self.resolve(at, place)

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
