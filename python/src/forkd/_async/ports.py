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
        """What listens now."""
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
        """An HTTP request to a server; see :meth:`AsyncController.fetch_port`.

        Raises:
            ForkdError: with PORT_CLOSED, when nothing listens there
        """
        return await self._controller.fetch_port(
            self._id, port, target, method=method, headers=headers, body=body, request_timeout=request_timeout
        )

    async def url(self, port: int, *, request_timeout: Optional[float] = None) -> str:
        """The address of a server for browsers, who also need a link of :meth:`preview` or a token to get in.

        Raises:
            ConflictError: with NO_TCP, when the daemon listens where no browser gets to
        """
        status = await self._controller.status(request_timeout=request_timeout)
        if status["proxy_url"] is None:
            raise ConflictError(
                f"Port {port} of {self._id} has no address: the daemon listens where no browser gets to.",
                "NO_TCP",
                hint="Start the daemon with --bind HOST:PORT.",
            )
        return status["proxy_url"].replace("://", f"://{port}-{self._id}.", 1) + "/"

    async def preview(self, port: int, *, expires_in: Optional[int] = None, request_timeout: Optional[float] = None) -> Preview:
        """A link that opens a server in a browser until it expires: after an hour, or so many seconds."""
        return await self._controller.create_preview(self._id, port, expires_in_secs=expires_in, request_timeout=request_timeout)

    async def connect(self, port: int, *, request_timeout: Optional[float] = None) -> AsyncPortConnection:
        """A TCP connection to a server.

        Raises:
            ForkdError: with PORT_CLOSED, when nothing listens there
        """
        return await self._controller.connect_port(self._id, port, request_timeout=request_timeout)
