"""The files of one sandbox."""

from __future__ import annotations

from typing import AsyncGenerator, Literal, Optional, Union, overload

from ..types import FileInfo, WriteResult
from .controller import AsyncController
from .upload import Content


class AsyncFiles:
    """Files inside a sandbox. Paths are absolute."""

    def __init__(self, controller: AsyncController, sandbox_id: str) -> None:
        self._controller = controller
        self._id = sandbox_id

    @overload
    async def read(
        self,
        path: str,
        format: Literal["text"] = "text",
        *,
        offset: Optional[int] = None,
        length: Optional[int] = None,
        request_timeout: Optional[float] = None,
    ) -> str: ...

    @overload
    async def read(
        self,
        path: str,
        format: Literal["bytes"],
        *,
        offset: Optional[int] = None,
        length: Optional[int] = None,
        request_timeout: Optional[float] = None,
    ) -> bytes: ...

    @overload
    async def read(
        self,
        path: str,
        format: Literal["stream"],
        *,
        offset: Optional[int] = None,
        length: Optional[int] = None,
        request_timeout: Optional[float] = None,
    ) -> AsyncGenerator[bytes, None]: ...

    async def read(
        self,
        path: str,
        format: Literal["text", "bytes", "stream"] = "text",
        *,
        offset: Optional[int] = None,
        length: Optional[int] = None,
        request_timeout: Optional[float] = None,
    ) -> Union[str, bytes, AsyncGenerator[bytes, None]]:
        """A file as UTF-8 text, as bytes, or as bytes that come bit by bit; whole, or a part of it.

        Raises:
            InvalidRequestError: it cannot be read
        """
        if format == "stream":
            return self._controller.read_file_stream(self._id, path, offset=offset, length=length, request_timeout=request_timeout)
        content = await self._controller.read_file(self._id, path, offset=offset, length=length, request_timeout=request_timeout)
        return content if format == "bytes" else content.decode("utf-8", "replace")

    async def write(
        self,
        path: str,
        data: Content,
        *,
        mode: Union[str, int, None] = None,
        append: Optional[bool] = None,
        parents: bool = True,
        request_timeout: Optional[float] = None,
    ) -> WriteResult:
        """Writes text, bytes, an open file or an iterable of bytes; the file appears when it is complete.

        Args:
            mode: Octal as text, such as "644", or as a number, such as 0o644.
            append: Adds to the file.
            parents: Makes the folders above it.
        """
        return await self._controller.write_file(
            self._id, path, data, mode=mode, append=append, parents=parents, request_timeout=request_timeout
        )

    async def get_info(self, path: str, *, request_timeout: Optional[float] = None) -> FileInfo:
        """Kind, size, mode and owner."""
        return await self._controller.stat_file(self._id, path, request_timeout=request_timeout)
