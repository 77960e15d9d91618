"""The servers of one sandbox."""

from __future__ import annotations

from typing import List, Mapping, Optional

from ..errors import ConflictError
from ..types import Port, Preview
from .controller import AsyncController
from .port_connection import AsyncPortConnection
from .port_response import AsyncPortResponse
from .upload import Content


class AsyncPorts:
    """Servers inside a sandbox, by their TCP port."""

    def __init__(self, controller: AsyncController, sandbox_id: str) -> None:
        self._controller = controller
        self._id = sandbox_id

    async def list(self, *, request_timeout: Optional[float] = None) -> List[Port]:
        """Lists listening ports."""
        return await self._controller.list_ports(self._id, request_timeout=request_timeout)

    async def fetch(
        self,
        port: int,
        target: str = "/",
        *,
        method: str = "GET",
        headers: Optional[Mapping[str, str]] = None,
        body: Optional[Content] = None,
        request_timeout: Optional[float] = None,
    ) -> AsyncPortResponse:
        """Sends an HTTP request to a server; see :meth:`AsyncController.fetch_port`.

        Raises:
            ForkdError: with PORT_CLOSED, when no process listens on the port
        """
        return await self._controller.fetch_port(
            self._id, port, target, method=method, headers=headers, body=body, request_timeout=request_timeout
        )

    async def url(self, port: int, *, request_timeout: Optional[float] = None) -> str:
        """The address of a server for browsers. A browser also needs a link of :meth:`preview`, or a token.

        Raises:
            ConflictError: with NO_TCP, when the daemon has no address for browsers
        """
        status = await self._controller.status(request_timeout=request_timeout)
        if status["proxy_url"] is None:
            raise ConflictError(
                f"Port {port} of {self._id} has no URL: the daemon has no address for browsers.",
                "NO_TCP",
                hint="Start the daemon with --bind HOST:PORT.",
            )
        return status["proxy_url"].replace("://", f"://{port}-{self._id}.", 1) + "/"

    async def preview(self, port: int, *, expires_in: Optional[int] = None, request_timeout: Optional[float] = None) -> Preview:
        """A link that opens a server in a browser. It expires after an hour, or after so many seconds."""
        return await self._controller.create_preview(self._id, port, expires_in_secs=expires_in, request_timeout=request_timeout)

    async def connect(self, port: int, *, request_timeout: Optional[float] = None) -> AsyncPortConnection:
        """Opens a TCP connection to a server.

        Raises:
            ForkdError: with PORT_CLOSED, when no process listens on the port
        """
        return await self._controller.connect_port(self._id, port, request_timeout=request_timeout)
