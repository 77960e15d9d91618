"""Iteration over items that arrive several at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from typing import AsyncIterator, Deque, Optional, TypeVar

from ..errors import ForkdError

T = TypeVar("T")


class AsyncBuffered(AsyncIterator[T]):
    """First all items that have arrived, then the failure, then the end."""

    def __init__(self) -> None:
        self._pending: Deque[T] = deque()
        #: Raised once, after the items that arrived before it
        self._failure: Optional[ForkdError] = None
        self._is_over = False

    async def __anext__(self) -> T:
        while not self._pending:
            self._raise_failure()
            if self._is_over:
                raise StopAsyncIteration
            await self._fill()
        return self._pending.popleft()

    @abstractmethod
    async def _fill(self) -> None:
        """Waits for items, a failure or the end."""

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
