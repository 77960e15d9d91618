"""A watch on files of a sandbox."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Any, Callable, Deque, Dict, List, Optional, Type

from .._call import Call
from .._streams import EventDecoder
from .._wire import bad_answer, parse_json
from ..errors import ForkdError, error_of_problem
from ..results import FileChange
from .answer import Answer
from .client import Client
from .net import Background, notify, settle

#: The daemon says something more often than this, even when nothing happens
_SILENCE_SECS = 60.0


class AsyncWatchHandle:
    """Changes of files, to be iterated once. It ends when it is stopped, which any thread may do, or when the watched path itself
    is gone; a connection that breaks is an error, because what happened meanwhile is not known."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._decoder = EventDecoder()
        self._pending: Deque[FileChange] = deque()
        self._failure: Optional[ForkdError] = None
        self._is_ready = False
        self._is_over = False
        self._reader: Optional[Background] = None

    @classmethod
    async def open(cls, client: Client, at: str, query: Dict[str, Any]) -> AsyncWatchHandle:
        """Returns when the guest watches."""
        call = Call[bytes]("GET", at, query=query, headers={"accept": "text/event-stream"}, timeout=_SILENCE_SECS)
        watch = cls(await client.open(call))
        while not watch._is_ready:
            if watch._failure is not None:
                raise watch._failure
            if watch._is_over:
                raise bad_answer("The watch ended before it began.")
            await watch._fill()
        return watch

    def __aiter__(self) -> AsyncWatchHandle:
        return self

    async def __anext__(self) -> FileChange:
        while not self._pending:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self._is_over:
                raise StopAsyncIteration
            await self._fill()
        return self._pending.popleft()

    async def get_new_events(self) -> List[FileChange]:
        """What has changed since this was asked last, without waiting."""
        await settle()
        while not self._is_over and self._answer.has_input():
            await self._fill()
            await settle()
        if self._failure is not None and not self._pending:
            failure, self._failure = self._failure, None
            raise failure
        changes = list(self._pending)
        self._pending.clear()
        return changes

    async def stop(self) -> None:
        """Ends it; an iteration that waits ends without an error."""
        self._is_over = True
        self._answer.close()

    async def __aenter__(self) -> AsyncWatchHandle:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        await self.stop()

    def _tell_beside(self, on_event: Callable[[FileChange], Any], on_exit: Optional[Callable[[Optional[Exception]], Any]]) -> None:
        """Tells every change, beside whatever else is done, and at last why it ended."""

        async def tell() -> None:
            failure: Optional[Exception] = None
            try:
                async for change in self:
                    await notify(on_event, change)
            except Exception as error:  # noqa: BLE001 -- it is told
                failure = error
            finally:
                await self.stop()
            await notify(on_exit, failure)

        self._reader = Background(tell)

    async def _fill(self) -> None:
        try:
            piece = await self._answer.read_within(is_endless=False)
            for event in self._decoder.feed(piece):
                self._take(parse_json(event.data))
            self._is_over = self._is_over or not piece
        except ForkdError as error:
            if not self._is_over:
                self._failure = error
                self._is_over = True
                self._answer.close()

    def _take(self, event: Dict[str, Any]) -> None:
        if event["type"] == "ready":
            self._is_ready = True
        elif event["type"] == "error":
            raise error_of_problem({"error": "The watch ended.", **event.get("problem", {})}, {})
        else:
            self._pending.append(
                FileChange(event["type"], event.get("path", ""), event.get("from"), is_directory=event.get("directory", False))
            )
