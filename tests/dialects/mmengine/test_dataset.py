"""Datasets, samplers and loaders: they have the order of hookline's own loader, which can start at any batch."""

from __future__ import annotations

import json
import pickle
from collections import namedtuple
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from hookline.data import ResumableLoader
from hookline.dialects.mmengine.dataset import (
    BaseDataset,
    ClassBalancedDataset,
    Compose,
    ConcatDataset,
    DefaultSampler,
    InfiniteSampler,
    RepeatDataset,
    build_dataloader,
    default_collate,
    pseudo_collate,
    worker_init_fn,
)
from hookline.dialects.mmengine.hooks import Hook
from hookline.dialects.mmengine.registry import DATA_SAMPLERS, DATASETS, FUNCTIONS, TRANSFORMS
from hookline.errors import DataError
from tests.dialects.mmengine.parts import VAL, ToyNet, runner_of, weights


@DATASETS.register_module()
class Numbers(Dataset[Any]):
    """Each sample has its index and a random number."""

    def __init__(self, count: int = 10) -> None:
        self.count = count
        self.complete = False

    def full_init(self) -> None:
        self.complete = True

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"number": torch.tensor(index), "chance": torch.rand(())}


def config(**more: Any) -> dict[str, Any]:
    return {
        "batch_size": 3,
        "sampler": {"type": "DefaultSampler", "shuffle": True},
        "dataset": {"type": "Numbers"},
        "collate_fn": {"type": "default_collate"},
        **more,
    }


def numbers(loader: Any, epoch: int = 0, start: int = 0) -> list[list[int]]:
    return [batch["number"].tolist() for batch in loader.iterate(epoch, start)]


def test_the_order_matches_the_native_loader() -> None:
    native = ResumableLoader(Numbers(), batch_size=3, shuffle=True, seed=7)
    given = config()
    loader = build_dataloader(given, seed=7)
    for epoch in range(3):
        ours, theirs = list(loader.iterate(epoch)), list(native.iterate(epoch))
        assert all(
            a["number"].equal(b["number"]) and a["chance"].equal(b["chance"]) for a, b in zip(ours, theirs, strict=True)
        )
        assert numbers(loader, epoch, 2) == numbers(loader, epoch)[2:]
    assert given == config()
    assert loader.dataset.complete


def test_the_loader_has_the_attributes_that_hooks_use() -> None:
    loader = build_dataloader(config(drop_last=True), seed=7)
    assert (len(loader), loader.batch_size, loader.num_workers, loader.drop_last) == (3, 3, 0, True)
    assert isinstance(loader.sampler, DefaultSampler)
    assert loader.batch_sampler.sampler is loader.sampler
    assert loader.collate_fn is default_collate
    assert [len(batch) for batch in numbers(loader)] == [3, 3, 3]


def test_a_seed_of_the_sampler_overrides_the_seed_of_the_run() -> None:
    own = {"type": "DefaultSampler", "shuffle": True, "seed": 7}
    ours, theirs = build_dataloader(config(sampler=own), seed=1), build_dataloader(config(), seed=7)
    assert numbers(ours) == numbers(theirs)


def test_without_a_sampler_the_order_is_plain_or_shuffled() -> None:
    plain = {name: value for name, value in config().items() if name != "sampler"}
    assert numbers(build_dataloader(plain)) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    shuffled = build_dataloader({**plain, "shuffle": True}, seed=7)
    assert numbers(shuffled) == numbers(build_dataloader(config(), seed=7))
    with pytest.raises(ValueError, match=r"^a dataloader with a sampler cannot have 'shuffle'; set it in the sampler"):
        build_dataloader(config(shuffle=True))


