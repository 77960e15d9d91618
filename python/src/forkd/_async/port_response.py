"""What a server in a guest answers."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, AsyncGenerator, Dict, List, Optional, Tuple, Type

from .answer import Answer


class AsyncPortResponse:
    """An answer whose body is read when somebody asks for it: ``read``, ``text`` and ``json`` give all of it, an iteration gives it
    bit by bit. Until its end was read, or it is closed, it has a connection of its own.

    Attributes:
        status: The server's own, whatever it means.
        headers: By their names in small letters.
        raw_headers: As they came, in their order.
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
            ValueError: it is none
        """
        return json.loads(await self.read())

    async def close(self) -> None:
        """Lets go of what was not read."""
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
