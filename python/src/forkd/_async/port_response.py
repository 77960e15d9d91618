"""The answer of a server in a guest."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, AsyncGenerator, Dict, List, Optional, Tuple, Type

from .answer import Answer


class AsyncPortResponse:
    """An answer whose body is read on demand: ``read``, ``text`` and ``json`` return all of it, an iteration yields it in pieces. It
    occupies a connection until the body was read completely, or the response is closed.

    Attributes:
        status: The server's status, also when it is an error.
        headers: Keys are in lower case.
        raw_headers: As received, in order.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._body: Optional[bytes] = None
        self.status: int = answer.status
        self.headers: Dict[str, str] = answer.headers
        self.raw_headers: List[Tuple[str, str]] = answer.raw_headers

    async def read(self) -> bytes:
        """The whole body."""
        if self._body is None:
            pieces: List[bytes] = []
            async for piece in self.__aiter__():
                pieces.append(piece)
            self._body = b"".join(pieces)
        return self._body

    async def text(self) -> str:
        """The whole body as UTF-8."""
        return (await self.read()).decode("utf-8", "replace")

    async def json(self) -> Any:
        """The whole body as JSON.

        Raises:
            ValueError: the body is not JSON
        """
        return json.loads(await self.read())

    async def close(self) -> None:
        """Discards the rest of the body and frees the connection."""
        self._answer.close()

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        while True:
            piece = await self._answer.read_within(is_endless=False)
            if not piece:
                return
            yield piece

    async def __aenter__(self) -> AsyncPortResponse:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        await self.close()
