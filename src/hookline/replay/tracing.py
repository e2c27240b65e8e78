"""Tracing: follow NaN and Inf through one step, from the operation that made them out of finite numbers.

A `Tracer` sees every operation of torch: in modules and outside of them, forward and backward, in autocast, in hooks,
and in the optimizer. A result with NaN or Inf is labeled with its `Origin`, and so is everything that is computed from
it. So the origin of a bad loss is known, whatever else had an Inf on purpose: a mask of -inf that softmax turns into
zeros leaves no label.
"""

from __future__ import annotations

import linecache
import math
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from hookline.common import torch_private
from hookline.common.sharding import local_part
from hookline.common.watching import compiled_modules, tensors_in
from hookline.engine import loops
from hookline.plan.callers import call_in_progress
from hookline.replay.tensors import count_bad, describe, is_bad, memory_of, named_tensors, values_of

if TYPE_CHECKING:
    from torch import nn

    from hookline.runner.runner import Runner

#: Operations whose results have no content yet.
EMPTY = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted")
#: Operations that write a constant: masks write -inf.
CONSTANTS = ("masked_fill", "fill", "full", "full_like", "where", "scalar_tensor")
#: Parts of the names of operations for which -inf means "leave this out", unless a whole row is -inf.
MASKED = ("softmax", "logsumexp", "attention")
#: Files that are not the user's.
LIBRARIES = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(os.path.dirname(loops.__file__)) + os.sep, "<")
#: The most input tensors of an operation that are described.
MOST_INPUTS = 4


@dataclass(frozen=True)
class Position:
    """Where an operation was called: the innermost module, and the innermost line of the user."""

    #: The name of the module, as in `model.named_modules()`; None outside of the model.
    module: str | None = None
    kind: str = ""
    file: str = ""
    line: int = 0
    function: str = ""

    @property
    def place(self) -> str:
        """Return the line, with its text; empty if no line of the user is known."""
        text = linecache.getline(self.file, self.line).strip()
        return f"{os.path.basename(self.file)}:{self.line}, in {self.function}: {text}" if self.file else ""


@dataclass
class Origin:
    """The operation that made NaN or Inf out of finite numbers, or the tensor that had them before.

    Args:
        kind: `operation`, `data`, `parameter`, `buffer`, or `outside` for any other tensor.
        name: The name of the operation or of the tensor.
        number: Its place in the order of all origins; 0 for a tensor.
        phase: `forward`, `backward`, `update`, or the hook that called the operation.
        position: Where it was called.
        inputs: Descriptions of its inputs.
        result: How many of its numbers are NaN or Inf.
        rows: The rows of the batch with NaN or Inf; None if this is unknown.
        intended: True for an Inf that somebody wrote on purpose, as masks do.
    """

    kind: str
    name: str
    number: int = 0
    phase: str = ""
    position: Position = field(default_factory=Position)
    inputs: list[str] = field(default_factory=list)
    result: str = ""
    rows: list[int] | None = None
    intended: bool = False

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        names = ("kind", "name", "phase", "inputs", "result", "rows")
        more = {"module": self.position.module, "module_type": self.position.kind, "place": self.position.place}
        return {name: getattr(self, name) for name in names} | more


