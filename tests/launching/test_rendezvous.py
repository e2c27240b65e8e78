from __future__ import annotations

import functools
import logging
import os
import signal
import socket
import sys
from pathlib import Path

import pytest
import torch.distributed.elastic.rendezvous as rendezvous

from hookline.errors import ConfigError, DistributedError
from hookline.launching.elastic import run
from hookline.launching.options import Options
from tests.distributed.processes import running


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


@pytest.mark.processes
def test_after_a_signal_no_thread_of_torch_is_left_that_would_abort_the_launcher_at_its_end(tmp_path: Path) -> None:
    process = (
        "import os, signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); "
        "os.kill(os.getppid(), signal.SIGTERM); time.sleep(60)"
    )
    launcher = (
        "import sys, threading; from hookline.launching.elastic import Options, run; "
        f"code = run([sys.executable, '-c', {process!r}], Options(nproc=1)); "
        "print([thread.name for thread in threading.enumerate()]); sys.exit(code)"
    )
    with running(sys.executable, "-c", launcher, cwd=tmp_path) as command:
        assert command.wait() == 143, command.output()
        assert command.output() == "['MainThread']\n"
