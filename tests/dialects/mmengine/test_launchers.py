"""Launchers and model wrappers, with a group of one process. tests/distributed has those of several."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, nn

from hookline.dialects.mmengine import dist
from hookline.dialects.mmengine.config import Config
from hookline.dialects.mmengine.dist.launchers import check_launcher, describe_processes, first_host
from hookline.dialects.mmengine.errors import ConfigValueError
from hookline.dialects.mmengine.logging import MMLogger
from hookline.dialects.mmengine.model import (
    MMDistributedDataParallel,
    convert_sync_batchnorm,
    detect_anomalous_params,
    is_model_wrapper,
)
from hookline.errors import ConfigError
from hookline.testing import toy_data
from tests.dialects.mmengine.parts import TEST, VAL, ToyNet, runner_of

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
ALONE = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_NODELIST": "gpu[003-006]"}
MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    """Start without the variables of any launcher, and leave no group behind."""
    before = dict(os.environ)
    for name in (*NAMES, *SLURM, *MPI):
        os.environ.pop(name, None)
    yield
    os.environ.clear()
    os.environ.update(before)
    if distributed.is_initialized():
        distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("launcher", "given", "port", "expected"),
    [
        ("slurm", SLURM, None, ["3", "4", "1", "gpu003", "29500"]),
        ("slurm", SLURM, 29501, ["3", "4", "1", "gpu003", "29501"]),
        ("slurm", SLURM | {"MASTER_ADDR": "head", "MASTER_PORT": "7"}, None, ["3", "4", "1", "head", "7"]),
        ("mpi", MPI | {"MASTER_ADDR": "head"}, None, ["1", "2", "1", "head", "29500"]),
        ("pytorch", ALONE, None, list(ALONE.values())),
    ],
)
def test_every_launcher_describes_its_processes_as_torchrun_does(
    launcher: str, given: dict[str, str], port: int | None, expected: list[str]
) -> None:
    os.environ.update(given)
    describe_processes(launcher, port)
    assert [os.environ[name] for name in NAMES] == expected


@pytest.mark.parametrize(
    ("nodes", "host"),
    [("one", "one"), ("a,b", "a"), ("n[07,9],m1", "n07"), ("n[2-4]", "n2"), ("r[1-2]n[3,5-6]-x,r9", "r1n3-x")],
)
def test_the_first_host_of_a_node_list(nodes: str, host: str) -> None:
    assert first_host(nodes) == host


@pytest.mark.parametrize(
    ("launcher", "given", "message"),
    [
        (
            "slurm",
            {"SLURM_PROCID": "0"},
            "launcher is 'slurm', but SLURM_NTASKS, SLURM_LOCALID, SLURM_NODELIST is not set; start the processes with "
            "srun, or use launcher='none' for a single one",
        ),
        (
            "mpi",
            MPI,
            "launcher is 'mpi', but MASTER_ADDR is not set; start the processes with mpirun, or use launcher='none' "
            "for a single one",
        ),
    ],
)
def test_missing_variables_are_named(launcher: str, given: dict[str, str], message: str) -> None:
    os.environ.update(given)
    with pytest.raises(ConfigValueError) as caught:
        describe_processes(launcher)
    assert str(caught.value) == message


def test_several_processes_without_a_launcher_are_refused() -> None:
    os.environ["WORLD_SIZE"] = "2"
    with pytest.raises(ConfigValueError) as caught:
        check_launcher("none")
    assert str(caught.value) == (
        "launcher is 'none', but this process is one of 2 (WORLD_SIZE), which would all write to the same folder; set "
        "launcher='pytorch'"
    )


def test_a_group_of_one_process_trains_as_no_group_does(tmp_path: Path) -> None:
    plain = runner_of(tmp_path / "plain", (*VAL, *TEST))
    plain.train()
    os.environ.update(ALONE)
    runner = runner_of(tmp_path / "group", (*VAL, *TEST), launcher="pytorch")
    assert (dist.is_distributed(), dist.get_backend(), runner.distributed) == (True, "gloo", True)
    trained = runner.train()
    assert (type(runner.wrapped), runner.model, trained) == (MMDistributedDataParallel, runner.model, runner.model)
    assert (is_model_wrapper(runner.wrapped), is_model_wrapper(runner.model)) == (True, False)
    for ours, theirs in zip(runner.model.parameters(), plain.model.parameters(), strict=True):
        assert ours.equal(theirs)
    runner.strategy.shutdown()


class OwnStep(ToyNet):
    """A model that updates itself."""

    def train_step(self, data: Any, optim_wrapper: Any) -> Any:
        """Do nothing."""


@pytest.mark.parametrize(
    ("model", "cfg", "message"),
    [
        (
            OwnStep,
            {},
            "OwnStep has its own train_step, which MMDistributedDataParallel never calls; set "
            "model_wrapper_cfg=dict(type='MMSeparateDistributedDataParallel'), or register a wrapper with a train_step "
            "in MODEL_WRAPPERS and name it there",
        ),
        (
            ToyNet,
            {"model_wrapper_cfg": {"type": "DistributedDataParallel"}},
            "the model wrapper DistributedDataParallel has no train_step; use MMDistributedDataParallel or a subclass",
        ),
        (
            ToyNet,
            {"model_wrapper_cfg": {"type": "MMDistributedDataParalel"}},
            "unknown model wrapper 'MMDistributedDataParalel'; did you mean 'MMDistributedDataParallel'?",
        ),
        (
            ToyNet,
            {"sync_bn": "torch"},
            "sync_bn needs a GPU, but this run trains on the CPU; remove it, and average the statistics after every "
            "epoch with custom_hooks=[dict(type='SyncBuffersHook')]",
        ),
    ],
)
def test_wrappers_that_would_not_train_the_model_are_refused(
    tmp_path: Path, model: type[nn.Module], cfg: dict[str, Any], message: str
) -> None:
    os.environ.update(ALONE)
    runner = runner_of(tmp_path, (*VAL, *TEST), model=model(), launcher="pytorch", cfg=Config(cfg))
    with pytest.raises(ConfigError) as caught:
        runner.train()
    assert str(caught.value) == message
    runner.strategy.shutdown()


def test_parameters_that_no_loss_depends_on_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    used, spare = nn.Linear(2, 2), nn.Linear(3, 1)
    logger = MMLogger.make_current(MMLogger("anomalies"))
    logger.addHandler(caplog.handler)
    detect_anomalous_params(used(torch.ones(1, 2)).sum(), nn.ModuleDict({"used": used, "spare": spare}))
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.ERROR, "the loss does not depend on spare.weight, with the shape (1, 3)"),
        (logging.ERROR, "the loss does not depend on spare.bias, with the shape (1,)"),
    ]


def test_batch_norms_are_converted() -> None:
    converted: Any = convert_sync_batchnorm(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    assert type(converted[1]) is nn.SyncBatchNorm
    with pytest.raises(ValueError, match=r"^sync_bn must be 'torch', not 'mmcv'$"):
        convert_sync_batchnorm(converted, "mmcv")


def test_a_wrapped_model_takes_no_config_of_a_wrapper(tmp_path: Path) -> None:
    os.environ.update(ALONE)
    dist.init_dist("pytorch", backend="nccl", timeout=60)
    model = MMDistributedDataParallel(ToyNet(), broadcast_buffers=False)
    parts = {"model": model, "launcher": "pytorch", "train_dataloader": toy_data(2)}
    runner = runner_of(tmp_path / "one", (*VAL, *TEST), **parts)
    runner.train()
    assert runner.wrapped is model
    runner = runner_of(tmp_path / "two", (*VAL, *TEST), **parts, cfg=Config({"model_wrapper_cfg": {}}))
    with pytest.raises(ConfigError) as caught:
        runner.train()
    assert str(caught.value) == (
        "the model is already wrapped in a MMDistributedDataParallel, so model_wrapper_cfg must not be set"
    )
    runner.strategy.shutdown()
