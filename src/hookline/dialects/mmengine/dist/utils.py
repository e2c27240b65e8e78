"""The rank of this process, and the process groups."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch import distributed as torch_dist

from hookline.dialects.exports import export_defined
from hookline.dialects.mmengine.dist.launchers import describe_processes
from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.strategies.group import open_group

F = TypeVar("F", bound=Callable[..., Any])

_local_group: Any = None


def is_distributed() -> bool:
    """Return whether there is a process group."""
    return torch_dist.is_available() and torch_dist.is_initialized()


def get_default_group() -> Any:
    """Return the group of all processes; None if there is just one process."""
    return torch_dist.distributed_c10d._get_default_group() if is_distributed() else None


def get_backend(group: Any = None) -> str | None:
    """Return the backend that the processes communicate with: the GPU backend if it also has one for the CPU."""
    if not is_distributed():
        return None
    return str(torch_dist.get_backend(group)).rpartition(":")[2]


def get_world_size(group: Any = None) -> int:
    """Return the number of processes."""
    return torch_dist.get_world_size(group) if is_distributed() else 1


def get_rank(group: Any = None) -> int:
    """Return the rank of this process."""
    return torch_dist.get_rank(group) if is_distributed() else 0


def get_dist_info(group: Any = None) -> tuple[int, int]:
    """Return the rank of this process and the number of processes."""
    return get_rank(group), get_world_size(group)


def is_main_process(group: Any = None) -> bool:
    """Return whether this is the first process."""
    return get_rank(group) == 0


def master_only(func: F) -> F:
    """Decorate a function so that it runs only in the first process, and returns None in the others."""

    @functools.wraps(func)
    def in_first(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs) if is_main_process() else None

    return cast("F", in_first)


def barrier(group: Any = None) -> None:
    """Wait until all processes reach this call."""
    if is_distributed():
        torch_dist.barrier(group)


def init_local_group(node_rank: int, num_gpus_per_node: int) -> None:
    """Create the group of the processes on one machine."""
    global _local_group
    first = node_rank * num_gpus_per_node
    _local_group = torch_dist.new_group(list(range(first, first + num_gpus_per_node)))


def get_local_group() -> Any:
    """Return the group of the processes on this machine."""
    if is_distributed() and _local_group is None:
        raise ConfigValueError("the group of this machine's processes does not exist yet; call init_local_group first")
    return _local_group if is_distributed() else None


def get_local_size() -> int:
    """Return the number of processes on this machine."""
    return get_world_size(get_local_group()) if is_distributed() else 1


def get_local_rank() -> int:
    """Return the rank of this process on its machine."""
    return get_rank(get_local_group()) if is_distributed() else 0


def infer_launcher() -> str:
    """Return the launcher that started this process: `pytorch`, `slurm`, `mpi`, or `none`."""
    launchers = {"WORLD_SIZE": "pytorch", "SLURM_NTASKS": "slurm", "OMPI_COMM_WORLD_LOCAL_RANK": "mpi"}
    return next((name for variable, name in launchers.items() if variable in os.environ), "none")


def init_dist(launcher: str, backend: str = "nccl", init_backend: str = "torch", **kwargs: Any) -> None:
    """Join the group of the processes that a launcher started; without CUDA, the backend is always `gloo`.

    Args:
        launcher: `pytorch` (torchrun), `slurm` or `mpi`.
        backend: The backend for tensors on GPUs. Tensors on the CPU always use `gloo`.
        init_backend: Only `torch` is supported.
        **kwargs: `timeout` in seconds, `port` for Slurm, and other arguments of torch's `init_process_group`.
    """
    if init_backend != "torch":
        raise ConfigValueError(f"init_dist supports only init_backend='torch', not {init_backend!r}")
    timeout = kwargs.get("timeout")
    if timeout is not None:
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
            raise ConfigTypeError(f"the timeout of dist_cfg must be a number of seconds, not {timeout!r}")
        kwargs["timeout"] = timedelta(seconds=timeout)
    describe_processes(launcher, kwargs.pop("port", None))
    used = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        used = f"cpu:gloo,cuda:{backend}"
    open_group(used, **kwargs)


def get_comm_device(group: Any = None) -> torch.device:
    """Return the device that tensors must be on for communication."""
    return torch.device("cuda", torch.cuda.current_device()) if get_backend(group) == "nccl" else torch.device("cpu")


def get_data_device(data: Any) -> torch.device:
    """Return the device of the tensors in dicts and lists; refuse tensors on different devices."""
    devices = _devices(data)
    if len(devices) != 1:
        raise ConfigValueError(f"all tensors must be on one device; these are on {sorted(map(str, devices))}")
    return devices.pop()


def _devices(data: Any) -> set[torch.device]:
    if isinstance(data, Tensor):
        return {data.device}
    if isinstance(data, (Mapping, list, tuple)):
        inner = data.values() if isinstance(data, Mapping) else data
        return {device for each in inner for device in _devices(each)}
    raise ConfigTypeError(f"expected tensors in dicts and lists, not a {type(data).__name__}")


def cast_data_device(data: Any, device: torch.device, out: Any = None) -> Any:
    """Return the tensors in dicts and lists on another device; with `out`, write them into the tensors there."""
    if isinstance(data, Tensor):
        moved = data.to(device)
        return moved if out is None else out.copy_(moved)
    if isinstance(data, Mapping):
        into = {key: None if out is None else out[key] for key in data}
        return cast("Any", type(data))({key: cast_data_device(data[key], device, into[key]) for key in data})
    if isinstance(data, (list, tuple)):
        places = [None] * len(data) if out is None else out
        moved_all = [cast_data_device(each, device, place) for each, place in zip(data, places, strict=True)]
        return type(data)(*moved_all) if hasattr(data, "_fields") else type(data)(moved_all)
    raise ConfigTypeError(f"expected tensors in dicts and lists, not a {type(data).__name__}")


export_defined(globals())
