"""One call: sends it, repeats it where that is safe, bounds its time, and decodes its answer or error."""

from __future__ import annotations

import re
import ssl
from typing import Any, AsyncGenerator, Awaitable, Callable, Dict, Optional, TypeVar

from .._call import Call, Origin
from .._deadline import Deadline
from .._http import AnswerDecoder, BrokenConnection, ClosedEarly, StaleConnection, encode_chunk, encode_head
from .._retry import RETRY_SECS, connection_error, is_transient, retry_delay
from .._streams import LineDecoder
from .._target import resolve_project, resolve_store, resolve_target, resolve_token
from .._version import __version__
from .._wire import Page, SourceFailed, dump_json, parse_json, query_string
from ..errors import ConnectionError, ForkdError, InvalidRequestError, NotFoundError, error_of_answer, error_of_problem
from ..types import Progress
from .answer import Answer
from .net import Pool, Stream, notify, sleep
from .upload import PIECE_BYTES, is_stream, pieces_of

A = TypeVar("A")
T = TypeVar("T")

#: Called with each progress message of long work
ProgressListener = Callable[[Progress], Any]


class Client:
    def __init__(
        self,
        url: Optional[str],
        token: Optional[str],
        timeout: float,
        socket: Optional[str],
        retries: Optional[int],
        ssl_context: Optional[ssl.SSLContext],
        project: Optional[str] = None,
    ) -> None:
        self._target = resolve_target(url, socket)
        self._token = resolve_token(token)
        self._store = resolve_store(self._target)
        self._project = resolve_project(project)
        self._retries = len(RETRY_SECS) if retries is None else retries
        self._ssl_context = ssl_context
        self._pool = Pool()
        #: Base address of requests, such as ``unix:///run/user/1000/forkd/forkd.sock``
        self.url = self._target.url
        self.timeout = timeout

    def close(self) -> None:
        self._pool.close()

    async def json(self, call: Call[A]) -> A:
        value: A = parse_json(await self.text(call))
        return value

    async def empty(self, call: Call[None]) -> None:
        await self.text(call)

    async def text(self, call: Call[Any]) -> str:
        async def read(answer: Optional[Answer]) -> str:
            return "" if answer is None else await answer.text()

        return await self._attempts(call, self._deadline(call), read)

    async def page(self, call: Call[A]) -> Page[A]:
        async def read(answer: Optional[Answer]) -> Page[A]:
            page: Page[A] = Page()
            if answer is not None:
                page.extend(parse_json(await answer.text()))
                page.next_cursor = answer.header("x-next-cursor")
            return page

        return await self._attempts(call, self._deadline(call), read)

    async def progress(self, call: Call[A], listener: Optional[ProgressListener]) -> A:
        """Long work. The answer is streamed line by line: progress is visible, and no proxy closes an idle connection."""

        async def read(answer: Optional[Answer]) -> A:
            assert answer is not None  # the call is not a removal
            if not (answer.header("content-type") or "").startswith("application/x-ndjson"):
                whole: A = parse_json(await answer.text())
                return whole
            lines = LineDecoder()
            while True:
                piece = await answer.read()
                for line in lines.feed(piece) if piece else lines.finish():
                    if line.strip() == "":
                        continue  # an empty line keeps the connection alive
                    message = parse_json(line)
                    if "progress" in message:
                        await notify(listener, message["progress"])
                    elif "error" in message:
                        raise error_of_problem(message["error"], answer.context)
                    elif "result" in message:
                        result: A = message["result"]
                        return result
                if not piece:
                    raise answer.broken(ClosedEarly("the answer ended without a result"))

        return await self._attempts(call, self._deadline(call), read)

    async def stream(
        self, call: Call[bytes], *, is_endless: bool = False, until: Optional[float] = None, on_open: Optional[Callable[[], None]] = None
    ) -> AsyncGenerator[bytes, None]:
        """Bytes as they arrive. The time-out bounds the wait for the answer and, unless the stream is endless, each silence after it."""

        answer = await self.open(call, until)
        try:
            if on_open is not None:
                on_open()
            while True:
                piece = await answer.read_within(is_endless)
                if not piece:
                    return
                yield piece
        finally:
            answer.close()

    async def open(self, call: Call[Any], until: Optional[float] = None) -> Answer:
        """An answer whose body the caller reads or closes."""

        async def read(answer: Optional[Answer]) -> Answer:
            assert answer is not None  # the call is not a removal
            return answer

        return await self._attempts(call, self._deadline(call, until), read)

    def _deadline(self, call: Call[Any], until: Optional[float] = None) -> Deadline:
        return Deadline(f"{call.method} {call.path}", self.timeout if call.timeout is None else call.timeout, until)

    async def _attempts(self, call: Call[Any], deadline: Deadline, read: Callable[[Optional[Answer]], Awaitable[T]]) -> T:
        """Reads the answer. None: the answer of a removal was lost, but the removal was done."""
        can_repeat = call.is_safe and (call.content is None or not is_stream(call.content))
        was_lost = False
        attempt = 0
        while True:
            answer: Optional[Answer] = None
            try:
                answer = await self._exchange(call, deadline)
                return await read(answer)
            except BaseException as error:
                if answer is not None:
                    answer.close()
                if not isinstance(error, ForkdError):
                    raise
                if was_lost and call.method == "DELETE" and (isinstance(error, NotFoundError) or error.code == "FILE_NOT_FOUND"):
                    return await read(None)
                if not can_repeat or attempt >= self._retries or not is_transient(error):
                    raise
                was_lost = was_lost or isinstance(error, ConnectionError)
                delay = retry_delay(error, attempt)
            await sleep(delay, deadline)
            attempt += 1

    async def _exchange(self, call: Call[Any], deadline: Deadline) -> Answer:
        origin = Origin(call.method, self.url, call.path + query_string(call.query))
        stream: Optional[Stream] = None
        answer: Optional[Answer] = None
        failure: Optional[BaseException] = None
        try:
            stream = self._pool.take() or await Stream.open(self._target, self._ssl_context, deadline)
            answer = await self._converse(stream, call, origin, deadline)
        except SourceFailed as error:
            failure = error.__cause__ or error
        except ForkdError:
            raise
        except (OSError, BrokenConnection) as error:
            raise connection_error("Cannot reach the daemon", self.url, error, origin.context) from error
        finally:
            if stream is not None and answer is None:
                stream.close()
        if answer is None:
            raise failure or AssertionError("neither an answer nor an error")
        if answer.is_success(call):
            return answer
        raise error_of_answer(answer.status, await answer.text(), answer.context)

    async def _converse(self, stream: Stream, call: Call[Any], origin: Origin, deadline: Deadline) -> Answer:
        decoder = AnswerDecoder(is_head=call.method == "HEAD", can_upgrade=call.is_upgrade)
        failure: Optional[OSError] = None
        is_sent = False
        try:
            try:
                is_sent = await self._send(stream, call, origin, deadline)
            except ForkdError:
                raise
            except OSError as error:
                failure = error  # the server may have answered before it closed the connection
            while not decoder.read_head():
                decoder.feed(await stream.read(deadline))
        except ForkdError:
            raise
        except (OSError, BrokenConnection) as error:
            if stream.was_used and not decoder.has_begun:
                raise StaleConnection("the connection was closed") from (failure or error)
            raise failure or error from None
        return Answer(stream, decoder, self._pool if is_sent else None, origin, deadline)

    async def _send(self, stream: Stream, call: Call[Any], origin: Origin, deadline: Deadline) -> bool:
        """False: the answer arrived before the request was sent completely."""
        headers = self._headers(call)
        target = self._target.prefix + origin.target
        if call.content is not None and is_stream(call.content):
            headers["transfer-encoding"] = "chunked"
            is_sent = await stream.write(encode_head(call.method, target, headers), deadline)
            async for piece in pieces_of(call.content):
                deadline.restart()
                if not is_sent:
                    return False
                if piece:
                    is_sent = await stream.write(encode_chunk(piece), deadline)
            return is_sent and await stream.write(encode_chunk(b""), deadline)
        body = _body_of(call)
        if body is not None or call.method in ("POST", "PUT", "PATCH"):
            headers["content-length"] = str(len(body or b""))
        view = memoryview(body or b"")
        is_sent = await stream.write(encode_head(call.method, target, headers) + view[:PIECE_BYTES], deadline)
        for start in range(PIECE_BYTES, len(view), PIECE_BYTES):
            is_sent = is_sent and await stream.write(view[start : start + PIECE_BYTES], deadline)
        return is_sent

    def _headers(self, call: Call[Any]) -> Dict[str, str]:
        headers = {"host": self._target.host_header, "user-agent": f"forkd-python/{__version__}"}
        if not call.is_proxied and not call.is_upgrade:
            headers["te"] = "trailers"
        if call.json is not None:
            headers["content-type"] = "application/json"
        elif call.content is not None and not call.is_proxied:
            headers["content-type"] = "application/octet-stream"
        if self._token is not None:
            # A request to a server in a guest keeps its own Authorization header.
            headers["x-forkd-token" if call.is_proxied else "authorization"] = self._token if call.is_proxied else f"Bearer {self._token}"
        if self._store is not None and not call.is_proxied:
            headers["x-forkd-store"] = self._store
        if self._project is not None:
            headers["x-forkd-project"] = self._project
        if call.idempotency_key is not None:
            headers["idempotency-key"] = call.idempotency_key
        headers.update(call.headers)
        for name, value in headers.items():
            if not re.fullmatch(r"[\x20-\x7e]*", value):
                raise InvalidRequestError(f"The header {name} cannot have this value.", "BAD_REQUEST", hint="Use plain letters and digits.")
        return headers


def _body_of(call: Call[Any]) -> Optional[bytes]:
    if call.json is not None:
        return dump_json(call.json)
    if isinstance(call.content, str):
        return call.content.encode()
    return None if call.content is None else bytes(call.content)
