from __future__ import annotations

import functools
import logging
import os
import signal
import socket

import pytest
import torch.distributed.elastic.rendezvous as rendezvous

from hookline.errors import ConfigError, DistributedError
from hookline.launching import Options, run


def test_a_machine_that_never_comes_ends_the_run_and_leaves_everything_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hasty = functools.partial(rendezvous.RendezvousParameters, join_timeout=1)  # torch waits for ten minutes
    monkeypatch.setattr(rendezvous, "RendezvousParameters", hasty)
    monkeypatch.delenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", raising=False)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)]
    options = Options(nproc=1, nnodes="2", node_rank=0, rdzv_endpoint=f"127.0.0.1:{port}")
    with pytest.raises(DistributedError) as raised:
        run(["true"], options, pytest.fail)
    assert str(raised.value) == (
        f"the machines (--nnodes 2) did not find one another at 127.0.0.1:{port}: RendezvousTimeoutError\n"
        "  start the command on all of them, and check that they can reach this port"
    )
    after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)]
    assert after == handlers
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" not in os.environ
    assert logging.getLogger("torch.distributed.elastic").propagate


def test_a_process_of_torchrun_starts_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    with pytest.raises(ConfigError) as raised:
        run(["true"], Options(nproc=2), pytest.fail)
    assert str(raised.value) == (
        "torchrun started this process, so it cannot start others; use either torchrun or --nproc"
    )
