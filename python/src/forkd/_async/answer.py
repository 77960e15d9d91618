"""An HTTP answer whose head was received, and the error of a body that breaks off."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from .._call import Call, Origin
from .._deadline import Deadline
from .._http import AnswerDecoder, BrokenConnection
from .._retry import connection_error
from .._wire import parse_json
from ..errors import ErrorContext, ForkdError, error_of_problem
from .net import Pool, Stream


class Answer:
    def __init__(self, stream: Stream, decoder: AnswerDecoder, pool: Optional[Pool], origin: Origin, deadline: Deadline) -> None:
        self._stream = stream
        self._decoder = decoder
        #: None: the connection cannot be reused
        self._pool = pool
        self._origin = origin
        self._deadline = deadline
        self._is_over = False

    @property
    def status(self) -> int:
        return self._decoder.status

    @property
    def headers(self) -> Dict[str, str]:
        """Keys are in lower case."""
        return self._decoder.headers

    @property
    def raw_headers(self) -> List[Tuple[str, str]]:
        return self._decoder.raw_headers

    def header(self, name: str) -> Optional[str]:
        return self._decoder.headers.get(name)

    def is_success(self, call: Call[Any]) -> bool:
        """Whether the status is one that the call accepts."""
        if call.is_proxied:
            return self.header("x-forkd-error") is None
        if call.is_upgrade:
            return self.status == 101
        return 200 <= self.status < 300 or self.status in call.answers

    @property
    def context(self) -> ErrorContext:
        """Request line for error messages."""
        try:
            retry_after: Optional[float] = float(self.header("retry-after") or "")
        except ValueError:
            retry_after = None
        return {**self._origin.context, "request_id": self.header("x-request-id") or "", "retry_after_secs": retry_after}

    async def read(self) -> bytes:
        """The next piece of the body; empty at its end, when the connection returns to the pool."""
        if self._is_over:
            return b""
        try:
            piece = self._decoder.read_body()
            while piece is None:
                self._decoder.feed(await self._stream.read(self._deadline))
                piece = self._decoder.read_body()
        except BaseException as error:
            self.close()
            if isinstance(error, (OSError, BrokenConnection)) and not isinstance(error, ForkdError):
                raise self.broken(error) from error
            raise
        if not piece:
            self._finish()
        return piece

    async def text(self) -> str:
        pieces: List[bytes] = []
        while True:
            piece = await self.read()
            if not piece:
                return b"".join(pieces).decode("utf-8", "replace")
            pieces.append(piece)

    async def read_within(self, is_endless: bool) -> bytes:
        """The next piece. Waits without a limit, or for the longest silence that the call allows."""
        if is_endless:
            self._deadline.pause()
        else:
            self._deadline.restart()
        return await self.read()

    def has_input(self) -> bool:
        """Whether a read would not block."""
        return not self._is_over and self._stream.has_input()

    def detach(self) -> Tuple[Stream, bytes]:
        """The connection itself, after an upgrade, and the bytes already received on it."""
        self._is_over = True
        return self._stream, self._decoder.read_body() or b""

    def close(self) -> None:
        """Closes the answer, complete or not."""
        if not self._is_over:
            self._is_over = True
            self._stream.close()

    def _finish(self) -> None:
        self._is_over = True
        if self._pool is not None and self._decoder.is_complete and self._decoder.can_reuse:
            self._stream.was_used = True
            self._pool.put(self._stream)
        else:
            self._stream.close()
        # Why a streamed body is incomplete.
        problem = self._decoder.trailers.get("x-forkd-problem")
        if problem is not None:
            raise error_of_problem(parse_json(problem), self.context)

    def broken(self, cause: BaseException) -> ForkdError:
        return connection_error("The connection to the daemon broke", self._origin.base, cause, self._origin.context)
