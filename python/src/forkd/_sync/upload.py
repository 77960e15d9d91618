"""Request bodies. The asyncio counterpart is ``_async/upload.py``."""

from __future__ import annotations

from typing import IO, Any, Callable, Iterable, Iterator, TypeVar, Union

from .._wire import SourceFailed

#: Content of a write: text, bytes, an open file, or an iterable of bytes
Content = Union[str, bytes, bytearray, memoryview, IO[bytes], IO[str], Iterable[bytes]]

R = TypeVar("R")

PIECE_BYTES = 256 * 1024


def is_stream(content: object) -> bool:
    """A stream can be read only once, so its request is never repeated."""
    return not isinstance(content, (str, bytes, bytearray, memoryview))


def pieces_of(content: Any) -> Iterator[bytes]:
    """The pieces of a stream.

    Raises:
        SourceFailed: the caller's source raised; its error is the cause
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


def in_thread(work: Callable[..., R], *args: Any) -> R:
    """Work with files, which may be slow; only its caller waits."""
    return work(*args)


def _bytes_of(piece: Any) -> bytes:
    return piece.encode() if isinstance(piece, str) else bytes(piece)
