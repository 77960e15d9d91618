"""A connection to a server in a guest."""

from __future__ import annotations

from types import TracebackType
from typing import Optional, Type

from .._deadline import Deadline
from .net import Stream


class AsyncPortConnection:
    """Bytes to and from a server in a guest. One task may read while another writes."""

    def __init__(self, stream: Stream, first: bytes) -> None:
        stream.be_duplex()
        self._stream = stream
        self._first = first

    async def read(self, *, timeout: float = 0) -> bytes:
        """At least one byte; empty when the server has closed its direction.

        Raises:
            TimeoutError: no data arrived for so many seconds; 0: no limit
        """
        if self._first:
            first, self._first = self._first, b""
            return first
        return await self._stream.read(Deadline("Reading from the server", timeout))

    async def write(self, data: bytes, *, timeout: float = 0) -> None:
        """Writes all of it.

        Raises:
            TimeoutError: the server accepted nothing for so many seconds; 0: no limit
        """
        await self._stream.write_all(data, Deadline("Writing to the server", timeout))

    async def close_write(self) -> None:
        """Closes the write direction; reading continues. Not possible over TLS, which closes both directions at once."""
        self._stream.end()

    async def close(self) -> None:
        """Closes the connection."""
        self._stream.close()

    async def __aenter__(self) -> AsyncPortConnection:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        await self.close()
