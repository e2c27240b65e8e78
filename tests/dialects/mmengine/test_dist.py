"""Communication with one process, and with three that really talk to each other."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed as torch_dist

from hookline.dialects.mmengine import dist
from hookline.dialects.mmengine.dataset import DefaultSampler

WORLD = 3


def among(tmp_path: Path, work: Callable[[int], Any]) -> list[Any]:
    """Run some work in each of three processes, and return the results."""
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()

    def run(rank: int) -> None:
        try:
            torch_dist.init_process_group("gloo", f"file://{tmp_path}/meeting", rank=rank, world_size=WORLD)
            found = work(rank)
            dist.barrier()
            torch_dist.destroy_process_group()
        except BaseException:
            found = traceback.format_exc()
        results.put((rank, found))

    processes = [context.Process(target=run, args=(rank,), daemon=True) for rank in range(WORLD)]
    for process in processes:
        process.start()
    found = dict(results.get() for _ in processes)
    for process in processes:
        process.join()
    return [found[rank] for rank in range(WORLD)]


def exchange(rank: int) -> dict[str, Any]:
    """Call every function once, and return the results as plain data."""
    number = torch.tensor([1.0, 2.0]) * (rank + 1)
    total, mean, largest, sent = number.clone(), number.clone(), number.clone(), number.clone()
    dist.all_reduce(total)
    dist.all_reduce(mean, "mean")
    dist.all_reduce(largest, "MAX")
    dist.broadcast(sent, src=1)
    by_name = {"b": number.clone(), "a": number[0].clone()}
    dist.all_reduce_dict(by_name)
    parameters = [torch.nn.Parameter(number.clone()), torch.nn.Parameter(torch.ones(2, 2, dtype=torch.float64) * rank)]
    dist.all_reduce_params(parameters, op="mean")
    others = [torch.full((300_000,), float(rank)) for _ in range(2)]
    dist.all_reduce_params(others, bucket_size_mb=1)
    objects: list[Any] = [{"from": rank}]
    dist.broadcast_object_list(objects, src=2)
    np.random.seed(rank)
    gathered = dist.gather(number, dst=1)
    return {
        "info": dist.get_dist_info(),
        "main": (dist.is_main_process(), dist.master_only(lambda: "here")()),
        "reduced": [total.tolist(), mean.tolist(), largest.tolist(), sent.tolist()],
        "dict": {name: value.tolist() for name, value in by_name.items()},
        "params": [parameter.tolist() for parameter in parameters],
        "buckets": [other[0].item() for other in others],
        "gathered": [each.tolist() for each in dist.all_gather(number)],
        "in_one": [each.tolist() for each in gathered],
        "objects": (objects, dist.all_gather_object(rank), dist.gather_object(str(rank))),
        "results": dist.collect_results([10 * index for index in range(rank, 7, WORLD)], 7),
        "with_none": dist.collect_results([None, rank], 6, device="gpu"),
        "seed": dist.sync_random_seed(),
        "sampler": list(DefaultSampler(range(6), shuffle=True)),
        "backend": (dist.get_backend(), dist.is_distributed(), str(dist.get_comm_device())),
    }


def test_three_processes(tmp_path: Path) -> None:
    found = among(tmp_path, exchange)
    assert all(isinstance(each, dict) for each in found), found
    for rank, each in enumerate(found):
        assert each["info"] == (rank, 3)
        assert each["main"] == ((True, "here") if rank == 0 else (False, None))
        assert each["reduced"] == [[6, 12], [2, 4], [3, 6], [2, 4]]
        assert each["dict"] == {"b": [6, 12], "a": 6}
        assert each["params"] == [[2, 4], [[1, 1], [1, 1]]]
        assert each["buckets"] == [3, 3]
        assert each["gathered"] == [[1, 2], [2, 4], [3, 6]]
        assert each["in_one"] == ([[1, 2], [2, 4], [3, 6]] if rank == 1 else [])
        assert each["objects"] == ([{"from": 2}], [0, 1, 2], ["0", "1", "2"] if rank == 0 else None)
        assert each["results"] == ([0, 10, 20, 30, 40, 50, 60] if rank == 0 else None)
        assert each["with_none"] == ([None, None, None, 0, 1, 2] if rank == 0 else None)
        assert each["backend"] == ("gloo", True, "cpu")
    assert len({each["seed"] for each in found}) == 1
    assert sorted(index for each in found for index in each["sampler"]) == list(range(6))


def test_one_process_keeps_what_it_has() -> None:
    number = torch.tensor([1.0, 2.0])
    dist.all_reduce(number, "mean")
    dist.broadcast(number)
    dist.barrier()
    parts = {"a": number}
    dist.all_reduce_dict(parts)
    dist.all_reduce_params([number])
    objects = [1]
    dist.broadcast_object_list(objects)
    assert (number.tolist(), parts, objects) == ([1, 2], {"a": number}, [1])
    assert dist.all_gather(number) == [number]
    assert dist.gather(number) == [number]
    assert dist.all_gather_object("x") == ["x"]
    assert dist.gather_object("x") == ["x"]
    assert dist.collect_results([1, 2, 3], 2) == [1, 2]
    assert dist.collect_results_cpu([1, 2, 3], 2) == dist.collect_results_gpu([1, 2, 3], 2) == [1, 2]
    assert dist.get_dist_info() == (0, 1)
    assert (dist.get_rank(), dist.get_world_size(), dist.get_local_rank(), dist.get_local_size()) == (0, 1, 0, 1)
    assert (dist.is_distributed(), dist.get_backend(), dist.get_default_group(), dist.get_local_group()) == (
        False,
        None,
        None,
        None,
    )
    assert dist.master_only(lambda: 5)() == 5


def test_a_random_seed_is_drawn_with_numpy() -> None:
    np.random.seed(3)
    first = dist.sync_random_seed()
    np.random.seed(3)
    assert first == np.random.randint(2**31)


def test_data_is_moved_in_dicts_and_lists() -> None:
    data = {"a": [torch.ones(2), (torch.zeros(1),)]}
    assert dist.get_data_device(data) == torch.device("cpu")
    moved = dist.cast_data_device(data, torch.device("meta"))
    assert moved["a"][1][0].device.type == "meta"
    out: Any = {"a": [torch.zeros(2), (torch.ones(1),)]}
    dist.cast_data_device(data, torch.device("cpu"), out)
    assert out["a"][0].tolist() == [1, 1]
    with pytest.raises(TypeError, match=r"^expected tensors in dicts and lists, not a int$"):
        dist.get_data_device(3)
    with pytest.raises(ValueError, match=r"^all tensors must be on one device; these are on \['cpu', 'meta'\]$"):
        dist.get_data_device([data, moved])


def test_invalid_arguments_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"^unknown operation 'maen'; did you mean 'mean'\?$"):
        dist.all_reduce(torch.ones(1), "maen")
    with pytest.raises(ValueError, match=r"^device must be 'cpu', 'gpu' or 'npu', not 'tpu'$"):
        dist.collect_results([], 0, "tpu")
    with pytest.raises(ValueError, match=r"^init_dist supports only init_backend='torch', not 'deepspeed'$"):
        dist.init_dist("pytorch", init_backend="deepspeed")
    with pytest.raises(ValueError, match=r"^unknown launcher 'none'; available: pytorch, slurm, mpi$"):
        dist.init_dist("none")
    for name in ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert dist.infer_launcher() == "none"
    monkeypatch.setenv("SLURM_NTASKS", "2")
    assert dist.infer_launcher() == "slurm"
