"""Who this process is among those that train together."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch import distributed as torch_dist

from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError

F = TypeVar("F", bound=Callable[..., Any])

_local_group: Any = None


def is_distributed() -> bool:
    """Whether there is a group of processes."""
    return torch_dist.is_available() and torch_dist.is_initialized()


def get_default_group() -> Any:
    """The group of all processes; None where there is just one."""
    return torch_dist.distributed_c10d._get_default_group() if is_distributed() else None


def get_backend(group: Any = None) -> str | None:
    """How the processes talk to each other."""
    return str(torch_dist.get_backend(group)) if is_distributed() else None


def get_world_size(group: Any = None) -> int:
    """How many processes there are."""
    return torch_dist.get_world_size(group) if is_distributed() else 1


def get_rank(group: Any = None) -> int:
    """The number of this process."""
    return torch_dist.get_rank(group) if is_distributed() else 0


def get_dist_info(group: Any = None) -> tuple[int, int]:
    """The number of this process, and how many there are."""
    return get_rank(group), get_world_size(group)


def is_main_process(group: Any = None) -> bool:
    """Whether this is the first process."""
    return get_rank(group) == 0


def master_only(func: F) -> F:
    """Makes a function do something only in the first process; elsewhere it gives None."""

    @functools.wraps(func)
    def in_first(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs) if is_main_process() else None

    return cast("F", in_first)


def barrier(group: Any = None) -> None:
    """Wait until all processes are here."""
    if is_distributed():
        torch_dist.barrier(group)


def init_local_group(node_rank: int, num_gpus_per_node: int) -> None:
    """Make the group of the processes on one machine."""
    global _local_group
    first = node_rank * num_gpus_per_node
    _local_group = torch_dist.new_group(list(range(first, first + num_gpus_per_node)))


def get_local_group() -> Any:
    """The group of the processes on this machine."""
    if is_distributed() and _local_group is None:
        raise ConfigValueError("the group of this machine's processes was not made: call init_local_group first")
    return _local_group if is_distributed() else None


def get_local_size() -> int:
    """How many processes are on this machine."""
    return get_world_size(get_local_group()) if is_distributed() else 1


def get_local_rank() -> int:
    """The number of this process on its machine."""
    return get_rank(get_local_group()) if is_distributed() else 0


def infer_launcher() -> str:
    """What started this process: `pytorch`, `slurm`, `mpi`, or nothing that starts several."""
    launchers = {"WORLD_SIZE": "pytorch", "SLURM_NTASKS": "slurm", "OMPI_COMM_WORLD_LOCAL_RANK": "mpi"}
    return next((name for variable, name in launchers.items() if variable in os.environ), "none")


def init_dist(launcher: str, backend: str = "nccl", init_backend: str = "torch", **kwargs: Any) -> None:
    """Join the group of processes that torchrun started; on a machine without CUDA use the backend `gloo`."""
    if launcher != "pytorch" or init_backend != "torch":
        raise ConfigValueError(f"init_dist knows launcher='pytorch' (torchrun), not '{launcher}' and '{init_backend}'")
    if backend == "nccl" and torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch_dist.init_process_group(backend="gloo" if not torch.cuda.is_available() else backend, **kwargs)


def get_comm_device(group: Any = None) -> torch.device:
    """Where tensors have to be, for the processes to exchange them."""
    return torch.device("cuda", torch.cuda.current_device()) if get_backend(group) == "nccl" else torch.device("cpu")


def get_data_device(data: Any) -> torch.device:
    """Where tensors in dicts and lists are; they have to be in one place."""
    devices = _devices(data)
    if len(devices) != 1:
        raise ConfigValueError(f"tensors are expected in one place, and these are in {sorted(map(str, devices))}")
    return devices.pop()


def _devices(data: Any) -> set[torch.device]:
    if isinstance(data, Tensor):
        return {data.device}
    if isinstance(data, (Mapping, list, tuple)):
        inner = data.values() if isinstance(data, Mapping) else data
        return {device for each in inner for device in _devices(each)}
    raise ConfigTypeError(f"tensors in dicts and lists are expected, not a {type(data).__name__}")


def cast_data_device(data: Any, device: torch.device, out: Any = None) -> Any:
    """Tensors in dicts and lists on another device; with `out`, written into those."""
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
    raise ConfigTypeError(f"tensors in dicts and lists are expected, not a {type(data).__name__}")
