"""The files of one sandbox."""

from __future__ import annotations

from typing import Any, AsyncGenerator, Callable, List, Literal, Mapping, Optional, Sequence, Union, overload

from ..errors import FileError
from ..results import EntryInfo, FileChange, entry_info
from ..types import DiskUsage, UnpackResult, WriteResult
from .controller import AsyncController
from .file_watch import AsyncWatchHandle
from .upload import Content


class AsyncFiles:
    """Files inside a sandbox. Paths are absolute; a path that is not UTF-8 is written as ``base64:`` and its bytes, as in the answers
    of :meth:`list`. ``user`` is the guest user whose rights count and who owns new files; without it, root.

    Raises:
        FileError: the guest's system refused the operation; ``errno`` has the reason
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
        """Reads a file, or a part of it, as UTF-8 text, as bytes, or as a stream of bytes."""
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
        """Writes text, bytes, an open file or an iterable of bytes. The file appears when it is complete.

        Args:
            mode: Octal as text, such as "644", or as a number, such as 0o644.
            append: Appends to the file.
            offset: Writes at this offset and keeps the rest of the file.
            parents: Creates missing parent directories.
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
        """Writes several files, each ``{"path": …, "data": …}``, in order."""
        return [await self.write(file["path"], file["data"], user=user, request_timeout=request_timeout) for file in files]

    async def list(
        self, path: str, depth: Optional[int] = None, *, user: Optional[str] = None, request_timeout: Optional[float] = None
    ) -> List[EntryInfo]:
        """Lists the entries of a directory in the order of their paths; with ``depth`` also those of its subdirectories."""
        found = await self._controller.list_files(self._id, path, depth=depth, user=user, request_timeout=request_timeout)
        return [entry_info(entry["path"], entry) for entry in found]

    async def get_info(
        self, path: str, *, follow: Optional[bool] = None, user: Optional[str] = None, request_timeout: Optional[float] = None
    ) -> EntryInfo:
        """Kind, size, mode, owner and link target. With ``follow``, those of a link's target."""
        return entry_info(path, await self._controller.stat_file(self._id, path, follow=follow, user=user, request_timeout=request_timeout))

    async def usage(self, path: str = "/", *, user: Optional[str] = None, request_timeout: Optional[float] = None) -> DiskUsage:
        """Disk space of a file or tree, as ``du`` and ``df`` report it: its own bytes, and size and use of its file system."""
        return await self._controller.disk_usage(self._id, path, user=user, request_timeout=request_timeout)

    async def exists(self, path: str, *, user: Optional[str] = None, request_timeout: Optional[float] = None) -> bool:
        """Whether the path exists; true for a dangling link."""
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
        """Creates a directory and its missing parents; False when it exists."""
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
        """Moves a file or directory to exactly this path.

        Args:
            overwrite: Replaces a file, a link or an empty directory at the target; False: that is an error.
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
        """Copies a file or a whole directory to exactly this path. The copy appears when it is complete."""
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
        """Removes a file, a link, or a directory with its contents.

        Args:
            recursive: False: a directory must be empty.
            missing_ok: False: a missing path is an error.
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
        """Sets owner and group, each by name or number."""
        await self._controller.chown_file(
            self._id, path, owner=owner, group=group, recursive=recursive, user=user, request_timeout=request_timeout
        )

    async def symlink(self, target: str, path: str, *, user: Optional[str] = None, request_timeout: Optional[float] = None) -> None:
        """Creates a symbolic link at ``path`` that points to ``target``."""
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
        """Watches a directory. Returns when the guest reports every later change.

        Args:
            on_event: Called with each change, by a thread, or by a task. Without it, iterate the handle, or call ``get_new_events``.
            on_exit: Called at the end, with the error that ended the watch, or None.
            recursive: Also everything below, and directories that are created there later.
            debounce_ms: Changes are collected for so long, and repeated ones reported once; 0: each change is reported. Default: 50.
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
        """A directory or one file, as a tar archive in pieces.

        Args:
            plain: Only files, directories and links; no devices and pipes.
        """
        return self._controller.read_tar(self._id, path, plain=plain, user=user, request_timeout=request_timeout)

    async def upload_tar(
        self, path: str, archive: Content, *, user: Optional[str] = None, request_timeout: Optional[float] = None
    ) -> UnpackResult:
        """Extracts a tar archive into a directory, which is created when it is missing."""
        return await self._controller.write_tar(self._id, path, archive, user=user, request_timeout=request_timeout)
