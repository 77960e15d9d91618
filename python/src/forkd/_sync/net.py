"""Connections on blocking sockets. The asyncio counterpart is ``_async/net.py``; the layers above are written once."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import threading
import time
from typing import Any, Callable, List, Optional, Union

from .._deadline import Deadline
from .._target import Target, refuse_foreign_folder

_MAX_READ = 256 * 1024


class Stream:
    """One connection. Each read and write is bounded by a deadline."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        #: Whether the connection has already served a request
        self.was_used = False

    @classmethod
    def open(cls, target: Target, context: Optional[ssl.SSLContext], deadline: Deadline) -> Stream:
        """Connects, with TLS for an https target."""
        try:
            return cls(_connect(target, context, deadline))
        except socket.timeout:
            raise deadline.error() from None

    def read(self, deadline: Deadline) -> bytes:
        """At least one byte; empty when the other side closed."""
        self._socket.settimeout(deadline.remaining())
        try:
            return self._socket.recv(_MAX_READ)
        except socket.timeout:
            raise deadline.error() from None

    def write(self, data: Union[bytes, memoryview], deadline: Deadline) -> bool:
        """False: an answer arrived before everything was sent, so the rest need not be sent."""
        view = memoryview(data)
        while view:
            remaining = deadline.remaining()
            self._socket.settimeout(remaining)
            try:
                # With TLS, readable bytes may be a TLS record without an answer.
                if not isinstance(self._socket, ssl.SSLSocket) and _poll(self._socket, remaining, is_writing=True):
                    return False
                view = view[self._socket.send(view) :]
            except socket.timeout:
                raise deadline.error() from None
        return True

    def write_all(self, data: bytes, deadline: Deadline) -> None:
        """Writes all of it, also when an answer arrives meanwhile."""
        self._socket.settimeout(deadline.remaining())
        try:
            self._socket.sendall(data)
        except socket.timeout:
            raise deadline.error() from None

    def end(self) -> None:
        """Closes the write direction; reading continues. Not possible with TLS."""
        if isinstance(self._socket, ssl.SSLSocket):
            raise NotImplementedError("TLS ends both directions at once")
        self._socket.shutdown(socket.SHUT_WR)

    def be_duplex(self) -> None:
        """After this call each direction is closed separately, which sockets always allow."""

    def has_input(self) -> bool:
        """Whether data arrived, or the other side closed."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0:
            return True
        return _poll(self._socket, 0, is_writing=False)

    def close(self) -> None:
        # Without shutdown, a thread that reads from the socket would keep waiting.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __del__(self) -> None:
        # A controller need not be closed: its idle connections must not raise ResourceWarning.
        self._socket.close()


class Pool:
    """Idle connections, shared by all threads."""

    def __init__(self) -> None:
        self._reset()

    def take(self) -> Optional[Stream]:
        if self._pid != os.getpid():
            # After os.fork the connections belong to the parent: two processes would mix their requests.
            self._reset()
        with self._lock:
            while self._idle:
                stream = self._idle.pop()
                if not stream.has_input():
                    return stream
                stream.close()
            return None

    def put(self, stream: Stream) -> None:
        with self._lock:
            self._idle.append(stream)

    def close(self) -> None:
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._idle: List[Stream] = []
        self._pid = os.getpid()


class Background:
    """Background work. It must not raise."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Returns when the work is done."""
        self._thread.join()


#: Mutual exclusion
Lock = threading.Lock


def sleep(secs: float, deadline: Deadline) -> None:
    """Sleeps, but not past the deadline."""
    remaining = deadline.remaining()
    time.sleep(secs if remaining is None else min(secs, remaining))
    deadline.remaining()


def settle() -> None:
    """A socket receives data without help; asyncio needs this step."""


def notify(listener: Optional[Callable[[Any], Any]], value: object) -> None:
    """Calls a caller's function."""
    if listener is not None:
        listener(value)


def _connect(target: Target, context: Optional[ssl.SSLContext], deadline: Deadline) -> socket.socket:
    if target.socket is not None:
        if not hasattr(socket, "AF_UNIX"):
            raise OSError("this system has no Unix sockets")
        refuse_foreign_folder(target)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(deadline.remaining())
            sock.connect(target.socket)
        except BaseException:
            sock.close()
            raise
        return sock
    sock = socket.create_connection((target.host, target.port), deadline.remaining())
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not target.is_tls:
            return sock
        return (context or ssl.create_default_context()).wrap_socket(sock, server_hostname=target.host)
    except BaseException:
        sock.close()
        raise


def _poll(sock: socket.socket, secs: Optional[float], *, is_writing: bool) -> bool:
    """Whether the socket is readable; when writing, waits until it is readable or writable."""
    if not hasattr(select, "poll"):  # Windows
        readable, writable, _ = select.select([sock], [sock] if is_writing else [], [], secs)
    else:
        poll = select.poll()
        poll.register(sock, select.POLLIN | (select.POLLOUT if is_writing else 0))
        events = [event for _, event in poll.poll(None if secs is None else secs * 1000)]
        readable = [sock for event in events if event & ~select.POLLOUT]
        writable = [sock for event in events if event & select.POLLOUT]
    if is_writing and not readable and not writable:
        raise socket.timeout
    return len(readable) > 0
