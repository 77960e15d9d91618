"""Calls into a sandbox: programs, code, files, logs."""

from __future__ import annotations

from typing import AsyncGenerator, Dict, List, Literal, Optional, Union

from .. import types
from .._call import Call
from .._deadline import Elapsed, end_of
from .._streams import TextDecoder
from .._wire import fields, path
from .sandbox_calls import SandboxCalls
from .upload import Content

#: The daemon's own time-out for programs and code
_DEFAULT_SECS = 30.0
#: For the way there and back, beyond the time the guest is given
_MARGIN_SECS = 10.0


class GuestCalls(SandboxCalls):
    async def ping_sandbox(self, sandbox_id: str, *, request_timeout: Optional[float] = None) -> types.Pong:
        """One round trip to the agent inside the guest."""
        return await self._client.json(
            Call[types.Pong]("POST", path("/v1/sandboxes/{}/ping", sandbox_id), can_repeat=True, timeout=request_timeout)
        )

    async def exec_command(
        self,
        sandbox_id: str,
        args: List[str],
        timeout_secs: Optional[float] = None,
        *,
        stdin: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        encoding: Optional[Literal["utf8", "base64"]] = None,
        max_output_bytes: Optional[int] = None,
        idempotency_key: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> types.ExecResult:
        """Runs a program to its end; no shell. An exit code other than 0 is a result, not an error. Never repeated by itself,
        unless ``idempotency_key`` is given.

        Args:
            timeout_secs: How long the program may run; without it, 30.
            env: Added to the sandbox's environment.
            encoding: Of stdin, stdout and stderr.
            max_output_bytes: Of each of stdout and stderr.

        Raises:
            InvalidRequestError: the program could not be started
        """
        body = fields(
            args=args,
            timeout_secs=timeout_secs,
            stdin=stdin,
            env=env,
            cwd=cwd,
            user=user,
            encoding=encoding,
            max_output_bytes=max_output_bytes,
        )
        call = Call[types.ExecResult](
            "POST",
            path("/v1/sandboxes/{}/exec", sandbox_id),
            json=body,
            idempotency_key=idempotency_key,
            timeout=_with_margin(timeout_secs, request_timeout),
        )
        return await self._client.json(call)

    async def eval_code(
        self,
        sandbox_id: str,
        code: str,
        *,
        language: Optional[Literal["python", "node"]] = None,
        timeout_secs: Optional[float] = None,
        idempotency_key: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> types.EvalResult:
        """Runs code in a warm interpreter, which keeps its state. What the code raises is a result, not an error. Never repeated
        by itself, unless ``idempotency_key`` is given.

        Args:
            language: Needed only when the snapshot has several.
            timeout_secs: How long the code may run; without it, 30.
        """
        call = Call[types.EvalResult](
            "POST",
            path("/v1/sandboxes/{}/eval", sandbox_id),
            json=fields(code=code, language=language, timeout_secs=timeout_secs),
            idempotency_key=idempotency_key,
            timeout=_with_margin(timeout_secs, request_timeout),
        )
        return await self._client.json(call)

    async def logs(
        self,
        sandbox_id: str,
        *,
        source: Optional[Literal["console", "agent", "vmm"]] = None,
        tail: Optional[int] = None,
        follow: bool = False,
        timeout: Optional[float] = None,
        request_timeout: Optional[float] = None,
    ) -> AsyncGenerator[str, None]:
        """What the guest's console, the agent or the VMM wrote, as text that comes bit by bit.

        Args:
            source: Without it, the console.
            tail: Only the last lines.
            follow: Goes on until the sandbox is gone, or ``timeout`` seconds have passed.
        """
        call = Call[bytes](
            "GET",
            path("/v1/sandboxes/{}/logs", sandbox_id),
            query={"source": source, "tail": tail, "follow": follow},
            timeout=request_timeout,
        )
        text = TextDecoder()
        chunks = self._client.stream(call, is_endless=follow, until=end_of(timeout))
        try:
            async for chunk in chunks:
                part = text.feed(chunk)
                if part != "":
                    yield part
            rest = text.finish()
            if rest != "":
                yield rest
        except Elapsed:
            return
        finally:
            await chunks.aclose()

    async def read_file(
        self,
        sandbox_id: str,
        file_path: str,
        *,
        offset: Optional[int] = None,
        length: Optional[int] = None,
        request_timeout: Optional[float] = None,
    ) -> bytes:
        """Reads a file of the guest whole, or a part of it."""
        pieces = []
        async for piece in self.read_file_stream(sandbox_id, file_path, offset=offset, length=length, request_timeout=request_timeout):
            pieces.append(piece)
        return b"".join(pieces)

    def read_file_stream(
        self,
        sandbox_id: str,
        file_path: str,
        *,
        offset: Optional[int] = None,
        length: Optional[int] = None,
        request_timeout: Optional[float] = None,
    ) -> AsyncGenerator[bytes, None]:
        """Reads a file of the guest bit by bit; ``request_timeout`` is the longest silence. The request is sent with the first
        step of the iteration."""
        query = {"path": file_path, "offset": offset, "length": length}
        return self._client.stream(Call[bytes]("GET", path("/v1/sandboxes/{}/files", sandbox_id), query=query, timeout=request_timeout))

    async def write_file(
        self,
        sandbox_id: str,
        file_path: str,
        content: Content,
        *,
        mode: Union[str, int, None] = None,
        append: Optional[bool] = None,
        parents: Optional[bool] = None,
        request_timeout: Optional[float] = None,
    ) -> types.WriteResult:
        """Writes a file of the guest, which appears when it is complete. Open files and iterables are sent as they come.

        Args:
            content: Text, bytes, an open file, or an iterable of bytes.
            mode: Octal as text, such as "644", or as a number, such as 0o644.
            append: Adds to the file.
            parents: Makes the folders above it.
        """
        octal = f"{mode:03o}" if isinstance(mode, int) else mode
        call = Call[types.WriteResult](
            "PUT",
            path("/v1/sandboxes/{}/files", sandbox_id),
            query={"path": file_path, "mode": octal, "append": append, "parents": parents},
            content=content,
            can_repeat=append is not True,
            timeout=request_timeout,
        )
        return await self._client.json(call)

    async def stat_file(self, sandbox_id: str, file_path: str, *, request_timeout: Optional[float] = None) -> types.FileInfo:
        """Kind, size, mode and owner of a file of the guest."""
        call = Call[types.FileInfo](
            "GET", path("/v1/sandboxes/{}/files/stat", sandbox_id), query={"path": file_path}, timeout=request_timeout
        )
        return await self._client.json(call)


def _with_margin(timeout_secs: Optional[float], request_timeout: Optional[float]) -> float:
    if request_timeout is not None:
        return request_timeout
    return (_DEFAULT_SECS if timeout_secs is None else timeout_secs) + _MARGIN_SECS
