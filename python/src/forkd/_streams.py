"""Text in pieces: lines and server-sent events. Incremental; buffers at most one line or event."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import List, Optional

from ._wire import bad_answer

#: Limit of a line; the daemon's are shorter
MAX_LINE = 16 * 1024 * 1024


class TextDecoder:
    """Decoded text; a character split between two chunks is returned with the second."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, chunk: bytes) -> str:
        return self._decoder.decode(chunk)

    def finish(self) -> str:
        return self._decoder.decode(b"", True)


class LineDecoder:
    """Lines without line ends; an unterminated last line is returned too."""

    def __init__(self, max_length: int = MAX_LINE) -> None:
        self._text = TextDecoder()
        self._parts: List[str] = []
        self._length = 0
        self._max_length = max_length

    def feed(self, chunk: bytes) -> List[str]:
        *ended, rest = self._text.feed(chunk).split("\n")
        lines = []
        for end in ended:
            self._keep(end)
            lines.append(self._take())
        self._keep(rest)
        return lines

    def finish(self) -> List[str]:
        self._keep(self._text.finish())
        return [self._take()] if self._length > 0 else []

    def _keep(self, part: str) -> None:
        self._length += len(part)
        if self._length > self._max_length:
            raise bad_answer(f"A line of the answer is longer than {self._max_length} characters.")
        self._parts.append(part)

    def _take(self) -> str:
        line = "".join(self._parts)
        self._parts = []
        self._length = 0
        return line[:-1] if line.endswith("\r") else line


@dataclass(frozen=True)
class ServerEvent:
    """One server-sent event."""

    id: Optional[str]
    type: str
    data: str


class EventDecoder:
    """Events that have data or an id. The last id applies to later events without one. Comments are skipped."""

    def __init__(self) -> None:
        self._lines = LineDecoder()
        self._id: Optional[str] = None
        self._has_id = False
        self._type = ""
        self._data: List[str] = []
        self._length = 0

    def feed(self, chunk: bytes) -> List[ServerEvent]:
        events = []
        for line in self._lines.feed(chunk):
            event = self._take(line)
            if event is not None:
                events.append(event)
        return events

    def _take(self, line: str) -> Optional[ServerEvent]:
        if line == "":
            event = ServerEvent(self._id, self._type or "message", "\n".join(self._data))
            is_event = self._has_id or len(self._data) > 0
            self._has_id, self._type, self._data, self._length = False, "", [], 0
            return event if is_event else None
        field, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if field == "id":
            self._id, self._has_id = value, True
        elif field == "event":
            self._type = value
        elif field == "data":
            self._length += len(value)
            if self._length > MAX_LINE:
                raise bad_answer(f"An event of the answer is longer than {MAX_LINE} characters.")
            self._data.append(value)
        return None
