"""Connections of the server that do not get anywhere are closed: a slow or broken client must not keep others out.

uvicorn waits without end for a request that has begun, and for a client that does not read its response.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

#: The seconds between two looks at a connection. In this time, a whole request has to come, or a part of a response has
#: to be taken.
PATIENCE = 10.0
#: States of a client that has not sent a whole request.
SENDING = (h11.IDLE, h11.SEND_BODY)


class PatientProtocol(H11Protocol):
    """One connection, which is closed if nothing happens on it for a while. A stream with silence is no such case."""

    def connection_made(self, transport: Any) -> None:
        """Begin to look at the connection."""
        super().connection_made(transport)
        self._answered = 0
        self._before: tuple[int, int] | None = None
        self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        """End looking."""
        self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Count the responses: between two of them, the client has as much time again."""
        self._answered += 1
        super().on_response_complete()

    def _look_again(self) -> None:
        self._timer: asyncio.TimerHandle = self.loop.call_later(PATIENCE, self._look)

    def _look(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        before, self._before = self._before, (self._answered, waiting)
        taken = before is None or waiting < before[1] or not waiting
        came = self.conn.their_state not in SENDING or before is None or before[0] != self._answered or bool(waiting)
        if taken and came:
            self._look_again()
        else:
            self.transport.abort()
