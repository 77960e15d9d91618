"""A watch on files of a sandbox."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Type

from .._call import Call
from .._streams import EventDecoder
from .._wire import bad_answer, parse_json
from ..errors import ForkdError, error_of_problem
from ..results import FileChange
from .answer import Answer
from .buffered import AsyncBuffered
from .client import Client
from .net import Background, notify, settle

#: The daemon sends keep-alives more often than this
_SILENCE_SECS = 60.0


class AsyncWatchHandle(AsyncBuffered[FileChange]):
    """Changes of files, to be iterated once. The watch ends when it is stopped, which any thread may do, or when the watched path is
    removed. A lost connection is an error, because changes may have been missed."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._answer = answer
        self._decoder = EventDecoder()
        self._is_ready = False
        self._reader: Optional[Background] = None

    @classmethod
    async def open(cls, client: Client, at: str, query: Dict[str, Any]) -> AsyncWatchHandle:
        """Returns when the guest watches."""
        call = Call[bytes]("GET", at, query=query, headers={"accept": "text/event-stream"}, timeout=_SILENCE_SECS)
        watch = cls(await client.open(call))
        while not watch._is_ready:
            watch._raise_failure()
            if watch._is_over:
                raise bad_answer("The watch ended before it began.")
            await watch._fill()
        return watch

    async def get_new_events(self) -> List[FileChange]:
        """Changes since the previous call, without waiting."""
        await settle()
        while not self._is_over and self._answer.has_input():
            await self._fill()
            await settle()
        if not self._pending:
            self._raise_failure()
        changes = list(self._pending)
        self._pending.clear()
        return changes

    async def stop(self) -> None:
        """Ends the watch; a waiting iteration ends without an error."""
        self._is_over = True
        self._answer.close()

    async def __aenter__(self) -> AsyncWatchHandle:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        await self.stop()

    def _tell_beside(self, on_event: Callable[[FileChange], Any], on_exit: Optional[Callable[[Optional[Exception]], Any]]) -> None:
        """Calls the functions with each change in the background, and at the end with the reason."""

        async def tell() -> None:
            failure: Optional[Exception] = None
            try:
                async for change in self:
                    await notify(on_event, change)
            except Exception as error:  # noqa: BLE001 -- on_exit gets it
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
