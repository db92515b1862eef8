"""Who may talk to the server: those with the token, who called it by a name that is its own, from its own page.

Other pages in the same browser can send requests to 127.0.0.1 (CSRF), or give their own name that address and read the
answers (DNS rebinding). They know neither the token nor can they change `Host` and `Origin`.
"""

import ipaddress
import secrets
import socket
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class Access:
    """Refuse requests with another token, host or origin, and add the headers of safe pages to all responses.

    Only names are compared, not ports: a tunnel may lead here from another one.

    Args:
        host: Where the server listens. At 0.0.0.0, all addresses of this machine, it may be called by any number: an
            attacker's name is not one.
    """

    def __init__(self, app: ASGIApp, token: str, host: str) -> None:
        self.app, self.token = app, token
        self.names = {*LOOPBACK, host.lower()}
        self.by_number = is_number(host) and ipaddress.ip_address(host).is_unspecified
        if self.by_number:
            self.names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        problem = self.problem(scope)
        if problem is None:
            await self.app(scope, receive, send_safely)
        else:
            await JSONResponse({"error": problem}, 403)(scope, receive, send_safely)

    def problem(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name = (urlsplit(f"//{host}").hostname or "") if is_authority(host) else ""
        if not (name in self.names or (self.by_number and is_number(name))):
            return "this server is not called by that name"
        origin = headers.get("origin")
        if origin is None and scope["method"] not in ("GET", "HEAD"):
            return "the request does not say which page sent it"
        if origin is not None and (urlsplit(origin).scheme, urlsplit(origin).netloc) not in (
            ("http", host),
            ("https", host),
        ):
            return "the request comes from another page"
        token = scope["path"].split("/")[1]
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            return "the address has no token, or an old one: open the one that `lightning-diffal label` printed"
        return None


def is_authority(host: str) -> bool:
    return bool(host) and not set(host) & set("/?#@\\ ")
