"""Calls to servers inside a sandbox."""

from __future__ import annotations

from typing import List, Mapping, Optional

from .. import types
from .._call import Call
from .._port_path import port_headers, port_target
from .._wire import fields, path
from .port_connection import AsyncPortConnection
from .port_response import AsyncPortResponse
from .process_calls import ProcessCalls
from .upload import Content


class PortCalls(ProcessCalls):
    async def list_ports(self, sandbox_id: str, *, request_timeout: Optional[float] = None) -> List[types.Port]:
        """TCP ports that something in the guest listens on now."""
        return await self._client.json(Call[List[types.Port]]("GET", path("/v1/sandboxes/{}/ports", sandbox_id), timeout=request_timeout))

    async def create_preview(
        self, sandbox_id: str, port: int, *, expires_in_secs: Optional[int] = None, request_timeout: Optional[float] = None
    ) -> types.Preview:
        """A link that opens a server in a browser, without another token, until it expires.

        Args:
            expires_in_secs: At most 7 days; without it, an hour.

        Raises:
            ConflictError: with NO_TCP, when the daemon listens where no browser gets to
        """
        call = Call[types.Preview](
            "POST",
            path("/v1/sandboxes/{}/ports/{}/preview", sandbox_id, str(port)),
            json=fields(expires_in_secs=expires_in_secs),
            can_repeat=True,
            timeout=request_timeout,
        )
        return await self._client.json(call)

    async def fetch_port(
        self,
        sandbox_id: str,
        port: int,
        target: str = "/",
        *,
        method: str = "GET",
        headers: Optional[Mapping[str, str]] = None,
        body: Optional[Content] = None,
        request_timeout: Optional[float] = None,
    ) -> AsyncPortResponse:
        """An HTTP request to a server in the guest; bodies are streamed both ways. Whatever the server answers is a result,
        redirects included, which are not followed; only what keeps it from answering is an error. ``request_timeout`` bounds the
        wait for the answer and each silence in it.

        Args:
            target: Path and query.

        Raises:
            ForkdError: with PORT_CLOSED, when nothing listens there
        """
        call = Call[bytes](
            method.upper(),
            path("/v1/sandboxes/{}/proxy/{}", sandbox_id, str(port)) + port_target(target),
            headers=port_headers(headers),
            content=body,
            can_repeat=False,
            is_proxied=True,
            timeout=request_timeout,
        )
        return AsyncPortResponse(await self._client.open(call))

    async def connect_port(self, sandbox_id: str, port: int, *, request_timeout: Optional[float] = None) -> AsyncPortConnection:
        """A TCP connection to a server in the guest.

        Raises:
            ForkdError: with PORT_CLOSED, when nothing listens there
        """
        call = Call[bytes](
            "GET",
            path("/v1/sandboxes/{}/ports/{}/connect", sandbox_id, str(port)),
            headers={"connection": "Upgrade", "upgrade": "tcp"},
            can_repeat=False,
            is_upgrade=True,
            timeout=request_timeout,
        )
        stream, first = (await self._client.open(call)).detach()
        return AsyncPortConnection(stream, first)
