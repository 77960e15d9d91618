"""Content on its way up. The twin on asyncio is ``_async/upload.py``."""

from __future__ import annotations

from typing import IO, Any, Iterable, Iterator, Union

from .._wire import SourceFailed

#: What can be written: text, bytes, an open file, or bytes that come bit by bit
Content = Union[str, bytes, bytearray, memoryview, IO[bytes], IO[str], Iterable[bytes]]

PIECE_BYTES = 256 * 1024


def is_stream(content: object) -> bool:
    """A stream can be read once only: such a request is never repeated."""
    return not isinstance(content, (str, bytes, bytearray, memoryview))


def pieces_of(content: Any) -> Iterator[bytes]:
    """The pieces of a stream.

    Raises:
        SourceFailed: with what the caller's own source raised
    """
    try:
        if hasattr(content, "read"):
            while True:
                piece = content.read(PIECE_BYTES)
                if not piece:
                    return
                yield _bytes_of(piece)
        else:
            for piece in content:
                yield _bytes_of(piece)
    except Exception as error:
        raise SourceFailed from error


def _bytes_of(piece: Any) -> bytes:
    return piece.encode() if isinstance(piece, str) else bytes(piece)
