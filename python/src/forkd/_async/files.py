"""The files of one sandbox."""

from __future__ import annotations

from typing import Any, AsyncGenerator, Callable, List, Literal, Mapping, Optional, Sequence, Union, overload

from ..errors import FileError
from ..results import EntryInfo, FileChange, entry_info
from ..types import UnpackResult, WriteResult
from .controller import AsyncController
from .file_watch import AsyncWatchHandle
from .upload import Content


class AsyncFiles:
    """Files inside a sandbox. Paths are absolute; a name that is not UTF-8 is given as ``base64:`` and the bytes of its path, as
    :meth:`list` shows it. With ``user``, rights and ownership are that user's; without it, root's.

    Raises:
        FileError: the guest refuses; its ``errno`` says why
    """

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
        user: Optional[str] = None,
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
        user: Optional[str] = None,
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
        user: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> AsyncGenerator[bytes, None]: ...

    async def read(
        self,
        path: str,
        format: Literal["text", "bytes", "stream"] = "text",
        *,
        offset: Optional[int] = None,
        length: Optional[int] = None,
        user: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> Union[str, bytes, AsyncGenerator[bytes, None]]:
        """A file as UTF-8 text, as bytes, or as bytes that come bit by bit; whole, or a part of it."""
        if format == "stream":
            return self._controller.read_file_stream(
                self._id, path, offset=offset, length=length, user=user, request_timeout=request_timeout
            )
        content = await self._controller.read_file(self._id, path, offset=offset, length=length, user=user, request_timeout=request_timeout)
        return content if format == "bytes" else content.decode("utf-8", "replace")

    async def write(
        self,
        path: str,
        data: Content,
        *,
        mode: Union[str, int, None] = None,
        append: Optional[bool] = None,
        offset: Optional[int] = None,
        parents: bool = True,
        user: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> WriteResult:
        """Writes text, bytes, an open file or an iterable of bytes; the file appears when it is complete.

        Args:
            mode: Octal as text, such as "644", or as a number, such as 0o644.
            append: Adds to the file.
            offset: Writes from there on into a file that keeps the rest.
            parents: Makes the directories above it.
        """
        return await self._controller.write_file(
            self._id,
            path,
            data,
            mode=mode,
            append=append,
            offset=offset,
            parents=parents,
            user=user,
            request_timeout=request_timeout,
        )

    async def write_files(
        self, files: Sequence[Mapping[str, Any]], *, user: Optional[str] = None, request_timeout: Optional[float] = None
    ) -> List[WriteResult]:
        """Writes several, each ``{"path": …, "data": …}``, one after the other."""
        return [await self.write(file["path"], file["data"], user=user, request_timeout=request_timeout) for file in files]

    async def list(
        self, path: str, depth: Optional[int] = None, *, user: Optional[str] = None, request_timeout: Optional[float] = None
    ) -> List[EntryInfo]:
        """What a directory holds, in the order of the paths; with ``depth`` also what its directories hold."""
        found = await self._controller.list_files(self._id, path, depth=depth, user=user, request_timeout=request_timeout)
        return [entry_info(entry["path"], entry) for entry in found]

    async def get_info(
        self, path: str, *, follow: Optional[bool] = None, user: Optional[str] = None, request_timeout: Optional[float] = None
    ) -> EntryInfo:
        """Kind, size, mode, owner and link target; of a link itself, unless ``follow``."""
        return entry_info(path, await self._controller.stat_file(self._id, path, follow=follow, user=user, request_timeout=request_timeout))

    async def exists(self, path: str, *, user: Optional[str] = None, request_timeout: Optional[float] = None) -> bool:
        """Whether there is anything at this path, be it a link that leads nowhere."""
        try:
            await self._controller.stat_file(self._id, path, user=user, request_timeout=request_timeout)
        except FileError as error:
            if error.errno in ("ENOENT", "ENOTDIR"):
                return False
            raise
        return True

    async def make_dir(
        self,
        path: str,
        *,
        mode: Union[str, int, None] = None,
        user: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> bool:
        """Makes a directory, and those above it; False when it is there."""
        is_there = await self.exists(path, user=user, request_timeout=request_timeout)
        await self._controller.make_directory(self._id, path, mode=mode, parents=True, user=user, request_timeout=request_timeout)
        return not is_there

    async def rename(
        self,
        old_path: str,
        new_path: str,
        *,
        overwrite: bool = True,
        user: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> EntryInfo:
        """Moves to exactly this path.

        Args:
            overwrite: Replaces a file, a link or an empty directory there; False: that is an error.
        """
        await self._controller.move_file(self._id, old_path, new_path, overwrite=overwrite, user=user, request_timeout=request_timeout)
        return await self.get_info(new_path, user=user, request_timeout=request_timeout)

    async def copy(
        self,
        path: str,
        new_path: str,
        *,
        overwrite: bool = True,
        user: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> EntryInfo:
        """Copies, directories with all they hold, to exactly this path, which appears when it is complete."""
        await self._controller.copy_file(
            self._id, path, new_path, recursive=True, overwrite=overwrite, user=user, request_timeout=request_timeout
        )
        return await self.get_info(new_path, user=user, request_timeout=request_timeout)

    async def remove(
        self,
        path: str,
        *,
        recursive: bool = True,
        missing_ok: bool = True,
        user: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> None:
        """Removes a file, a link, or a directory with all it holds.

        Args:
            recursive: False: only an empty directory.
            missing_ok: False: a path where nothing is, is an error.
        """
        try:
            await self._controller.remove_file(self._id, path, recursive=recursive, user=user, request_timeout=request_timeout)
        except FileError as error:
            if not missing_ok or error.errno != "ENOENT":
                raise

    async def chmod(
        self,
        path: str,
        mode: Union[str, int],
        *,
        recursive: Optional[bool] = None,
        user: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> None:
        """Sets the mode: octal as text, such as "644", or as a number, such as 0o644."""
        await self._controller.chmod_file(self._id, path, mode, recursive=recursive, user=user, request_timeout=request_timeout)

    async def chown(
        self,
        path: str,
        owner: Union[str, int, None] = None,
        group: Union[str, int, None] = None,
        *,
        recursive: Optional[bool] = None,
        user: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> None:
        """Sets owner and group, by name or number."""
        await self._controller.chown_file(
            self._id, path, owner=owner, group=group, recursive=recursive, user=user, request_timeout=request_timeout
        )

    async def symlink(self, target: str, path: str, *, user: Optional[str] = None, request_timeout: Optional[float] = None) -> None:
        """Makes a symbolic link at ``path`` that points to ``target``."""
        await self._controller.make_symlink(self._id, target, path, user=user, request_timeout=request_timeout)

    async def watch_dir(
        self,
        path: str,
        on_event: Optional[Callable[[FileChange], Any]] = None,
        on_exit: Optional[Callable[[Optional[Exception]], Any]] = None,
        *,
        recursive: Optional[bool] = None,
        debounce_ms: Optional[int] = None,
        user: Optional[str] = None,
    ) -> AsyncWatchHandle:
        """Tells what changes. Returns when nothing is missed any more.

        Args:
            on_event: Called with every change, by a thread, or by a task; without it, iterate the handle, or ask it for new events.
            on_exit: Called at last, with the error that ended it or None.
            recursive: Also everything below, and what is made there later.
            debounce_ms: Changes are gathered for so long, and repeated ones told once; without it, 50.
        """
        watch = await self._controller.watch_files(self._id, path, recursive=recursive, debounce_ms=debounce_ms, user=user)
        if on_event is not None:
            watch._tell_beside(on_event, on_exit)
        return watch

    def download_tar(
        self,
        path: str,
        *,
        plain: Optional[bool] = None,
        user: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> AsyncGenerator[bytes, None]:
        """What a directory holds, or one file, as a tar archive that comes bit by bit.

        Args:
            plain: Only files, directories and links: no devices and pipes.
        """
        return self._controller.read_tar(self._id, path, plain=plain, user=user, request_timeout=request_timeout)

    async def upload_tar(
        self, path: str, archive: Content, *, user: Optional[str] = None, request_timeout: Optional[float] = None
    ) -> UnpackResult:
        """Extracts a tar archive into a directory, which is made when it is missing."""
        return await self._controller.write_tar(self._id, path, archive, user=user, request_timeout=request_timeout)
