from __future__ import annotations

from typing import Any

import pytest
import torch

from hookline.cli.launch import refuse_missing_devices
from hookline.errors import ConfigError, DistributedError
from hookline.launching.failures import Failure, first_of
from hookline.launching.options import Options, refuse_unknown_host


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nproc": 0}, "--nproc must be a number of at least 1, not 0"),
        ({"max_restarts": -1}, "--max-restarts must be a number of at least 0, not -1"),
        ({"grace": -1.0}, "--grace must be a number of at least 0, not -1"),
        ({"nnodes": "x"}, "--nnodes must be a number of machines such as 2, or MIN:MAX, not 'x'"),
        ({"nnodes": "0"}, "--nnodes must be a number of machines such as 2, or MIN:MAX, not '0'"),
        ({"nnodes": "3:2"}, "--nnodes must be a number of machines such as 2, or MIN:MAX, not '3:2'"),
        ({"node_rank": 1}, "--node-rank must be from 0 to 0 with --nnodes 1, not 1"),
        (
            {"nnodes": "2"},
            "--nnodes 2 needs --rdzv-endpoint HOST:PORT: a machine of the run and a free port of it, the same on all "
            "machines",
        ),
        ({"rdzv_backend": "c10"}, "unknown --rdzv-backend 'c10'; did you mean 'c10d'?"),
        ({"rdzv_backend": "static"}, "--rdzv-backend static needs --node-rank, and one number for --nnodes"),
        ({"rdzv_backend": "static", "node_rank": 0}, "--rdzv-backend static needs --rdzv-endpoint HOST:PORT"),
        ({"rdzv_endpoint": "a:b"}, "--rdzv-endpoint must be HOST:PORT, not 'a:b'"),
        ({"rdzv_endpoint": "a:70000"}, "--rdzv-endpoint must be HOST:PORT, not 'a:70000'"),
        ({"rdzv_endpoint": ":29400"}, "--rdzv-endpoint must be HOST:PORT, not ':29400'"),
    ],
)
def test_options_that_cannot_be_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Options(**given)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        ("", ("127.0.0.1", 0)),
        ("node1", ("node1", 29400)),
        ("node1:1234", ("node1", 1234)),
        ("10.0.0.1:80", ("10.0.0.1", 80)),
        ("[fe80::1]:80", ("fe80::1", 80)),
    ],
)
def test_an_endpoint_is_a_host_and_a_port(endpoint: str, address: tuple[str, int]) -> None:
    assert Options(rdzv_endpoint=endpoint).address == address


def test_a_launcher_is_needed_for_processes_machines_and_restarts() -> None:
    assert not Options().asks_for_processes
    assert not Options(nproc=1, grace=5.0).asks_for_processes
    given: list[dict[str, Any]] = [
        *({"nproc": 2}, {"max_restarts": 1}, {"node_rank": 0}, {"rdzv_endpoint": "a:1"}),
        {"nnodes": "1:2", "rdzv_endpoint": "a:1"},
    ]
    assert [Options(**each).asks_for_processes for each in given] == [True] * 5


def test_more_processes_than_devices_are_refused_unless_the_device_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_missing_devices("cpu", 64)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)  # a machine with two devices
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    refuse_missing_devices("cpu", 64)
    refuse_missing_devices("auto", 2)
    with pytest.raises(ConfigError) as raised:
        refuse_missing_devices("auto", 3)
    assert str(raised.value) == (
        "--nproc 3 needs a device for each process, but this machine has 2 of the type 'cuda'; use --nproc 2, or train "
        "on the CPU with device=cpu"
    )


def test_the_first_failure_is_the_earliest_one_that_is_not_about_other_processes() -> None:
    group, late, early = Failure(0, 6, 1.0), Failure(1, 4, 3.0), Failure(2, -9, 2.0)
    assert first_of([group, late, early]) is early
    assert first_of([group, late]) is late
    assert first_of([group]) is group
    assert first_of([Failure(0, 1, 2.0), early]) is early
    assert [each.exit_code for each in (group, late, early)] == [6, 4, 137]
    relayed = Failure(0, 4, 1.0, "rank 1 failed: ...", relayed=True)
    assert first_of([relayed, late]) is late


def test_a_failure_says_which_process_failed_and_how() -> None:
    assert [str(Failure(1, code, 0.0)) for code in (3, -9, -40, 143)] == [
        "rank 1 failed with exit code 3",
        "rank 1 was killed by SIGKILL",
        "rank 1 was killed by signal 40",
        "rank 1 was asked to end by SIGTERM",
    ]
    assert Failure(1, 143, 0.0).of_all() == "the processes were asked to end by SIGTERM"


def test_a_host_without_an_address_is_refused() -> None:
    with pytest.raises(DistributedError) as raised:
        refuse_unknown_host(Options(nproc=2, rdzv_endpoint="no-such-host.invalid"))
    assert str(raised.value).startswith(
        "--rdzv-endpoint no-such-host.invalid: this machine does not know the host 'no-such-host.invalid' ("
    )
    assert raised.value.exit_code == 6