class Tracer:
    """Labels NaN and Inf with their origin, in this process.

    Args:
        runner: The runner whose step is followed.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner, model = runner, runner.model
        self._module_names = {id(module): name for name, module in model.named_modules()}
        #: The shapes of parameters. A tensor with such a shape has no dimension for the batch.
        self._shapes = {tuple(parameter.shape) for parameter in model.parameters()}
        self._shapes |= {shape[::-1] for shape in self._shapes}
        #: The kinds and names of tensors that exist before the step, by their memory.
        self._named = {memory_of(each): ("parameter", name) for name, each in model.named_parameters()}
        self._named |= {memory_of(each): ("buffer", name) for name, each in model.named_buffers()}
        self._labels: dict[int, Origin] = {}
        #: The modules that are being called: their name and type, and whether a backward pass calls them again.
        self._modules: list[tuple[str | None, str, bool]] = []
        #: Where the operations of the graph were called, by the number of their node.
        self._nodes: dict[int, Position] = {}
        self._size = self._made = 0
        self._leaving = ExitStack()
        #: True if the model is compiled, and runs without its compiler here.
        self.without_compiler = False

    def take_batch(self, batch: Any, size: int) -> None:
        """Know the tensors of a batch with this number of samples."""
        self._size = size
        self._named |= {memory_of(tensor): ("data", name) for name, tensor in named_tensors(batch)}

    def start(self) -> None:
        """Follow all operations from now on."""
        self.without_compiler = bool(compiled_modules(self._runner._host.training.wrapped))
        if self.without_compiler or "torch._dynamo.eval_frame" in sys.modules:  # functions may be compiled, too
            self._leaving.enter_context(torch.compiler.set_stance("force_eager"))
        handles = (
            register_module_forward_pre_hook(self._enter_module),
            register_module_forward_hook(self._leave_module, always_call=True),
        )
        for handle in handles:
            self._leaving.callback(handle.remove)
        self._leaving.enter_context(torch_private.operations_seen_by(self._see))

    def stop(self) -> None:
        """Follow nothing from now on."""
        self._leaving.close()

    def origin_of(self, tensors: Sequence[Tensor]) -> Origin | None:
        """Return the first origin of tensors that have NaN or Inf."""
        return _first([self._label(tensor) for tensor in tensors if is_bad(tensor)])

    def first_origin(self) -> Origin | None:
        """Return the first origin of all, for a step that failed before it had a loss."""
        known = [origin for origin in self._labels.values() if not origin.intended]
        return _first([origin for origin in known if origin.number]) or _first(known)

    # -- every operation

    def _see(self, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        schema = torch_private.schema_of(operation)
        given = [list(tensors_in(each)) for each in (*args, *kwargs.values())]
        # An operation in place replaces its input, so the inputs are looked at before.
        before = {id(tensor): self._label(tensor) for tensors in given for tensor in tensors if is_bad(tensor)}
        outputs = operation(*args, **kwargs)
        name = str(operation if schema is None else schema.name).rpartition("::")[2]
        position = self._position()
        self._nodes.setdefault(torch_private.newest_node(), position)
        if name in EMPTY:
            return outputs
        written = [] if schema is None or not schema.is_mutable else _written(schema, args, kwargs)
        if "batch_norm" in name:  # it changes its running statistics, which the schema does not say
            written += [tensor for tensors in given for tensor in tensors if id(tensor) not in before]
        memory = {memory_of(tensor) for tensors in given for tensor in tensors}
        made = [each for each in tensors_in(outputs) if memory_of(each) not in memory]  # and not only a view
        for view in tensors_in(outputs):
            if (origin := self._labels.get(memory_of(view))) is not None:
                self._find_rows(origin, view)
        results = [*written, *made]
        for number, result in enumerate(results):
            if is_bad(result):
                # Of an operation on lists, a result is made of the inputs with its number.
                one_each = name.startswith(("_foreach", "_fused")) and len(results) > 1
                inputs = [
                    tensor
                    for tensors in given
                    for place, tensor in enumerate(tensors)
                    if not one_each or len(tensors) == 1 or place == number % len(tensors)
                ]
                sources = [before[id(tensor)] for tensor in inputs if id(tensor) in before]
                seen = [tensor for tensor in inputs if not any(tensor is each for each in results)]
                self._labels[memory_of(result)] = self._origin(name, position, sources, seen, result)
            elif id(result) not in before:
                self._labels.pop(memory_of(result), None)
        return outputs

    def _origin(
        self, name: str, position: Position, sources: list[Origin], inputs: list[Tensor], result: Tensor
    ) -> Origin:
        """Return the origin of a bad result: of one of its bad inputs, or else a new one."""
        origin = self._inherited(name, sources, result)
        if origin is None:
            self._made += 1
            return Origin(
                *("operation", name, self._made, self._phase(), position),
                inputs=[describe(tensor) for tensor in inputs[:MOST_INPUTS]],
                result=count_bad(result),
                rows=self._rows(result),
                intended=name.rstrip("_") in CONSTANTS and not bool(values_of(result).isnan().any()),
            )
        self._find_rows(origin, result)
        return origin

    def _find_rows(self, origin: Origin, result: Tensor) -> None:
        """Take the rows of a later result, if the origin itself has none. Rows that mix have no meaning."""
        if origin.rows is None and not origin.intended and origin.kind in ("operation", "data"):
            rows = self._rows(result)
            origin.rows = rows if rows is not None and 0 < len(rows) < self._size else None

    def _inherited(self, name: str, sources: list[Origin], result: Tensor) -> Origin | None:
        """Return the origin of a result that some inputs explain; None if the operation itself is the origin."""
        first = _first(sources)
        if first is None or not first.intended or not bool(values_of(result).isnan().any()):
            return first
        masks = any(part in name for part in MASKED)
        return None if masks or first.kind != "data" else first  # of data, only a mask is -inf on purpose

    def _label(self, tensor: Tensor) -> Origin:
        """Return the origin of a tensor that has NaN or Inf."""
        memory = memory_of(tensor)
        if memory not in self._labels:
            kind, name = self._named.get(memory, ("outside", "a tensor from outside of the step"))
            numbers = values_of(tensor)
            infinite = not bool(numbers.isnan().any())
            intended = infinite and (kind != "data" or not bool((numbers == math.inf).any()))
            intended = intended or (kind == "outside" and numbers.numel() == 1)  # a constant
            rows = self._rows(tensor) if kind == "data" else None
            self._labels[memory] = Origin(kind, name, result=count_bad(tensor), rows=rows, intended=intended)
        return self._labels[memory]

    def _rows(self, tensor: Tensor) -> list[int] | None:
        """Return the rows of the batch in which a tensor has NaN or Inf."""
        shape, size = tuple(tensor.shape), self._size
        if size == 1:
            return [0]
        if size < 1 or size not in shape[:2] or tensor.layout != torch.strided or shape in self._shapes:
            return None
        dimension = shape.index(size)
        if dimension and shape[0] % size == 0:  # the first dimension may have several rows per sample
            return None
        bad = ~local_part(tensor.detach()).movedim(dimension, 0).reshape(size, -1).isfinite().all(dim=1)
        return [int(row) for row in bad.nonzero().flatten()] if len(bad) == size else None

    # -- where

    def _enter_module(self, module: nn.Module, inputs: Any) -> None:
        again = torch_private.node_in_backward() is not None
        self._modules.append((self._module_names.get(id(module)), type(module).__name__, again))

    def _leave_module(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        if self._modules:
            self._modules.pop()

    def _position(self) -> Position:
        """Return where the operation in progress was called; for a gradient, where its forward pass was."""
        module, kind, again = self._modules[-1] if self._modules else (None, "", False)
        node = torch_private.node_in_backward()
        if node is not None and not again:
            return self._nodes.get(node, Position())
        frame = sys._getframe(2)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(LIBRARIES):
            if frame.f_code.co_filename == loops.__file__:
                return Position(module, kind)
            frame = frame.f_back
        return Position(module, kind, frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)

    def _phase(self) -> str:
        if torch_private.node_in_backward() is not None:
            return "backward"
        if (call := call_in_progress(self._runner.plan.host)) is not None:
            return f"hook {call.who} at {call.place}"
        return "update" if any(optim.updating for optim in self._runner.optims.values()) else "forward"


def _first(origins: Sequence[Origin]) -> Origin | None:
    """Return the origin that came first. One that was intended, or is unknown, counts only if there is no other."""
    return min(origins, key=lambda origin: (origin.intended, origin.kind == "outside", origin.number), default=None)


def _written(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """Return the tensors that an operation changes."""
    found: list[Tensor] = []
    for number, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found += tensors_in(args[number] if number < len(args) else kwargs.get(argument.name))
    return found