def test_batches_of_an_endless_stream_are_full_and_span_passes() -> None:
    loader = build_dataloader(config(sampler={"type": "InfiniteSampler"}), seed=3)
    stream = [number for epoch in range(3) for batch in numbers(loader, epoch) for number in batch]
    assert len(stream) == 3 * 4 * 3
    for begin in (0, 10, 20):
        assert sorted(stream[begin : begin + 10]) == list(range(10))
    assert numbers(loader, 2, 1) == numbers(loader, 2)[1:]
    sampler = InfiniteSampler(Numbers(), seed=3)
    assert [index for index, _ in zip(sampler, range(36), strict=False)] == stream
    assert len(sampler) == 10


def test_samplers_divide_the_data_among_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def parts(make: Any, world: int) -> list[Any]:
        found = []
        for rank in range(world):
            monkeypatch.setattr("hookline.dialects.mmengine.dataset.sampler.get_dist_info", lambda r=rank: (r, world))
            found.append(make())
        return found

    assert parts(lambda: list(DefaultSampler(Numbers(), shuffle=False)), 3) == [
        [0, 3, 6, 9],
        [1, 4, 7, 0],
        [2, 5, 8, 1],
    ]
    uneven = partial(DefaultSampler, Numbers(), shuffle=False, round_up=False)
    assert parts(lambda: list(uneven()), 3) == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]
    assert parts(lambda: len(uneven()), 3) == [4, 3, 3]
    streams = parts(lambda: [i for i, _ in zip(InfiniteSampler(Numbers(), seed=1), range(20), strict=False)], 3)
    monkeypatch.undo()
    alone = [i for i, _ in zip(InfiniteSampler(Numbers(), seed=1), range(60), strict=False)]
    assert [alone[rank::3] for rank in range(3)] == streams
    few = parts(lambda: [i for i, _ in zip(InfiniteSampler(Numbers(2), False), range(4), strict=False)], 5)
    monkeypatch.undo()
    assert few == [[i % 2 for i in range(rank, 20, 5)] for rank in range(5)]


