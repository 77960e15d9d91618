"""Calls about the files of a sandbox. Paths are absolute; ``base64:`` and the bytes where they are not UTF-8."""

from __future__ import annotations

from typing import Any, AsyncGenerator, Dict, List, Optional, Union

from .. import types
from .._call import Call
from .._wire import Page, fields, octal, path
from .file_watch import AsyncWatchHandle
from .guest_calls import GuestCalls
from .upload import Content

#: The most the daemon gives at once
_LARGEST_PAGE = 10_000


class FileCalls(GuestCalls):
    async def read_file(
        self,
        sandbox_id: str,
        file_path: str,
        *,
        offset: Optional[int] = None,
        length: Optional[int] = None,
        user: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> bytes:
        """Reads a file of the guest whole, or a part of it. Here and in all calls about files, ``user`` is the user of the guest
        whose rights count and who owns what is new; without it, root."""
        pieces: List[bytes] = []
        stream = self.read_file_stream(sandbox_id, file_path, offset=offset, length=length, user=user, request_timeout=request_timeout)
        async for piece in stream:
            pieces.append(piece)
        return b"".join(pieces)

    def read_file_stream(
        self,
        sandbox_id: str,
        file_path: str,
        *,
        offset: Optional[int] = None,
        length: Optional[int] = None,
        user: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> AsyncGenerator[bytes, None]:
        """Reads a file of the guest bit by bit; ``request_timeout`` is the longest silence. The request is sent with the first
        step of the iteration."""
        query = {"path": file_path, "offset": offset, "length": length, "user": user}
        return self._client.stream(Call[bytes]("GET", path("/v1/sandboxes/{}/files", sandbox_id), query=query, timeout=request_timeout))

    async def write_file(
        self,
        sandbox_id: str,
        file_path: str,
        content: Content,
        *,
        mode: Union[str, int, None] = None,
        append: Optional[bool] = None,
        offset: Optional[int] = None,
        parents: Optional[bool] = None,
        user: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> types.WriteResult:
        """Writes a file of the guest, which appears when it is complete. Open files and iterables are sent as they come.

        Args:
            content: Text, bytes, an open file, or an iterable of bytes.
            mode: Octal as text, such as "644", or as a number, such as 0o644.
            append: Adds to the file.
            offset: Writes from there on into a file that keeps the rest.
            parents: Makes the directories above it.
        """
        call = Call[types.WriteResult](
            "PUT",
            path("/v1/sandboxes/{}/files", sandbox_id),
            query={"path": file_path, "mode": octal(mode), "append": append, "offset": offset, "parents": parents, "user": user},
            content=content,
            can_repeat=append is not True,
            timeout=request_timeout,
        )
        return await self._client.json(call)

    async def stat_file(
        self,
        sandbox_id: str,
        file_path: str,
        *,
        follow: Optional[bool] = None,
        user: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> types.FileInfo:
        """Kind, size, mode, owner and link target of a file of the guest.

        Args:
            follow: What a link points to instead of the link itself.
        """
        query = {"path": file_path, "follow": follow, "user": user}
        call = Call[types.FileInfo]("GET", path("/v1/sandboxes/{}/files/stat", sandbox_id), query=query, timeout=request_timeout)
        return await self._client.json(call)

    async def list_files(
        self,
        sandbox_id: str,
        directory: str,
        *,
        depth: Optional[int] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        user: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> Page[types.ListedFile]:
        """What a directory of the guest holds, in the order of the paths. Pages only when ``limit`` or ``cursor`` is given.

        Args:
            depth: Without it 1: only what is in the directory itself.
        """
        query: Dict[str, Any] = {"path": directory, "depth": depth, "limit": limit, "cursor": cursor, "user": user}
        at = path("/v1/sandboxes/{}/files/list", sandbox_id)
        if limit is not None or cursor is not None:
            return await self._client.page(Call[types.ListedFile]("GET", at, query=query, timeout=request_timeout))
        whole: Page[types.ListedFile] = Page()
        query["limit"] = _LARGEST_PAGE
        while True:
            page = await self._client.page(Call[types.ListedFile]("GET", at, query=query, timeout=request_timeout))
            whole.extend(page)
            if page.next_cursor is None:
                return whole
            query["cursor"] = page.next_cursor

    async def make_directory(
        self,
        sandbox_id: str,
        directory: str,
        *,
        mode: Union[str, int, None] = None,
        parents: Optional[bool] = None,
        user: Optional[str] = None,
        idempotency_key: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> None:
        """Makes a directory in the guest; with ``parents`` also those above it, and one that is there is as good."""
        body = fields(path=directory, mode=octal(mode), parents=parents, user=user)
        await self._file("mkdir", sandbox_id, body, idempotency_key, request_timeout)

    async def move_file(
        self,
        sandbox_id: str,
        from_path: str,
        to_path: str,
        *,
        overwrite: Optional[bool] = None,
        user: Optional[str] = None,
        idempotency_key: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> None:
        """Gives a file or directory of the guest exactly this other path.

        Args:
            overwrite: Replaces a file, a link or an empty directory there; without it, that is FILE_EXISTS.
        """
        body = fields(**{"from": from_path}, to=to_path, overwrite=overwrite, user=user)
        await self._file("move", sandbox_id, body, idempotency_key, request_timeout)

    async def copy_file(
        self,
        sandbox_id: str,
        from_path: str,
        to_path: str,
        *,
        recursive: Optional[bool] = None,
        overwrite: Optional[bool] = None,
        user: Optional[str] = None,
        idempotency_key: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> None:
        """Copies inside the guest to exactly this path, which appears when it is complete; directories with ``recursive``."""
        body = fields(**{"from": from_path}, to=to_path, recursive=recursive, overwrite=overwrite, user=user)
        await self._file("copy", sandbox_id, body, idempotency_key, request_timeout)

    async def remove_file(
        self,
        sandbox_id: str,
        file_path: str,
        *,
        recursive: Optional[bool] = None,
        user: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> None:
        """Removes a file, a link or an empty directory of the guest; with ``recursive`` a directory with all it holds."""
        query = {"path": file_path, "recursive": recursive, "user": user}
        await self._client.empty(Call[None]("DELETE", path("/v1/sandboxes/{}/files", sandbox_id), query=query, timeout=request_timeout))

    async def chmod_file(
        self,
        sandbox_id: str,
        file_path: str,
        mode: Union[str, int],
        *,
        recursive: Optional[bool] = None,
        user: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> None:
        """Sets the mode of a file of the guest, or of a tree."""
        body = fields(path=file_path, mode=octal(mode), recursive=recursive, user=user)
        await self._file("chmod", sandbox_id, body, None, request_timeout, can_repeat=True)

    async def chown_file(
        self,
        sandbox_id: str,
        file_path: str,
        *,
        owner: Union[str, int, None] = None,
        group: Union[str, int, None] = None,
        recursive: Optional[bool] = None,
        user: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> None:
        """Sets owner and group of a file of the guest, or of a tree: names or numbers; what is not given stays."""
        given = {name: str(value) for name, value in (("owner", owner), ("group", group)) if value is not None}
        body = fields(path=file_path, recursive=recursive, user=user, **given)
        await self._file("chown", sandbox_id, body, None, request_timeout, can_repeat=True)

    async def make_symlink(
        self,
        sandbox_id: str,
        target: str,
        link: str,
        *,
        user: Optional[str] = None,
        idempotency_key: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> None:
        """Makes a symbolic link in the guest that points to ``target``."""
        await self._file("symlink", sandbox_id, fields(target=target, path=link, user=user), idempotency_key, request_timeout)

    async def watch_files(
        self,
        sandbox_id: str,
        directory: str,
        *,
        recursive: Optional[bool] = None,
        debounce_ms: Optional[int] = None,
        user: Optional[str] = None,
    ) -> AsyncWatchHandle:
        """Tells what changes in a directory of the guest. Returns when nothing is missed any more.

        Args:
            recursive: Also everything below, and what is made there later.
            debounce_ms: Changes are gathered for so long, and repeated ones told once; without it, 50.
        """
        query = {"path": directory, "recursive": recursive, "debounce_ms": debounce_ms, "user": user}
        return await AsyncWatchHandle.open(self._client, path("/v1/sandboxes/{}/files/watch", sandbox_id), query)

    def read_tar(
        self,
        sandbox_id: str,
        file_path: str,
        *,
        plain: Optional[bool] = None,
        user: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> AsyncGenerator[bytes, None]:
        """What a directory of the guest holds, or one file, as a tar archive that comes bit by bit.

        Args:
            plain: Only files, directories and links: no devices and pipes.
        """
        query = {"path": file_path, "plain": plain, "user": user}
        at = path("/v1/sandboxes/{}/files/tar", sandbox_id)
        return self._client.stream(Call[bytes]("GET", at, query=query, timeout=request_timeout))

    async def write_tar(
        self,
        sandbox_id: str,
        directory: str,
        archive: Content,
        *,
        user: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> types.UnpackResult:
        """Extracts a tar archive into a directory of the guest, which is made when it is missing."""
        call = Call[types.UnpackResult](
            "PUT",
            path("/v1/sandboxes/{}/files/tar", sandbox_id),
            query={"path": directory, "user": user},
            content=archive,
            timeout=request_timeout,
        )
        return await self._client.json(call)

    async def _file(
        self,
        verb: str,
        sandbox_id: str,
        body: Dict[str, Any],
        key: Optional[str],
        request_timeout: Optional[float],
        can_repeat: Optional[bool] = None,
    ) -> None:
        at = path("/v1/sandboxes/{}/files/" + verb, sandbox_id)
        await self._client.empty(Call[None]("POST", at, json=body, idempotency_key=key, can_repeat=can_repeat, timeout=request_timeout))
