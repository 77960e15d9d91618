"""A real HTTP server in its own thread. It accepts only requests that spec/openapi.json allows, and answers with samples."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import ssl
import tempfile
import threading
from dataclasses import dataclass
from typing import Any, Awaitable, Callable, Dict, List, Optional, Set
from urllib.parse import urlsplit

from . import spec
from .patience import patience


@dataclass
class Seen:
    """One request."""

    route: str
    params: Dict[str, str]
    query: Dict[str, Any]
    body: Any
    headers: Dict[str, str]
    url: str


#: Answers the request and returns True, or returns False for a sample; the number counts the requests of that route
Override = Callable[[Seen, "Reply", int], Awaitable[Optional[bool]]]


class Reply:
    """The answer to one request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._is_chunked = False
        self.extra: Dict[str, str] = {}

    async def send(self, status: int, kind: str = "", body: bytes = b"", **headers: str) -> bool:
        """Sends a complete answer."""
        await self.head(status, kind, **{"content-length": str(len(body))}, **headers)
        self._writer.write(body)
        await self._writer.drain()
        return True

    async def problem(self, status: int, code: str, message: str = "No.", **more: Any) -> bool:
        body = {"error": message, "code": code, "hint": "Do something.", "request_id": "req-1", **more}
        return await self.send(status, "application/json", json.dumps(body).encode())

    async def head(self, status: int, kind: str = "", **headers: str) -> None:
        """Without a length, the body is chunked."""
        fields = {"x-request-id": "req-1", **({"content-type": kind} if kind else {}), **self.extra, **headers}
        if not {"content-length", "transfer-encoding"} & set(fields):
            self._is_chunked = True
            fields["transfer-encoding"] = "chunked"
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in fields.items())]
        self._writer.write("\r\n".join([*lines, "", ""]).encode())
        await self._writer.drain()

    async def chunk(self, data: bytes) -> None:
        self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self._writer.drain()

    async def end(self) -> bool:
        await self.chunk(b"")
        return True

    async def fail(self, **problem: str) -> bool:
        """Ends a body early, with the reason in a trailer."""
        self._writer.write(f"0\r\nx-forkd-problem: {json.dumps(problem)}\r\n\r\n".encode())
        await self._writer.drain()
        return True

    async def raw(self, data: bytes) -> None:
        """Sends raw bytes."""
        self._writer.write(data)
        await self._writer.drain()

    async def take(self) -> bytes:
        """Bytes after the request; empty when the client has closed its direction."""
        return await self._reader.read(65536)

    def destroy_later(self) -> bool:
        """Returns when everything was sent."""
        self._writer.close()
        return True

    def destroy(self) -> bool:
        self._writer.transport.abort()
        return True

    async def closed(self) -> None:
        """Returns when the client has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(1):
                pass


class FakeDaemon:
    """``socket`` and ``url`` are its addresses; the end of a ``with`` block stops it."""

    def __init__(self, override: Optional[Override] = None, ssl_context: Optional[ssl.SSLContext] = None) -> None:
        self.seen: List[Seen] = []
        self.connections = 0
        self.errors: List[BaseException] = []
        self._override = override
        self._ssl_context = ssl_context
        self._folder = tempfile.mkdtemp(prefix="forkd-py-")
        self.socket = f"{self._folder}/forkd.sock"
        self.url = ""
        self._writers: Set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> FakeDaemon:
        self._thread.start()
        assert self._started.wait(patience())
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(patience())
        shutil.rmtree(self._folder)
        for error in self.errors:
            raise error

    @property
    def last(self) -> Seen:
        return self.seen[-1]

    @property
    def names(self) -> List[str]:
        return [seen.route for seen in self.seen]

    def cut(self) -> None:
        """Closes every connection, as a daemon that stops does."""
        done = threading.Event()

        def abort() -> None:
            for writer in list(self._writers):
                writer.transport.abort()
            # after the callbacks that close the sockets
            self._loop.call_soon(done.set)

        self._loop.call_soon_threadsafe(abort)
        assert done.wait(patience())

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        servers = self._loop.run_until_complete(self._listen())
        self._started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._end(servers))
        self._loop.close()

    async def _end(self, servers: List[asyncio.AbstractServer]) -> None:
        await _turns()  # connections that were accepted meanwhile
        for server in servers:
            server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await _turns()  # the loop closes aborted connections in its next iteration

    async def _listen(self) -> List[asyncio.AbstractServer]:
        unix = await asyncio.start_unix_server(self._serve, self.socket, limit=1 << 26)
        tcp = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 26, ssl=self._ssl_context)
        scheme, host = ("http", "127.0.0.1") if self._ssl_context is None else ("https", "localhost")
        self.url = f"{scheme}://{host}:{tcp.sockets[0].getsockname()[1]}"
        return [unix, tcp]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                await self._one(reader, writer)
        self._writers.discard(writer)
        writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await _read_body(reader, headers)
        reply = Reply(reader, writer)
        try:
            found = spec.find(method, urlsplit(target).path)
            if found is None:
                await reply.problem(404, "NOT_FOUND", f"No route {method} {target}.")
                return
            route, params = found
            seen = Seen(route.name, params, spec.query_of(route, urlsplit(target).query), _parse(route, headers, body), headers, target)
        except ValueError as error:
            await reply.problem(400, "BAD_REQUEST", str(error))
            return
        self.seen.append(seen)
        if self._override is not None:
            try:
                if await self._override(seen, reply, self.names.count(route.name)):
                    return
            except AssertionError as error:
                self.errors.append(error)
                writer.transport.abort()
                raise ConnectionError from error
        await reply.send(*route.answer())


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def _read_body(reader: asyncio.StreamReader, headers: Dict[str, str]) -> bytes:
    if headers.get("transfer-encoding") == "chunked":
        pieces: List[bytes] = []
        while True:
            size = int((await reader.readuntil(b"\r\n")).strip(), 16)
            piece = await reader.readexactly(size + 2)
            if size == 0:
                return b"".join(pieces)
            pieces.append(piece[:-2])
    return await reader.readexactly(int(headers.get("content-length", "0")))


def _parse(route: spec.Route, headers: Dict[str, str], body: bytes) -> Any:
    if route.takes_bytes:
        return body
    if route.body_schema is None:
        if body:
            raise ValueError(f"{route.name} takes no body")
        return None
    if not body and "content-type" not in headers:
        return {}
    if headers.get("content-type") != "application/json":
        raise ValueError("not JSON")
    value = json.loads(body)
    found = spec.problems(route.body_schema, value)
    if found:
        raise ValueError(f"{route.name}: {'; '.join(found)}")
    return value
