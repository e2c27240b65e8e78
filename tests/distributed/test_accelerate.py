"""Processes with accelerate: the same bits as with DDP, with an Accelerator that is given or configured."""

from __future__ import annotations

import inspect
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from accelerate.utils import FullyShardedDataParallelPlugin  # type: ignore[import-untyped]
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hookline.checkpoint import store
from hookline.errors import ConfigError
from hookline.strategies import pick
from hookline.testing import toy_runner
from tests.distributed.accelerated import TRAININGS
from tests.distributed.cases import At, train
from tests.distributed.ranks import ACCELERATE, LIMIT, run
from tests.distributed.test_ddp import apart

MODULE = "accelerated"


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ]:
        if name.startswith("ACCELERATE_") or name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)


def test_accelerate_matches_ddp_and_a_single_run_bit_for_bit(tmp_path: Path) -> None:
    two = run("trainings", tmp_path / "two", "accelerate", "ddp", module=MODULE)
    one = run("trainings", tmp_path / "one", "accelerate", "single", module=MODULE, nproc=0)
    assert (one.code, two.code) == (0, 0), one.output + two.output
    for name in TRAININGS:
        found = [each[strategy][name] for each in two.ranks for strategy in ("accelerate", "ddp")]
        assert [each["hash"] for each in found] == [found[0]["hash"]] * 4
        assert [each["metrics"] for each in found] == [found[0]["metrics"]] * 4
        alone, single = one.ranks[0]["accelerate"][name], one.ranks[0]["single"][name]
        assert (alone["hash"], alone["metrics"]) == (single["hash"], single["metrics"])
        assert apart(found[0]["weights"], single["weights"]) < 1e-6
    assert len({two.ranks[0]["accelerate"][name]["hash"] for name in TRAININGS}) == len(TRAININGS)


def test_a_checkpoint_goes_from_two_processes_to_one_and_to_a_given_accelerator_in_which_a_failure_reaches_all(
    tmp_path: Path,
) -> None:
    begun = run("begun", tmp_path, module=MODULE)
    assert begun.code == 0, begun.output
    train(f"{tmp_path}/changing", 48, epochs=2, resume=True)
    saved = store.read(tmp_path / "changing" / "run" / "epoch_2.pth", sealed=True)
    assert list(saved["optimizer"]["state"][0]) == ["step", "exp_avg", "exp_avg_sq"]
    given = run("given", tmp_path, module=MODULE)
    assert given.code == 0, given.output
    assert given.ranks[0]["hash"] == given.ranks[1]["hash"]
    assert apart(begun.ranks[0]["weights"], given.ranks[0]["weights"]) < 1e-6
    assert [found["iter"] for found in given.ranks] == [9, 9]
    line = inspect.getsourcelines(At.after_train_iter)[1]
    assert [found["failed"].splitlines() for found in given.ranks] == [
        [
            "rank 1 failed: ValueError: planted",
            f"  in hook At, at after_train_iter, epoch=1 iter=5 rank=1 (tests/distributed/cases.py:{line})",
        ],
        ["planted"],
    ]
    assert [found["scale"] for found in given.ranks] == [8.0, 8.0]


def test_accelerate_launch_chooses_the_strategy_and_the_precision_and_a_signal_ends_all(tmp_path: Path) -> None:
    done = run("launched", tmp_path, module=MODULE, launcher=(*ACCELERATE, "--mixed_precision=bf16"))
    assert done.code == 0, done.output
    for found in done.ranks:
        assert found["found"] == ["accelerate", "bf16", "bf16", "cpu"]
        assert found["refused"] == (
            "precision is 'fp16', but the Accelerator has mixed_precision 'bf16'; set only one of them"
        )
        assert found["hashes"] == [done.ranks[0]["hashes"][0]] * 2
        assert (found["dtype"], found["code"]) == ("torch.float32", 143)
    assert sorted(path.name for path in (tmp_path / "ended" / "run").glob("*.pth")) == ["epoch_1.pth", "iter_7.pth"]


