"""The stream of events, resumed after each lost connection."""

from __future__ import annotations

from typing import AsyncGenerator, Dict, List, Optional

from .._call import Call
from .._deadline import Deadline, Elapsed, end_of
from .._streams import EventDecoder
from .._wire import joined, parse_json
from ..errors import ConnectionError, ForkdError, TimeoutError
from ..types import EventType, ForkdEvent
from .client import Client
from .net import sleep

_MIN_WAIT_SECS = 0.1
_MAX_WAIT_SECS = 5.0
#: The daemon sends keep-alives more often than this
_SILENCE_SECS = 60.0


async def events_of(
    client: Client, since: Optional[int], types: Optional[List[EventType]], sandbox: Optional[str], timeout: Optional[float]
) -> AsyncGenerator[ForkdEvent, None]:
    until = end_of(timeout)
    last_id = None if since is None else str(since)
    was_open = False
    wait = _MIN_WAIT_SECS

    def on_open() -> None:
        nonlocal was_open, wait
        was_open, wait = True, _MIN_WAIT_SECS

    while True:
        headers: Dict[str, str] = {"accept": "text/event-stream"}
        if was_open and last_id is not None:
            headers["last-event-id"] = last_id
        query = {"types": joined(types), "sandbox": sandbox, "since": None if was_open else since}
        call = Call[bytes]("GET", "/v1/events", query=query, headers=headers, timeout=_SILENCE_SECS)
        chunks = client.stream(call, until=until, on_open=on_open)
        decoder = EventDecoder()
        try:
            async for chunk in chunks:
                for event in decoder.feed(chunk):
                    last_id = event.id if event.id is not None else last_id
                    if event.data != "":
                        yield parse_json(event.data)
            # An event stream has no end of its own: the daemon stopped, and may be started again.
        except Elapsed:
            return
        except ForkdError as error:
            if not was_open or not _can_return(error):
                raise
        finally:
            await chunks.aclose()
        try:
            await sleep(wait, Deadline("events", 0, until))
        except Elapsed:
            return
        wait = min(wait * 2, _MAX_WAIT_SECS)


def _can_return(error: ForkdError) -> bool:
    return isinstance(error, (ConnectionError, TimeoutError)) or error.status == 503