@DATA_SAMPLERS.register_module()
class Drawn(torch.utils.data.Sampler[int]):
    """Draws its order from torch's generator, and knows nothing about epochs."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[int]:
        yield from torch.randperm(len(self)).tolist()


@DATA_SAMPLERS.register_module()
class Pairs:
    """Batches of two neighbors in the order of a sampler."""

    def __init__(self, sampler: Any, batch_size: int) -> None:
        self.sampler, self.batch_size = sampler, batch_size

    def __len__(self) -> int:
        return len(self.sampler) // 2

    def __iter__(self) -> Iterator[list[int]]:
        indices = list(self.sampler)
        yield from (indices[first : first + 2] for first in range(0, len(indices), 2))


@pytest.mark.parametrize("more", [{"sampler": {"type": "Drawn"}}, {"batch_sampler": {"type": "Pairs"}}])
def test_samplers_of_a_project_start_at_any_batch_too(more: dict[str, Any]) -> None:
    loader = build_dataloader(config(**more), seed=2)
    torch.manual_seed(1)
    first, second = numbers(loader, 0), numbers(loader, 1)
    assert first != second
    assert sorted(number for batch in first for number in batch) == list(range(10))
    torch.manual_seed(2)
    assert (numbers(loader, 0, 2), numbers(loader, 1)) == (first[2:], second)
    assert torch.initial_seed() == 2


class Switched(Dataset[Any]):
    """Returns the value it is set to; its workers have copies."""

    def __init__(self) -> None:
        self.value = 0

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return self.value


@pytest.mark.parametrize("described", [True, False])
def test_a_hook_can_restart_persistent_workers(tmp_path: Path, described: bool) -> None:
    seen: list[int] = []

    class Switches(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            loader = runner.train_dataloader
            loader.dataset.value = runner.epoch
            if runner.epoch == 2 and hasattr(loader, "persistent_workers") and loader.persistent_workers is True:
                loader._DataLoader__initialized = False
                loader._iterator = None

    class Net(ToyNet):
        def train_step(self, data: Any, optim_wrapper: Any) -> Any:
            seen.append(int(data[0]))

    workers: Any = {"batch_size": 2, "num_workers": 1, "persistent_workers": True}
    loader = {"dataset": Switched(), **workers} if described else DataLoader(Switched(), **workers)
    cfg = {"max_epochs": 3, "val_interval": 9}
    runner_of(tmp_path, VAL, model=Net(), train_dataloader=loader, train_cfg=cfg, custom_hooks=[Switches()]).train()
    assert seen == [0, 0, 2]


def test_an_existing_loader_is_made_resumable_if_its_sampler_is_known() -> None:
    data = Numbers()
    given = DataLoader(data, batch_size=3, sampler=DefaultSampler(data, seed=7), collate_fn=default_collate)
    assert numbers(build_dataloader(given, seed=1), 1, 2) == numbers(build_dataloader(config(), seed=7), 1, 2)
    for other in (DataLoader(data, batch_size=3), [1, 2]):
        assert build_dataloader(other) is other


def test_parts_of_a_dataset_and_streams() -> None:
    some = build_dataloader(config(num_batch_per_epoch=2, sampler={"type": "DefaultSampler", "shuffle": False}))
    assert numbers(some) == [[0, 1, 2], [3, 4, 5]]
    assert some.dataset.count == 10

    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(4))

    assert list(build_dataloader({"dataset": Stream(), "batch_size": 3})) == [[0, 1, 2], [3]]


def test_functions_are_given_by_name_or_as_they_are() -> None:
    @FUNCTIONS.register_module()  # type: ignore[untyped-decorator]  # it can be called in several ways
    def scaled(batch: Any, factor: int) -> Any:
        return {"number": torch.tensor([factor * int(sample["number"]) for sample in batch])}

    loader = build_dataloader(config(collate_fn={"type": "scaled", "factor": 2}), seed=7)
    assert numbers(loader)[0] == [2 * number for number in numbers(build_dataloader(config(), seed=7))[0]]
    assert build_dataloader(config(collate_fn=len)).collate_fn is len
    assert build_dataloader({"dataset": Numbers()}).collate_fn is pseudo_collate


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"batchsize": 3}, r"^unknown dataloader option 'batchsize'; did you mean 'batch_size'\?$"),
        (
            {"collate_fn": {"type": "defalt_collate"}},
            r"^collate_fn: unknown function 'defalt_collate'; did you mean",
        ),
        ({"collate_fn": 3}, r"^collate_fn must be a function, its name, or a dict with 'type', not 3$"),
        (
            {"sampler": {"type": "DefaultSampler", "shufle": True}},
            r"has no parameter 'shufle'; did you mean 'shuffle'\?$",
        ),
        (
            {"sampler": {"type": "DefalutSampler"}},
            r"unknown data sampler 'DefalutSampler'; did you mean 'DefaultS",
        ),
    ],
)
def test_invalid_loader_configs_are_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises((KeyError, TypeError), match=message):
        build_dataloader(config(**more))


@pytest.mark.parametrize("sampler", ["DefaultSampler", "InfiniteSampler", "Drawn"])
def test_a_run_resumes_in_the_middle_of_a_pass_with_the_same_batches(tmp_path: Path, sampler: str) -> None:
    @DATASETS.register_module()
    class Points(TensorDataset):
        def __init__(self) -> None:
            generator = torch.Generator().manual_seed(0)
            super().__init__(torch.randn(20, 4, generator=generator), torch.arange(20) % 2)

    def train(work_dir: Path, iterations: int, **more: Any) -> Any:
        return runner_of(
            work_dir,
            train_dataloader={
                "batch_size": 3,
                "sampler": {"type": sampler},
                "dataset": {"type": "Points"},
                "collate_fn": {"type": "default_collate"},
            },
            train_cfg={"by_epoch": False, "max_iters": iterations, "val_interval": 100},
            default_hooks={"checkpoint": {"type": "CheckpointHook", "interval": 10, "by_epoch": False}},
            model={"type": "ToyNet", "dropout": 0.3},
            **more,
        ).train()

    train(tmp_path / "whole", 20)
    train(tmp_path / "parts", 10)
    train(tmp_path / "parts", 20, resume=True)
    whole, parts = (weights(tmp_path / name / "iter_20.pth", "state_dict") for name in ("whole", "parts"))
    assert all(whole[name].equal(parts[name]) for name in whole)


# -- batches


def test_samples_become_a_batch_of_their_own_shape() -> None:
    Point = namedtuple("Point", "x y")
    samples = [
        {"image": torch.ones(2), "label": 1, "name": "a", "pair": (1, [2.0, 3.0]), "point": Point(1, np.zeros(2))},
        {"image": torch.zeros(2), "label": 0, "name": "b", "pair": (4, [5.0, 6.0]), "point": Point(2, np.ones(2))},
    ]
    loose, stacked = pseudo_collate(samples), default_collate(samples)
    assert loose["image"] == [samples[0]["image"], samples[1]["image"]]
    assert (loose["label"], loose["name"], loose["pair"]) == ([1, 0], ["a", "b"], [[1, 4], [[2.0, 5.0], [3.0, 6.0]]])
    assert loose["point"].x == [1, 2]
    assert stacked["image"].tolist() == [[1, 1], [0, 0]]
    assert (stacked["label"].tolist(), stacked["name"]) == ([1, 0], ["a", "b"])
    assert [part.tolist() for part in stacked["pair"][1]] == [[2, 5], [3, 6]]
    assert (type(stacked["point"]), stacked["point"].y.tolist()) == (Point, [[0, 0], [1, 1]])
    with pytest.raises(
        RuntimeError, match=r"^the samples of a batch must have the same number of parts; these have \[1, 2\]$"
    ):
        pseudo_collate([[1], [1, 2]])


def test_data_elements_are_not_stacked() -> None:
    class BaseDataElement: ...

    elements = [BaseDataElement(), BaseDataElement()]
    assert (
        default_collate([{"inputs": torch.ones(1), "data_samples": each} for each in elements])["data_samples"]
        == elements
    )


def test_workers_are_seeded_by_number_rank_and_seed() -> None:
    drawn = []
    for worker, rank in ((0, 0), (1, 0), (0, 1)):
        worker_init_fn(worker, num_workers=2, rank=rank, seed=5)
        drawn.append((torch.initial_seed(), float(np.random.rand())))
    assert [seed for seed, _ in drawn] == [5, 6, 7]
    assert len({number for _, number in drawn}) == 3


# -- datasets


@TRANSFORMS.register_module()
class Doubled:
    def __init__(self, key: str) -> None:
        self.key = key

    def __call__(self, data: dict[str, Any]) -> dict[str, Any] | None:
        return {**data, self.key: 2 * data[self.key]} if data[self.key] >= 0 else None


@pytest.fixture
def drawn(tmp_path: Path) -> Path:
    samples = [{"img_path": f"{number}.png", "value": number, "cat": number // 3} for number in range(4)]
    content = {"metainfo": {"classes": ["a", "b"], "version": 1}, "data_list": samples}
    (tmp_path / "ann.json").write_text(json.dumps(content))
    return tmp_path


class Pictures(BaseDataset):
    METAINFO = {"source": "drawn", "version": 2}  # noqa: RUF012

    def get_cat_ids(self, idx: int) -> list[int]:
        return [self.get_data_info(idx)["cat"]]


def pictures(root: Path, **more: Any) -> Pictures:
    return Pictures("ann.json", data_root=str(root), data_prefix={"img_path": "images"}, **more)


def test_a_dataset_reads_its_annotations(drawn: Path) -> None:
    data = pictures(drawn, pipeline=[{"type": "Doubled", "key": "value"}, dict])
    assert data.metainfo == {"source": "drawn", "version": 2, "classes": ["a", "b"]}
    assert len(data) == 4
    assert data[3]["value"] == 6
    assert data.get_data_info(-1)["sample_idx"] == 3
    assert data[1]["img_path"] == str(drawn / "images" / "1.png")
    assert [each["value"] for each in data.get_subset([2, 0]).data_list] == [2, 0]
    data.get_subset_(-1)
    assert len(data) == 1
    assert len(pictures(drawn, indices=2)) == 2
    assert len(pickle.loads(pickle.dumps(pictures(drawn)))) == 4


def test_annotations_are_read_when_they_are_needed(drawn: Path) -> None:
    data = pictures(drawn, lazy_init=True)
    assert (data._fully_initialized, data.data_list) == (False, [])
    assert len(data) == 4


def test_the_callers_metadata_comes_first_and_may_be_in_a_file(drawn: Path) -> None:
    (drawn / "classes.txt").write_text("cat\ndog\n")
    data = pictures(drawn, metainfo={"classes": str(drawn / "classes.txt"), "task": "find"})
    assert (data.metainfo["classes"], data.metainfo["task"]) == (["cat", "dog"], "find")


def test_samples_without_data_are_replaced_in_training_and_refused_in_tests(drawn: Path) -> None:
    dropped = [lambda info: None if info["value"] < 3 else info]
    np.random.seed(0)
    assert pictures(drawn, pipeline=dropped)[0]["value"] == 3
    with pytest.raises(DataError, match=r"^Pictures: the pipeline returned None for 6 samples in a row$"):
        pictures(drawn, pipeline=[lambda info: None], max_refetch=5)[0]
    with pytest.raises(
        DataError, match=r"^Pictures: the pipeline returned None for sample 0, which is an error in test mode$"
    ):
        pictures(drawn, pipeline=dropped, test_mode=True)[0]


def test_invalid_annotations_are_refused(tmp_path: Path) -> None:
    for name, content in (("list.json", "[]"), ("lacking.json", '{"data_list": []}')):
        (tmp_path / name).write_text(content)
    with pytest.raises(TypeError, match=r"list.json: annotations must be a dict, not a list$"):
        Pictures(str(tmp_path / "list.json"))
    with pytest.raises(
        ValueError, match=r"lacking.json: annotations must have 'metainfo' and 'data_list'; these have \['data_list'\]$"
    ):
        Pictures(str(tmp_path / "lacking.json"))


def test_datasets_are_joined_repeated_and_balanced(drawn: Path) -> None:
    one, two = pictures(drawn), pictures(drawn, indices=2)
    joined = ConcatDataset([one, two])
    assert [each["value"] for each in (joined[index] for index in range(len(joined)))] == [0, 1, 2, 3, 0, 1]
    assert (joined[-1]["value"], joined.get_data_info(4)["value"], joined.metainfo) == (1, 0, one.metainfo)
    repeated = RepeatDataset(one, times=3)
    assert (len(repeated), repeated[7]["value"]) == (12, 3)
    balanced = ClassBalancedDataset(one, oversample_thr=1.0)
    assert [balanced[index]["value"] for index in range(len(balanced))] == [0, 0, 1, 1, 2, 2, 3, 3]
    rare = ClassBalancedDataset(one, oversample_thr=0.5)
    assert [rare[index]["value"] for index in range(len(rare))] == [0, 1, 2, 3, 3]
    assert rare.get_cat_ids(4) == [1]
    for made in (joined, repeated, balanced):
        with pytest.raises(
            NotImplementedError, match=r"^a .*Dataset has no subset; take the subset of the dataset before you wrap it$"
        ):
            made.get_subset(2)
    with pytest.raises(
        ValueError,
        match=r"^ConcatDataset: the metainfo 'task' of dataset 2 is 'other', but the first dataset has None; if",
    ):
        ConcatDataset([one, pictures(drawn, metainfo={"task": "other"})])
    assert len(ConcatDataset([one, pictures(drawn, metainfo={"task": "other"})], ignore_keys="task")) == 8


def test_a_transform_must_be_callable() -> None:
    with pytest.raises(TypeError, match=r"^a transform must be callable, and 3 is not$"):
        Compose([3])  # type: ignore[list-item]
    assert repr(Compose([len])) == "Compose(\n    <built-in function len>\n)"
