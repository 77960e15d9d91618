"""HTTP/1.1 without input and output: encodes requests and decodes answers piece by piece.

The standard library's client supports only blocking sockets; this code serves those and asyncio.
"""

from __future__ import annotations

import enum
import re
from typing import Dict, List, Mapping, Optional, Tuple

#: Limit of a head or a line; the daemon's are shorter
_MAX_HEAD = 64 * 1024
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9]\d\d)(?: [^\r\n]*)?")
_HEADER_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\r\n\x00]*?)[ \t]*")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;[^\r\n]*)?")


class BrokenConnection(Exception):
    """The connection cannot give an answer."""


class ProtocolError(BrokenConnection):
    """The received bytes are not HTTP."""


class ClosedEarly(BrokenConnection):
    """The connection was closed before the answer was complete."""


class StaleConnection(BrokenConnection):
    """The server closed the connection while it was idle; it did not process the request."""


class _Next(enum.Enum):
    """Decoder state: what is expected next."""

    HEAD = enum.auto()
    #: a body of known length
    LENGTH = enum.auto()
    #: a body that ends with the connection
    REST = enum.auto()
    CHUNK_SIZE = enum.auto()
    CHUNK = enum.auto()
    CHUNK_END = enum.auto()
    TRAILERS = enum.auto()
    NOTHING = enum.auto()


def encode_head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def encode_chunk(data: bytes) -> bytes:
    """One chunk of a body of unknown length; an empty chunk ends it."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class AnswerDecoder:
    """Takes received bytes; returns first the head, then the body.

    Args:
        is_head: The request was HEAD.
        can_upgrade: The server may switch protocols; the bytes after the head are then the body.
    """

    def __init__(self, *, is_head: bool = False, can_upgrade: bool = False) -> None:
        self._is_head = is_head
        self._can_upgrade = can_upgrade
        self.status = 0
        #: As received
        self.raw_headers: List[Tuple[str, str]] = []
        #: Keys are in lower case
        self.headers: Dict[str, str] = {}
        #: Trailers of a chunked body; keys are in lower case
        self.trailers: Dict[str, str] = {}
        #: Whether the connection can be reused after the body
        self.can_reuse = False
        #: Whether any byte was received
        self.has_begun = False
        self._next = _Next.HEAD
        self._buffer = bytearray()
        self._is_closed = False
        #: Remaining bytes of the body or of the chunk
        self._left = 0

    def feed(self, data: bytes) -> None:
        """Adds received bytes; empty means that the connection was closed."""
        if data:
            self.has_begun = True
            self._buffer += data
        else:
            self._is_closed = True

    def read_head(self) -> bool:
        """False: more bytes are needed."""
        while self._next is _Next.HEAD:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return self._need_more()
            lines = bytes(self._buffer[:end]).split(b"\r\n")
            del self._buffer[: end + 4]
            self._parse_head(lines)
        return True

    def read_body(self) -> Optional[bytes]:
        """The next piece; empty at the end; None: more bytes are needed."""
        while True:
            if self._next is _Next.NOTHING:
                return b""
            if self._next in (_Next.LENGTH, _Next.CHUNK, _Next.REST):
                return self._take_bytes()
            line = self._take_line()
            if line is None:
                return None
            self._take_chunk_line(line)

    @property
    def is_complete(self) -> bool:
        """Whether the whole body was read and no byte after it was received."""
        return self._next is _Next.NOTHING and not self._buffer

    def _need_more(self) -> bool:
        if self._is_closed:
            raise ClosedEarly(
                "the connection was closed" if not self.has_begun else "the connection was closed before the answer was complete"
            )
        if self._next not in (_Next.LENGTH, _Next.CHUNK, _Next.REST) and len(self._buffer) > _MAX_HEAD:
            raise ProtocolError("a line of the answer is too long")
        return False

    def _take_bytes(self) -> Optional[bytes]:
        if self._next is _Next.REST:
            self._left = len(self._buffer)
            if self._left == 0 and self._is_closed:
                self._next = _Next.NOTHING
                return b""
        if not self._buffer:
            self._need_more()
            return None
        piece = bytes(self._buffer[: self._left])
        del self._buffer[: len(piece)]
        self._left -= len(piece)
        if self._left == 0 and self._next is not _Next.REST:
            self._next = _Next.CHUNK_END if self._next is _Next.CHUNK else _Next.NOTHING
        return piece

    def _take_line(self) -> Optional[bytes]:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            self._need_more()
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _take_chunk_line(self, line: bytes) -> None:
        if self._next is _Next.TRAILERS:
            if line:
                name, value = _parse_header(line)
                self.trailers[name.lower()] = value
            else:
                self._next = _Next.NOTHING
        elif self._next is _Next.CHUNK_END:
            if line:
                raise ProtocolError("a chunk of the answer is longer than it says")
            self._next = _Next.CHUNK_SIZE
        else:
            match = _CHUNK_SIZE.fullmatch(line)
            if match is None:
                raise ProtocolError("a chunk of the answer has no size")
            self._left = int(match.group(1), 16)
            self._next = _Next.CHUNK if self._left > 0 else _Next.TRAILERS

    def _parse_head(self, lines: List[bytes]) -> None:
        match = _STATUS_LINE.fullmatch(lines[0])
        if match is None:
            raise ProtocolError("the server does not speak HTTP/1.1")
        self.status = int(match.group(2))
        if self.status == 101 and not self._can_upgrade:
            raise ProtocolError("the connection was switched to another protocol")
        if self.status < 200 and self.status != 101:
            return  # 1xx: the final answer follows
        headers: Dict[str, str] = {}
        self.raw_headers = [_parse_header(line) for line in lines[1:]]
        for original, value in self.raw_headers:
            name = original.lower()
            if name == "content-length" and headers.get(name, value) != value:
                raise ProtocolError("the answer has two lengths")
            headers[name] = f"{headers[name]}, {value}" if name in headers and name != "content-length" else value
        self.headers = headers
        options = headers.get("connection", "").lower().replace(" ", "").split(",")
        self.can_reuse = "close" not in options if match.group(1) == b"1" else "keep-alive" in options
        self._frame_body(headers)

    def _frame_body(self, headers: Dict[str, str]) -> None:
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        if self.status in (204, 304) or (self._is_head and self.status != 101):
            self._next = _Next.NOTHING
        elif self.status == 101:
            self._next = _Next.REST
            self.can_reuse = False
        elif coding is not None:
            if coding.lower() != "chunked":
                raise ProtocolError(f"the answer has an unknown coding, {coding}")
            self._next = _Next.CHUNK_SIZE
        elif length is not None:
            if not re.fullmatch(r"[0-9]{1,18}", length):
                raise ProtocolError("the length of the answer is not a number")
            self._left = int(length)
            self._next = _Next.LENGTH if self._left > 0 else _Next.NOTHING
        else:
            self._next = _Next.REST
            self.can_reuse = False


def _parse_header(line: bytes) -> Tuple[str, str]:
    match = _HEADER_LINE.fullmatch(line)
    if match is None:
        raise ProtocolError("the answer has a malformed header")
    return match.group(1).decode("ascii"), match.group(2).decode("latin-1")