def test_processes_that_mpi_has_started_find_one_another(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "ACCELERATE_MIXED_PRECISION": "no"}
    command = [sys.executable, "-m", f"tests.distributed.{MODULE}", "alone", str(tmp_path), "[]"]
    started = [
        subprocess.Popen(
            command,
            env={**os.environ, **address, "PMI_SIZE": "2", "PMI_RANK": rank, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        for rank in "01"
    ]
    try:
        assert [process.wait(LIMIT) for process in started] == [0, 0]
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    first, second = (json.loads((tmp_path / f"rank_{rank}.json").read_text()) for rank in "01")
    assert [first["found"], second["found"]] == [["accelerate", 0, 2], ["accelerate", 1, 2]]
    assert first["hash"] == second["hash"]


def test_a_launcher_that_starts_fewer_processes_than_asked_for_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # As `accelerate launch --cpu --num_processes 2` sets them, which starts one process unless it is given MPI's hosts.
    for name, value in {"ACCELERATE_USE_CPU": "True", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    assert pick("accelerate").world_size == 1
    assert caplog.messages == [
        "accelerate launch has started one process, although more were asked for: on the CPU it starts several only "
        "with MPI; use --multi_gpu --num_processes N with device: cpu, or torchrun"
    ]


def test_without_accelerate_the_command_names_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['accelerate'] = None; from hookline.cli import main; main()"
    command = [sys.executable, "-c", code, "train", "strategy=accelerate"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "hookline: the strategy 'accelerate' needs accelerate, which is not installed: pip install "
        "'hookline[accelerate]'\n",
    )


DATA = "hookline shares the data; set the batch_size of the loader"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mixed_precison": "no"}, "has no option 'mixed_precison'; did you mean 'mixed_precision'?"),
        ({"gradient_accumulation_steps": 4}, "does not take gradient_accumulation_steps: set accumulate in the optim"),
        ({"cpu": True}, "does not take cpu: set device: cpu"),
        ({"split_batches": True}, f"does not take split_batches: {DATA}"),
        ({"fsdp_plugin": 1}, "does not take fsdp_plugin: such a model trains with the strategy 'fsdp'"),
    ],
)
def test_options_that_would_have_no_effect_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        pick({"type": "accelerate", **options})
    assert str(refused.value) == f"the strategy 'accelerate' {message}"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mixed_precision": "fp8"}, "the mixed_precision of the Accelerator must be no, bf16 or fp16, not 'fp8'"),
        (
            {"mixed_precision": "no", "precision": "bf16"},
            "precision is 'bf16', but the Accelerator has mixed_precision 'no'; set only one of them",
        ),
        ({"accelerator": "auto"}, "accelerator must be an accelerate.Accelerator, not a str"),
    ],
)
def test_settings_that_contradict_one_another_are_refused(given: dict[str, Any], message: str) -> None:
    precision = given.pop("precision", "fp32")
    with pytest.raises(ConfigError) as refused:
        toy_runner(strategy={"type": "accelerate", **given}, precision=precision)
    assert str(refused.value) == message


def test_a_given_accelerator_that_would_be_used_by_half_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(accelerator: Any, **options: Any) -> str:
        with pytest.raises(ConfigError) as refused:
            toy_runner(strategy=accelerator, **options)
        return str(refused.value)

    assert refuse(Accelerator(cpu=True, gradient_accumulation_steps=4)) == (
        "the Accelerator has gradient_accumulation_steps=4, which has no effect here; leave it out, and set "
        "accumulate=4 in the optim"
    )
    plain = Accelerator(cpu=True)
    assert refuse(plain, precision="bf16") == (
        "precision is 'bf16', but the Accelerator has mixed_precision 'no'; set only one of them"
    )
    assert refuse({"type": "accelerate", "accelerator": plain, "project_dir": "x"}) == (
        "the strategy 'accelerate' got an Accelerator, so project_dir must be set there instead"
    )
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "false")
    sharding = Accelerator(cpu=True, fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2))
    assert refuse(sharding).startswith("accelerate is set up for FSDP (ACCELERATE_USE_FSDP), which the strategy")


def test_deepspeed_is_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")  # as `accelerate launch --use_deepspeed` sets them
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(ConfigError) as refused:
        toy_runner()
    assert str(refused.value) == (
        "accelerate is set up for DeepSpeed (ACCELERATE_USE_DEEPSPEED), which the strategy 'accelerate' does not "
        "support: that would step the optimizer itself; to shard a model, start with torchrun and use "
        "the strategy 'fsdp'"
    )


def test_objects_prepared_by_accelerate_are_refused() -> None:
    accelerator = Accelerator(cpu=True)
    strategy = pick(accelerator)
    with pytest.raises(ConfigError) as refused:
        strategy.share(accelerator.prepare(DataLoader(TensorDataset(torch.arange(4)))), pad=True)
    assert str(refused.value) == (
        "the loader was prepared by accelerate, but hookline shares the data itself, so that a run can be resumed "
        "at any batch; pass the DataLoader that you have prepared"
    )
    model = nn.Linear(1, 1)
    prepared = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ConfigError) as refused:
        strategy.prepare(model, [prepared], torch.device("cpu"))
    assert str(refused.value) == (
        "the optimizer was prepared by accelerate, which would scale and skip steps a second time; pass the torch "
        "optimizer itself"
    )


def test_the_launcher_resolves_auto_and_the_accelerator_sets_the_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert pick("auto").name == "single"
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name, value in {"RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert pick("auto").name == "ddp"
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    strategy = pick("auto")
    assert (strategy.name, strategy.rank, strategy.world_size) == ("accelerate", 1, 2)
    assert [strategy.pick_precision(name) for name in ("fp32", "bf16", "fp16")] == ["fp32", "bf16", "fp16"]
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp16")
    assert [strategy.pick_precision(name) for name in ("fp32", "fp16")] == ["fp16", "fp16"]
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    assert str(strategy.pick_device("auto")) == "cpu"
