"""Names of torch that torch does not document. The rest of hookline uses them only through this module.

So a new version of torch is checked in one place: `tests/common/test_private_names.py` has a test for every name. The
module does not import torch, because hooks that use it are created and checked without torch.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

# -- modules

#: The dicts of a module itself, without the modules in it: its parameters, buffers and modules.
parameters_of: Callable[[nn.Module], dict[str, Any]] = attrgetter("_parameters")
buffers_of: Callable[[nn.Module], dict[str, Any]] = attrgetter("_buffers")
modules_of: Callable[[nn.Module], dict[str, Any]] = attrgetter("_modules")
#: The names of the buffers that a state dict does not have.
unsaved_buffers_of: Callable[[nn.Module], set[str]] = attrgetter("_non_persistent_buffers_set")


def converts_entries(module: nn.Module) -> bool:
    """Return whether a module may change the entries that it loads: it has its own loading, or a hook before it."""
    hooks = getattr(module, "_load_state_dict_pre_hooks", None)
    return bool(hooks) or type(module)._load_from_state_dict.__module__.partition(".")[0] != "torch"


def versions_of(state: Mapping[str, Any]) -> Any:
    """Return the versions of the modules of a state dict; None if it does not have them."""
    return getattr(state, "_metadata", None)


def set_versions(state: Any, versions: Any) -> None:
    """Set the versions of the modules of a state dict."""
    state._metadata = versions


def compiled_from(model: nn.Module) -> nn.Module | None:
    """Return the module inside a compiled one; None for another. An isinstance test would import the compiler."""
    inner: nn.Module | None = getattr(model, "_orig_mod", None)
    return inner


def has_compiled_call(module: nn.Module) -> bool:
    """Return whether a module was compiled in place, with its `compile()`."""
    return getattr(module, "_compiled_call_impl", None) is not None


def norm_class() -> type[Any]:
    """Return the base class of all norms that can keep running statistics."""
    from torch.nn.modules.batchnorm import _NormBase

    return _NormBase


# -- numbers


def foreach(operation: str) -> Callable[..., Any]:
    """Return an operation on lists of tensors, such as `lerp_`."""
    import torch

    found: Callable[..., Any] = getattr(torch, f"_foreach_{operation}")
    return found


def fused_devices() -> list[str]:
    """Return the kinds of devices on which optimizers have a fused step."""
    from torch.utils._foreach_utils import _get_fused_kernels_supported_devices

    return list(_get_fused_kernels_supported_devices())


def is_profiling() -> bool:
    """Return whether a profiler records."""
    import torch

    return bool(torch._C._autograd._profiler_enabled())


def is_in_backward() -> bool:
    """Return whether a backward pass is running in this thread."""
    import torch

    return bool(torch._C._current_graph_task_id() != -1)


@contextmanager
def operations_seen_by(see: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> Iterator[None]:
    """Let a function call every operation of torch inside, below autograd and autocast, and return its result."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seeing(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no annotations here
        supports_higher_order_operators = True

        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            return see(func, args, kwargs or {})

    with Seeing():  # type: ignore[no-untyped-call]  # as above
        yield


def schema_of(operation: Any) -> Any:
    """Return the schema of an operation; None if it has none."""
    return getattr(operation, "_schema", None)


def node_in_backward() -> int | None:
    """Return the number of the node of the graph whose gradient is being computed; None outside a backward pass."""
    import torch

    node = torch._C._current_autograd_node()
    return None if node is None else int(node._sequence_nr())


def newest_node() -> int:
    """Return the number of the newest node of a graph in this thread."""
    import torch

    return int(torch._C._autograd._get_sequence_nr()) - 1


# -- schedulers: SequentialLR, ChainedScheduler, and others that are built like these

#: The attribute, and the entry of a saved state, with the schedulers inside a scheduler.
INNER_SCHEDULERS = "_schedulers"
#: The attribute of SequentialLR with the steps at which the next scheduler begins.
INNER_MILESTONES = "_milestones"
#: The method of some schedulers that returns their rates at any step.
CLOSED_FORM = "_get_closed_form_lr"

# -- loaders

#: The attribute that forbids to change a DataLoader after it was created.
LOADER_IS_FIXED = "_DataLoader__initialized"


def pack_error(error: BaseException, where: str) -> Any:
    """Return an error in the form in which a worker sends it to the training process."""
    from torch._utils import ExceptionWrapper

    return ExceptionWrapper((type(error), error, error.__traceback__), where)  # type: ignore[no-untyped-call]


def is_packed_error(content: object) -> bool:
    """Return whether something that a worker sends is an error."""
    from torch._utils import ExceptionWrapper

    return isinstance(content, ExceptionWrapper)


# -- processes


def part_of(tensor: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the sizes of the part of a DTensor in this process, and where it begins, in each dimension."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    return compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)


def world() -> Any:
    """Return the table of all groups of processes."""
    from torch.distributed import distributed_c10d

    return distributed_c10d._world


@contextmanager
def without_groups(refuse: Callable[[Any], bool]) -> Iterator[None]:
    """Let torch know no group of all processes inside. `refuse` is asked about every group that is named."""
    from torch.distributed import distributed_c10d

    module: Any = distributed_c10d
    groups, is_outside = world(), module._rank_not_in_group
    default, groups.default_pg = groups.default_pg, None
    module._rank_not_in_group = refuse  # every exchange asks this first
    try:
        yield
    finally:
        groups.default_pg, module._rank_not_in_group = default, is_outside


def default_store() -> Any:
    """Return the store of the group of all processes."""
    from torch.distributed import distributed_c10d

    return distributed_c10d._get_default_store()


def exchanges_of(group: Any) -> int:
    """Return how many exchanges this process has begun in a group. Not every backend counts them."""
    return int(group._get_sequence_number_for_group())


def drop_step_hooks(optimizer: Any) -> None:
    """Remove everything that torch calls around the steps of an optimizer."""
    optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks = OrderedDict(), OrderedDict()


# -- FSDP2


def find_root(unit: Any) -> None:
    """Let torch find out which unit of a sharded model is the root, as it does at the first forward pass."""
    unit._get_fsdp_state()._lazy_init()


def reduce_kept_gradients(unit: Any) -> None:
    """Reduce the whole gradients that a sharded model keeps, as the end of a backward pass does."""
    state = unit._get_fsdp_state()
    if hasattr(state._state_ctx, "manual_backward_finalization_active"):  # since torch 2.15; None after a backward pass
        state._state_ctx.manual_backward_finalization_active = False
    state._root_post_backward_final_callback()


def forget_kept_gradient(parameter: Any) -> None:
    """Drop the whole gradient that a sharded model keeps for a parameter of such a group."""
    if "unsharded_accumulated_grad" in vars(parameter):  # before torch 2.15; then the gathered parameter has it
        parameter.unsharded_accumulated_grad = None
    if (whole := whole_parameter(parameter)) is not None:
        whole.grad = None


def parameter_groups(unit: Any) -> list[Any]:
    """Return the groups of parameters of a unit that are gathered together."""
    state = unit._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)  # torch before 2.9 has one
    return [state._fsdp_param_group] if groups is None else list(groups)


def whole_parameter(parameter: Any) -> Any:
    """Return a gathered parameter of such a group; None if it was never gathered."""
    return getattr(parameter, "_unsharded_param", None)
