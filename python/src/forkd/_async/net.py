"""Connections on asyncio. The blocking counterpart is ``_sync/net.py``; the layers above are written once."""

from __future__ import annotations

import asyncio
import inspect
import ssl
import sys
import weakref
from typing import Any, Callable, Coroutine, Dict, List, Optional, Union

from .._deadline import Deadline
from .._target import Target, refuse_foreign_folder

#: Limit of buffered bytes; beyond it the transport is paused
_MAX_AHEAD = 256 * 1024


class Stream:
    """One connection. Each read and write is bounded by a deadline."""

    def __init__(self, protocol: _Protocol, transport: asyncio.Transport) -> None:
        self._protocol = protocol
        self._transport = transport
        #: Whether the connection has already served a request
        self.was_used = False

    @classmethod
    async def open(cls, target: Target, context: Optional[ssl.SSLContext], deadline: Deadline) -> Stream:
        """Connects, with TLS for an https target."""
        remaining = deadline.remaining()
        try:
            transport, protocol = await asyncio.wait_for(_connect(target, context), remaining)
        except asyncio.TimeoutError:
            raise deadline.error() from None
        return cls(protocol, transport)

    async def read(self, deadline: Deadline) -> bytes:
        """At least one byte; empty when the other side closed."""
        protocol = self._protocol
        if not protocol.buffer and not protocol.is_lost:
            await self._wait(protocol.wait_readable, deadline)
        return protocol.take()

    async def write(self, data: Union[bytes, memoryview], deadline: Deadline) -> bool:
        """False: an answer arrived before everything was sent, so the rest need not be sent."""
        protocol = self._protocol
        if not protocol.is_lost and not protocol.buffer:
            self._transport.write(data)
            await self._wait(protocol.wait_writable, deadline)
        if protocol.is_lost and not protocol.buffer:
            raise protocol.error or BrokenPipeError("the connection was closed")
        return not protocol.buffer

    async def write_all(self, data: bytes, deadline: Deadline) -> None:
        """Writes all of it, also when an answer arrives meanwhile."""
        protocol = self._protocol
        if not protocol.is_gone:
            self._transport.write(data)
            await self._wait(protocol.wait_drained, deadline)
        if protocol.is_gone:
            raise protocol.error or BrokenPipeError("the connection was closed")

    def end(self) -> None:
        """Closes the write direction; reading continues. Not possible with TLS."""
        self._transport.write_eof()

    def be_duplex(self) -> None:
        """After this call each direction is closed separately."""
        self._protocol.is_duplex = True

    def has_input(self) -> bool:
        """Whether data arrived, or the other side closed."""
        return bool(self._protocol.buffer) or self._protocol.is_lost

    def close(self) -> None:
        if not self._protocol.loop.is_closed():
            self._transport.abort()

    async def _wait(self, wait: Callable[[], Any], deadline: Deadline) -> None:
        remaining = deadline.remaining()
        if remaining is None:
            await wait()
            return
        timer = self._protocol.loop.call_later(remaining, self._transport.abort)
        try:
            await wait()
        finally:
            timer.cancel()
        if self._protocol.is_gone:
            deadline.remaining()  # raises when the deadline's timer closed the connection


class _Protocol(asyncio.Protocol):
    """Buffers received data until it is read, and wakes the reader."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.buffer = bytearray()
        #: The read direction has ended
        self.is_lost = False
        #: The write direction has ended as well
        self.is_gone = False
        #: Whether the other side may close its direction while this one stays open
        self.is_duplex = False
        self.error: Optional[Exception] = None
        self._transport: Optional[asyncio.Transport] = None
        self._is_reading = True
        self._is_writing = True
        #: At most one reader and one writer
        self._waiters: List[asyncio.Future[None]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self._is_reading and len(self.buffer) > _MAX_AHEAD and self._transport is not None:
            self._is_reading = False
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self.is_lost = True
        self._wake()
        return self.is_duplex

    def connection_lost(self, error: Optional[Exception]) -> None:
        self.is_lost = self.is_gone = True
        self.error = error
        self._wake()

    def pause_writing(self) -> None:
        self._is_writing = False

    def resume_writing(self) -> None:
        self._is_writing = True
        self._wake()

    def take(self) -> bytes:
        if not self.buffer and self.error is not None:
            raise self.error
        data = bytes(self.buffer)
        self.buffer.clear()
        if not self._is_reading and self._transport is not None and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()
        return data

    async def wait_readable(self) -> None:
        while not self.buffer and not self.is_lost:
            await self._sleep()

    async def wait_writable(self) -> None:
        while not self._is_writing and not self.is_lost and not self.buffer:
            await self._sleep()

    async def wait_drained(self) -> None:
        while not self._is_writing and not self.is_gone:
            await self._sleep()

    async def _sleep(self) -> None:
        waiter = self.loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class Pool:
    """Idle connections, per event loop."""

    def __init__(self) -> None:
        self._idle: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, List[Stream]] = weakref.WeakKeyDictionary()

    def take(self) -> Optional[Stream]:
        idle = self._idle.get(asyncio.get_running_loop(), [])
        while idle:
            stream = idle.pop()
            if not stream.has_input():
                return stream
            stream.close()
        return None

    def put(self, stream: Stream) -> None:
        self._idle.setdefault(asyncio.get_running_loop(), []).append(stream)

    def close(self) -> None:
        for idle in list(self._idle.values()):
            while idle:
                idle.pop().close()


class Background:
    """Background work. It must not raise."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = asyncio.get_running_loop().create_task(work())

    async def join(self) -> None:
        """Returns when the work is done; cancelling the wait does not cancel the work."""
        await asyncio.wait([self._task])


#: Mutual exclusion
Lock = asyncio.Lock


async def sleep(secs: float, deadline: Deadline) -> None:
    """Sleeps, but not past the deadline."""
    remaining = deadline.remaining()
    await asyncio.sleep(secs if remaining is None else min(secs, remaining))
    deadline.remaining()


async def settle() -> None:
    """Lets the event loop receive pending data: it polls in one iteration and reads in the next."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def notify(listener: Optional[Callable[[Any], Any]], value: object) -> None:
    """Calls a caller's function; the result of a coroutine function is awaited."""
    if listener is not None:
        result = listener(value)
        if inspect.isawaitable(result):
            await result


async def _connect(target: Target, context: Optional[ssl.SSLContext]) -> Any:
    loop = asyncio.get_running_loop()
    if target.socket is not None:
        if sys.platform == "win32":
            raise OSError("asyncio has no Unix sockets on Windows")
        refuse_foreign_folder(target)
        return await loop.create_unix_connection(_Protocol, target.socket)
    options: Dict[str, Any] = {"ssl": context or ssl.create_default_context(), "server_hostname": target.host} if target.is_tls else {}
    return await loop.create_connection(_Protocol, target.host, target.port, **options)
