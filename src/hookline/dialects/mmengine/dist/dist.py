"""Communication between processes. With a single process, data is returned unchanged."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, zip_longest
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch import distributed as torch_dist

from hookline.dialects.exports import export_defined
from hookline.dialects.mmengine.dist.utils import get_comm_device, get_rank, get_world_size
from hookline.dialects.mmengine.errors import ConfigValueError
from hookline.errors import did_you_mean

OPERATIONS = ("sum", "product", "min", "max", "band", "bor", "bxor")
MISSING = object()


def all_reduce(data: Tensor, op: str = "sum", group: Any = None) -> None:
    """Replace a tensor with its sum (or `mean`, `max`, ...) over all processes."""
    size, operation = get_world_size(group), op.lower()
    if operation != "mean" and operation not in OPERATIONS:
        raise ConfigValueError(f"unknown operation '{op}'; {did_you_mean(op, ('mean', *OPERATIONS))}")
    if size == 1:
        return
    moved = data.to(get_comm_device(group))
    name = "SUM" if operation == "mean" else operation.upper()
    torch_dist.all_reduce(moved, getattr(torch_dist.ReduceOp, name), group)
    data.copy_(moved / size if operation == "mean" else moved)


def all_gather(data: Tensor, group: Any = None) -> list[Tensor]:
    """Return the tensors of all processes, in every process."""
    if get_world_size(group) == 1:
        return [data]
    moved = data.to(get_comm_device(group)).contiguous()
    found = [torch.empty_like(moved) for _ in range(get_world_size(group))]
    torch_dist.all_gather(found, moved, group)
    return [each.to(data.device) for each in found]


def gather(data: Tensor, dst: int = 0, group: Any = None) -> list[Tensor]:
    """Return the tensors of all processes in process `dst`, and an empty list in the others."""
    if get_world_size(group) == 1:
        return [data]
    moved = data.to(get_comm_device(group)).contiguous()
    found = [torch.empty_like(moved) for _ in range(get_world_size(group))] if get_rank(group) == dst else None
    torch_dist.gather(moved, found, dst, group)
    return [each.to(data.device) for each in found or []]


def broadcast(data: Tensor, src: int = 0, group: Any = None) -> None:
    """Copy the tensor of process `src` into the tensor of every process."""
    if get_world_size(group) == 1:
        return
    moved = data.to(get_comm_device(group)).contiguous()
    torch_dist.broadcast(moved, src, group)
    if get_rank(group) != src:
        data.copy_(moved)


def sync_random_seed(group: Any = None) -> int:
    """Return a random number that all processes share, drawn with numpy."""
    found = torch.tensor(np.random.randint(2**31), dtype=torch.int64)
    broadcast(found, 0, group)
    return int(found)


def broadcast_object_list(data: list[Any], src: int = 0, group: Any = None) -> None:
    """Copy the objects of process `src` into the list of every process."""
    if get_world_size(group) > 1:
        torch_dist.broadcast_object_list(data, src, group)


def all_gather_object(data: Any, group: Any = None) -> list[Any]:
    """Return the objects of all processes, in every process."""
    if get_world_size(group) == 1:
        return [data]
    found: list[Any] = [None] * get_world_size(group)
    torch_dist.all_gather_object(found, data, group)
    return found


def gather_object(data: Any, dst: int = 0, group: Any = None) -> list[Any] | None:
    """Return the objects of all processes in process `dst`, and None in the others."""
    if get_world_size(group) == 1:
        return [data]
    found: list[Any] | None = [None] * get_world_size(group) if get_rank(group) == dst else None
    torch_dist.gather_object(data, found, dst, group)
    return found


def all_reduce_dict(data: dict[str, Tensor], op: str = "sum", group: Any = None) -> None:
    """Reduce all tensors of a dict at once."""
    if get_world_size(group) == 1:
        return
    names = sorted(data)
    together = torch.cat([data[name].flatten() for name in names])
    all_reduce(together, op, group)
    parts = torch.split(together, [data[name].numel() for name in names])
    for name, part in zip(names, parts, strict=True):
        data[name] = part.reshape(data[name].shape).to(data[name].dtype)


def all_reduce_params(
    params: Iterable[Tensor], coalesce: bool = True, bucket_size_mb: int = -1, op: str = "sum", group: Any = None
) -> None:
    """Reduce many tensors; tensors of one dtype are reduced together, unless `coalesce` is off."""
    if get_world_size(group) == 1:
        return
    by_type: dict[Any, list[Tensor]] = {}
    for number, each in enumerate(param.data for param in params):
        by_type.setdefault(each.dtype if coalesce else number, []).append(each)
    for tensors in by_type.values():
        for bucket in _buckets(tensors, bucket_size_mb):
            together = torch.cat([each.flatten() for each in bucket])
            all_reduce(together, op, group)
            for each, part in zip(bucket, torch.split(together, [each.numel() for each in bucket]), strict=True):
                each.copy_(part.reshape(each.shape))


def _buckets(tensors: list[Tensor], megabytes: int) -> Iterable[list[Tensor]]:
    bucket: list[Tensor] = []
    size = 0
    for each in tensors:
        if bucket and megabytes > 0 and size + each.nbytes > megabytes * 2**20:
            yield bucket
            bucket, size = [], 0
        bucket.append(each)
        size += each.nbytes
    yield bucket


def collect_results(results: list[Any], size: int, device: str = "cpu", tmpdir: str | None = None) -> list[Any] | None:
    """Return the results of all processes, in the order of the samples, in the first process; None in the others.

    Process r of n has the results of samples r, r + n, ...; `size` is the number of samples. Processes send their
    results through their process group, so no folder is needed: `tmpdir` is accepted, but not used.
    """
    if device not in ("cpu", "gpu", "npu"):
        raise ConfigValueError(f"device must be 'cpu', 'gpu' or 'npu', not {device!r}")
    if get_world_size() == 1:
        return results[:size]
    parts = gather_object(results)
    if parts is None:
        return None
    in_turn = chain.from_iterable(zip_longest(*parts, fillvalue=MISSING))
    return [result for result in in_turn if result is not MISSING][:size]


def collect_results_cpu(result_part: list[Any], size: int, tmpdir: str | None = None) -> list[Any] | None:
    """Do the same as `collect_results` on the CPU."""
    return collect_results(result_part, size)


def collect_results_gpu(result_part: list[Any], size: int) -> list[Any] | None:
    """Do the same as `collect_results` on a GPU."""
    return collect_results(result_part, size, "gpu")


export_defined(globals())
