"""Request bodies. The blocking counterpart is ``_sync/upload.py``."""

from __future__ import annotations

import asyncio
from typing import IO, Any, AsyncIterable, AsyncIterator, Callable, Iterable, TypeVar, Union

from .._wire import SourceFailed

#: Content of a write: text, bytes, an open file, or an iterable of bytes
Content = Union[str, bytes, bytearray, memoryview, IO[bytes], IO[str], Iterable[bytes], AsyncIterable[bytes]]

R = TypeVar("R")

PIECE_BYTES = 256 * 1024


def is_stream(content: object) -> bool:
    """A stream can be read only once, so its request is never repeated."""
    return not isinstance(content, (str, bytes, bytearray, memoryview))


async def pieces_of(content: Any) -> AsyncIterator[bytes]:
    """The pieces of a stream.

    Raises:
        SourceFailed: the caller's source raised; its error is the cause
    """
    try:
        if hasattr(content, "read"):
            while True:
                # Reading a local file may block, and would stop the event loop.
                piece = await asyncio.to_thread(content.read, PIECE_BYTES)
                if not piece:
                    return
                yield _bytes_of(piece)
        elif hasattr(content, "__aiter__"):
            async for piece in content:
                yield _bytes_of(piece)
        else:
            for piece in content:
                yield _bytes_of(piece)
    except Exception as error:
        raise SourceFailed from error


async def in_thread(work: Callable[..., R], *args: Any) -> R:
    """Work with files, which may be slow; others wait for the event loop."""
    return await asyncio.to_thread(work, *args)


def _bytes_of(piece: Any) -> bytes:
    return piece.encode() if isinstance(piece, str) else bytes(piece)
