"""A connection to a server in a guest."""

from __future__ import annotations

from types import TracebackType
from typing import Optional, Type

from .._deadline import Deadline
from .net import Stream


class AsyncPortConnection:
    """Bytes to and from a server in a guest. One may read while another writes."""

    def __init__(self, stream: Stream, first: bytes) -> None:
        stream.be_duplex()
        self._stream = stream
        self._first = first

    async def read(self, *, timeout: float = 0) -> bytes:
        """What has come, at least a byte; nothing when the server has ended its direction.

        Raises:
            TimeoutError: nothing came for so many seconds; 0: it waits for ever
        """
        if self._first:
            first, self._first = self._first, b""
            return first
        return await self._stream.read(Deadline("Reading from the server", timeout))

    async def write(self, data: bytes, *, timeout: float = 0) -> None:
        """Writes all of it.

        Raises:
            TimeoutError: the server took nothing for so many seconds; 0: it waits for ever
        """
        await self._stream.write_all(data, Deadline("Writing to the server", timeout))

    async def close_write(self) -> None:
        """No more will be written; what comes can still be read. Not over TLS, which ends both directions at once."""
        self._stream.end()

    async def close(self) -> None:
        """Ends the connection."""
        self._stream.close()

    async def __aenter__(self) -> AsyncPortConnection:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        await self.close()
