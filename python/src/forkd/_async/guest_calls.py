"""Calls into a sandbox: programs, logs."""

from __future__ import annotations

from typing import AsyncGenerator, Dict, List, Literal, Optional

from .. import types
from .._call import Call
from .._deadline import Elapsed, end_of
from .._streams import TextDecoder
from .._wire import fields, path
from .code_calls import CodeCalls, with_margin


class GuestCalls(CodeCalls):
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
            timeout=with_margin(timeout_secs, request_timeout),
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
