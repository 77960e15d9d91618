"""The output of a process, resumed at its cursor after each lost connection."""

from __future__ import annotations

import base64
import re
from typing import Any, Callable, Dict, Optional

from .._call import Call
from .._deadline import Deadline
from .._streams import EventDecoder, ServerEvent
from .._wire import bad_answer, parse_json
from ..errors import ConnectionError, ForkdError, InvalidRequestError, TimeoutError, error_of_problem
from ..results import ProcessEvent
from .answer import Answer
from .buffered import AsyncBuffered
from .client import Client
from .net import sleep

_MIN_WAIT_SECS = 0.1
_MAX_WAIT_SECS = 3.0
#: Connections in a row without an event of the process: about ten seconds, enough to restart a daemon
_MAX_TRIES = 8
#: The daemon sends keep-alives more often than this
_SILENCE_SECS = 60.0


class AsyncProcessEvents(AsyncBuffered[ProcessEvent]):
    """Events of a process, until it ends or the iteration is closed, which any thread may do.

    Args:
        call: The first request.
        path_of: Path of later requests, from the id of the process.
    """

    def __init__(self, client: Client, call: Call[bytes], path_of: Callable[[str], str]) -> None:
        super().__init__()
        self._client = client
        self._call = call
        self._path_of = path_of
        self._is_known = False
        self._answer: Optional[Answer] = None
        self._decoder = EventDecoder()
        self._tries = 0

    async def aclose(self) -> None:
        """Ends the iteration; the process continues."""
        self._is_over = True
        if self._answer is not None:
            self._answer.close()

    async def _fill(self) -> None:
        """Reads the next events; opens another connection when this one has ended."""
        failure: Optional[ForkdError] = None
        try:
            if self._answer is None:
                self._decoder = EventDecoder()
                self._answer = await self._client.open(self._call)
            piece = b"" if self._is_over else await self._answer.read_within(is_endless=False)
            for event in self._decoder.feed(piece):
                self._take(event)
            # Without follow, the end of the answer is the end of the iteration.
            self._is_over = self._is_over or (not piece and self._is_known and self._call.query.get("follow") == "false")
            if piece and not self._is_over:
                return
        except ForkdError as error:
            failure = error
        if not self._is_over:
            await self._pause(failure)
        if self._is_over and self._answer is not None:
            self._answer.close()

    async def _pause(self, failure: Optional[ForkdError]) -> None:
        """Waits before the next connection, or ends the iteration with the failure. A stream without an exit event: the daemon stopped."""
        if self._answer is not None:
            self._answer.close()
            self._answer = None
        self._tries += 1
        is_lasting = self._tries > _MAX_TRIES
        if is_lasting or (failure is not None and (not self._is_known or not _can_return(failure))):
            self._is_over = True
            message = "The daemon repeatedly ends the stream of the process."
            self._failure = failure or ConnectionError(message, "DAEMON_UNREACHABLE")
            return
        await sleep(min(_MIN_WAIT_SECS * 2 ** (self._tries - 1), _MAX_WAIT_SECS), Deadline("", 0))

    def _take(self, server_event: ServerEvent) -> None:
        event = _event_of(server_event)
        self._tries = 0
        path = self._call.path
        is_again = event.started is not None and self._is_known
        if event.started is not None:
            self._is_known = True
            path = self._path_of(str(event.started["id"]))
        query = {"encoding": "base64", "follow": self._call.query.get("follow")}
        headers = {"accept": "text/event-stream", "last-event-id": event.cursor}
        self._call = Call[bytes]("GET", path, query=query, headers=headers, timeout=_SILENCE_SECS)
        if not is_again:
            self._pending.append(event)
        self._is_over = self._is_over or event.exit is not None


def process_call(method: str, path: str, query: Dict[str, Any], body: Optional[Dict[str, Any]] = None) -> Call[bytes]:
    """The first request."""
    query = {**query, "encoding": "base64"}
    return Call[bytes](method, path, query=query, json=body, headers={"accept": "text/event-stream"}, timeout=_SILENCE_SECS)


def place_of(from_: str) -> Dict[str, str]:
    """The start position as a query parameter."""
    if from_ == "start":
        return {}
    if from_ == "now":
        return {"stdout_from": "now", "stderr_from": "now"}
    match = re.fullmatch(r"(\d+)-(\d+)", from_)
    if match is None:
        raise InvalidRequestError(
            f"{from_!r} is not a position in the output of a process.",
            "BAD_REQUEST",
            hint='Use "start", "now", or the cursor of a command.',
        )
    return {"stdout_from": match.group(1), "stderr_from": match.group(2)}


def _event_of(event: ServerEvent) -> ProcessEvent:
    data = parse_json(event.data)
    cursor = event.id or ""
    if event.type == "stdout":
        return ProcessEvent("stdout", cursor, data=base64.b64decode(data["base64"]), offset=data["offset"])
    if event.type == "stderr":
        return ProcessEvent("stderr", cursor, data=base64.b64decode(data["base64"]), offset=data["offset"])
    if event.type == "started":
        return ProcessEvent("started", cursor, started=data)
    if event.type == "lost":
        return ProcessEvent("lost", cursor, lost=data)
    if event.type == "exit":
        return ProcessEvent("exit", cursor, exit=data)
    if event.type == "error":
        raise error_of_problem(data, {})
    raise bad_answer(f"A process has no event of the type {event.type!r}.")


def _can_return(error: ForkdError) -> bool:
    return isinstance(error, (ConnectionError, TimeoutError)) or error.status == 503
