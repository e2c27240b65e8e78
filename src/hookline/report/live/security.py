"""Who may talk to the server. Every request passes `Guard` before anything else looks at it.

- The Host header must name this machine. Otherwise a page of another site could read the runs through a name that it
  controls (DNS rebinding).
- If the server listens beyond this machine, every request needs the token.
- A request that changes something always needs the token in a header, which no other site can send: the browser would
  ask this server first, and it does not allow it. Its Origin must be the server itself, and its content must be JSON.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-hookline-token"
#: The fewest characters of a token that a user chooses.
SHORTEST = 16
HEADERS = {
    "content-security-policy": "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; object-src 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Return whether a server that listens at this address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def new_token() -> str:
    """Return a token that nobody can guess."""
    return secrets.token_urlsafe(24)


class Guard:
    """Refuses requests before the app sees them, and adds headers to all responses.

    Args:
        app: The app.
        host: The address that the server listens at.
        token: The token.
    """

    def __init__(self, app: ASGIApp, host: str, token: str) -> None:
        self._app = app
        self._token = token.encode()
        self._is_local = is_loopback(host)
        self._names = {"localhost", host.lower()}
        if not self._is_local:
            self._names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        from starlette.requests import Request

        refused = self.refuse(Request(scope))
        await (self._app if refused is None else refused)(scope, receive, _with_headers(send))

    def refuse(self, request: Request) -> Response | None:
        """Return the response to a request that is refused; None if it may pass."""
        if request.method not in ("GET", "HEAD", "POST"):
            return refusal(405, f"{request.method} is not allowed")
        if not self.names_us(request.headers.getlist("host")):
            return refusal(403, "the Host header does not name this server; open the address that hookline watch shows")
        if request.method == "POST":
            return self._refuse_post(request)
        if not self._is_local and not self._knows_token(request):
            return refusal(401, "this needs the token; open the address that hookline watch shows")
        return None

    def _refuse_post(self, request: Request) -> Response | None:
        origins = request.headers.getlist("origin")
        (host,) = request.headers.getlist("host")
        if any(origin not in (f"http://{host}", f"https://{host}") for origin in origins) or len(origins) > 1:
            return refusal(403, "the request comes from another site")
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return refusal(403, "the request comes from another site")
        if not self._matches(request.headers.get(HEADER, "")):
            return refusal(401, f"this needs the token, in the header {HEADER}")
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return refusal(415, "the content must be application/json")
        return None

    def names_us(self, hosts: list[str]) -> bool:
        """Return whether the Host header names this machine. Any port is fine: a tunnel may have another one."""
        if len(hosts) != 1:
            return False
        name = _without_port(hosts[0].lower())
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return address.is_loopback or not self._is_local  # a site cannot make an address lead elsewhere

    def _knows_token(self, request: Request) -> bool:
        given = request.headers.get(HEADER) or request.query_params.get("token", "")
        return self._matches(given)

    def _matches(self, given: str) -> bool:
        return secrets.compare_digest(given.encode("utf-8", "surrogateescape"), self._token)


def refusal(status: int, text: str) -> Response:
    """Return a response that says why a request is refused."""
    return JSONResponse({"error": text}, status)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message.get("headers", [])}
            added = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in present]
            message = {**message, "headers": [*message.get("headers", []), *added]}
        await send(message)

    return send_with_headers
