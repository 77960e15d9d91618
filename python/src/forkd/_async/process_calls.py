"""Calls about live processes in a sandbox. A process is named by its id or its tag."""

from __future__ import annotations

from typing import Dict, List, Literal, Optional, Union

from .. import types
from .._call import Call
from .._wire import fields, path
from .file_calls import FileCalls
from .process_events import AsyncProcessEvents, place_of, process_call
from .upload import Content


class ProcessCalls(FileCalls):
    async def start_process(
        self,
        sandbox_id: str,
        args: List[str],
        *,
        env: Optional[Dict[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        tag: Optional[str] = None,
        stdin: Optional[bool] = None,
        terminal: Optional[types.TerminalSize] = None,
        timeout_secs: Optional[float] = None,
        idempotency_key: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> types.Process:
        """Starts a process and does not wait for it; no shell. It goes on when nobody watches it. Never repeated by itself,
        unless ``idempotency_key`` is given. ``Sandbox.commands`` has handles that also read and write.

        Args:
            env: Added to the sandbox's environment.
            tag: Names it; free again when it has ended.
            stdin: Whether it is written to; otherwise its stdin is empty.
            terminal: Gives it a terminal: everything it prints is stdout, and stdin is what is typed.
            timeout_secs: It and its process group are ended after so long; without it, never.

        Raises:
            InvalidRequestError: the program could not be started
            ConflictError: another process runs under the tag
        """
        body = fields(args=args, env=env, cwd=cwd, user=user, tag=tag, stdin=stdin, terminal=terminal, timeout_secs=timeout_secs)
        call = Call[types.Process](
            "POST",
            path("/v1/sandboxes/{}/processes", sandbox_id),
            json=body,
            idempotency_key=idempotency_key,
            timeout=request_timeout,
        )
        return await self._client.json(call)

    def stream_process(
        self,
        sandbox_id: str,
        args: List[str],
        *,
        env: Optional[Dict[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        tag: Optional[str] = None,
        stdin: Optional[bool] = None,
        terminal: Optional[types.TerminalSize] = None,
        timeout_secs: Optional[float] = None,
    ) -> AsyncProcessEvents:
        """Starts a process and watches it from its first byte on: ``started``, its output, ``exit``. Connections that break are put
        together again. The request is sent with the first step of the iteration."""
        body = fields(args=args, env=env, cwd=cwd, user=user, tag=tag, stdin=stdin, terminal=terminal, timeout_secs=timeout_secs)
        call = process_call("POST", path("/v1/sandboxes/{}/processes", sandbox_id), {}, body)
        return AsyncProcessEvents(self._client, call, lambda process: _output_path(sandbox_id, process))

    async def list_processes(self, sandbox_id: str, *, request_timeout: Optional[float] = None) -> List[types.Process]:
        """Processes that were started and run, and the newest 64 that have ended."""
        return await self._client.json(
            Call[List[types.Process]]("GET", path("/v1/sandboxes/{}/processes", sandbox_id), timeout=request_timeout)
        )

    async def get_process(self, sandbox_id: str, process: Union[int, str], *, request_timeout: Optional[float] = None) -> types.Process:
        """One process."""
        return await self._client.json(
            Call[types.Process]("GET", path("/v1/sandboxes/{}/processes/{}", sandbox_id, str(process)), timeout=request_timeout)
        )

    def watch_process(self, sandbox_id: str, process: Union[int, str], *, from_: str = "start", follow: bool = True) -> AsyncProcessEvents:
        """Watches a process: ``started``, its output from any place that is kept, ``exit``. Connections that break are put together
        again.

        Args:
            from_: "start" (all that is kept), "now", or a cursor.
            follow: False: ends with what there is.
        """
        # False is left out of a query, and here it is what is not the default.
        query = {**place_of(from_), "follow": None if follow else "false"}
        call = process_call("GET", _output_path(sandbox_id, str(process)), query)
        return AsyncProcessEvents(self._client, call, lambda known: _output_path(sandbox_id, known))

    async def write_stdin(
        self,
        sandbox_id: str,
        process: Union[int, str],
        content: Content,
        *,
        close: Optional[bool] = None,
        request_timeout: Optional[float] = None,
    ) -> None:
        """Writes to a process's stdin; returns when all of it was handed over. A stream is sent as it comes.

        Args:
            close: No more will come; a terminal gets the key that says so.
        """
        call = Call[None](
            "POST",
            path("/v1/sandboxes/{}/processes/{}/stdin", sandbox_id, str(process)),
            query={"close": close},
            content=content,
            timeout=request_timeout,
        )
        await self._client.empty(call)

    async def signal_process(
        self,
        sandbox_id: str,
        process: Union[int, str],
        signal: types.SignalProcessSignal,
        *,
        scope: Optional[Literal["group", "process"]] = None,
        request_timeout: Optional[float] = None,
    ) -> None:
        """Sends a process a signal.

        Args:
            scope: The whole process group, which is the default, or the process alone.
        """
        at = path("/v1/sandboxes/{}/processes/{}/signal", sandbox_id, str(process))
        await self._client.empty(Call[None]("POST", at, json=fields(signal=signal, scope=scope), timeout=request_timeout))

    async def resize_process(
        self, sandbox_id: str, process: Union[int, str], rows: int, cols: int, *, request_timeout: Optional[float] = None
    ) -> None:
        """Tells a process the size of its terminal."""
        at = path("/v1/sandboxes/{}/processes/{}/resize", sandbox_id, str(process))
        await self._client.empty(Call[None]("POST", at, json={"rows": rows, "cols": cols}, can_repeat=True, timeout=request_timeout))

    async def kill_process(self, sandbox_id: str, process: Union[int, str], *, request_timeout: Optional[float] = None) -> None:
        """Kills a process and its group; returns when it has ended."""
        await self._client.empty(
            Call[None]("DELETE", path("/v1/sandboxes/{}/processes/{}", sandbox_id, str(process)), timeout=request_timeout)
        )


def _output_path(sandbox_id: str, process: str) -> str:
    return path("/v1/sandboxes/{}/processes/{}/output", sandbox_id, process)
