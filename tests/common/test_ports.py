"""Free ports."""

from __future__ import annotations

import random
import socket
from typing import TYPE_CHECKING

from hookline.common import ports

if TYPE_CHECKING:
    import pytest


def test_a_port_is_free_and_not_one_that_the_system_gives_to_connections() -> None:
    before = random.getstate()
    port = ports.find_free_port("127.0.0.1")
    assert random.getstate() == before
    assert ports.LOW <= port < ports.HIGH
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))


def test_ports_in_use_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        taken = server.getsockname()[1]
        monkeypatch.setattr(ports, "LOW", taken)
        monkeypatch.setattr(ports, "HIGH", taken + 1)
        found = ports.find_free_port("127.0.0.1")
    assert found != taken
    assert found > 0
