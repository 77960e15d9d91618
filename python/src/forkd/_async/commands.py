"""The commands of one sandbox."""

from __future__ import annotations

from typing import Dict, List, Literal, Optional, Union, overload

from ..results import CommandResult, ProcessInfo, command_result, process_info
from .command_handle import AsyncCommandHandle, TextListener, checked
from .live import Live

#: Default time-out of a command in the foreground
_DEFAULT_SECS = 60.0
#: Longest run that one request waits for
_MAX_EXEC_SECS = 24 * 3600.0


class AsyncCommands(Live):
    """Commands inside a sandbox. A running one is named by its pid or its tag."""

    @overload
    async def run(
        self,
        cmd: Union[str, List[str]],
        background: Optional[Literal[False]] = None,
        envs: Optional[Dict[str, str]] = None,
        user: Optional[str] = None,
        cwd: Optional[str] = None,
        on_stdout: Optional[TextListener] = None,
        on_stderr: Optional[TextListener] = None,
        stdin: Union[str, bytes, bool, None] = None,
        timeout: Optional[float] = None,
        *,
        tag: Optional[str] = None,
        check: bool = True,
        retain_output: bool = True,
        request_timeout: Optional[float] = None,
    ) -> CommandResult: ...

    @overload
    async def run(
        self,
        cmd: Union[str, List[str]],
        background: Literal[True],
        envs: Optional[Dict[str, str]] = None,
        user: Optional[str] = None,
        cwd: Optional[str] = None,
        on_stdout: Optional[TextListener] = None,
        on_stderr: Optional[TextListener] = None,
        stdin: Union[str, bytes, bool, None] = None,
        timeout: Optional[float] = None,
        *,
        tag: Optional[str] = None,
        check: bool = True,
        retain_output: bool = True,
        request_timeout: Optional[float] = None,
    ) -> AsyncCommandHandle: ...

    async def run(
        self,
        cmd: Union[str, List[str]],
        background: Optional[bool] = None,
        envs: Optional[Dict[str, str]] = None,
        user: Optional[str] = None,
        cwd: Optional[str] = None,
        on_stdout: Optional[TextListener] = None,
        on_stderr: Optional[TextListener] = None,
        stdin: Union[str, bytes, bool, None] = None,
        timeout: Optional[float] = None,
        *,
        tag: Optional[str] = None,
        check: bool = True,
        retain_output: bool = True,
        request_timeout: Optional[float] = None,
    ) -> Union[CommandResult, AsyncCommandHandle]:
        """Runs a command to its end, or starts it. A string is passed to ``/bin/sh -c`` inside the guest; a list is the program and its
        arguments, without a shell.

        Args:
            background: Returns a handle at once and does not wait for the end.
            envs: Added to the sandbox's environment.
            on_stdout, on_stderr: Called with output as it arrives; for a background command by a thread, or by a task.
            stdin: Content of its standard input. True: stdin stays open, for ``send_stdin``.
            timeout: Seconds that it may run; 0: no limit. Default: 60, no limit in the background.
            tag: Name of the command; reusable when it has ended.
            check: False: return a result, also for an exit code other than 0 and for a time-out.
            retain_output: False: output passed to the functions is not kept for the result.
            request_timeout: Applies to a command that is not in the background and has no functions: it is one request.

        Raises:
            CommandExitError: the exit code is not 0
            TimeoutError: the command ran longer than ``timeout`` and was killed
            InvalidRequestError: the command could not be started
            SandboxGoneError: the sandbox ended
        """
        args = ["/bin/sh", "-c", cmd] if isinstance(cmd, str) else cmd
        secs = timeout if timeout is not None else 0 if background else _DEFAULT_SECS
        listens = on_stdout is not None or on_stderr is not None
        text = "" if stdin is None or stdin is False else stdin
        if not background and not listens and tag is None and isinstance(text, str) and 0 < secs <= _MAX_EXEC_SECS:
            answer = await self._controller.exec_command(
                self._id, args, secs, env=envs, user=user, cwd=cwd, stdin=text or None, request_timeout=request_timeout
            )
            result = command_result(answer)
            return checked(result) if check else result
        events = self._controller.stream_process(
            self._id, args, env=envs, user=user, cwd=cwd, tag=tag, stdin=text != "" or None, timeout_secs=secs or None
        )
        handle = await self._handle(events, retain_output)
        if isinstance(text, (str, bytes)) and text:
            handle._feed_beside(text)
        if not background:
            return await self._finish(handle, on_stdout, on_stderr, check)
        if listens:
            handle._read_beside(None, on_stdout, on_stderr)
        return handle

    async def list(self, *, request_timeout: Optional[float] = None) -> List[ProcessInfo]:
        """Lists running commands and terminals."""
        found = await self._controller.list_processes(self._id, request_timeout=request_timeout)
        return [process_info(process) for process in found if process["state"] == "running"]

    async def connect(
        self,
        pid: Union[int, str],
        *,
        from_: str = "start",
        on_stdout: Optional[TextListener] = None,
        on_stderr: Optional[TextListener] = None,
        retain_output: bool = True,
    ) -> AsyncCommandHandle:
        """A handle on a command that is running or ended recently.

        Args:
            pid: Its pid or its tag.
            from_: Where to begin: "start" (all retained output), "now", or the ``cursor`` of another handle.
            on_stdout, on_stderr: Called with output as it arrives, by a thread, or by a task.

        Raises:
            NotFoundError: no such command
        """
        process = await self._process(pid, also_ended=True)
        handle = await self._handle(self._controller.watch_process(self._id, process, from_=from_), retain_output)
        if on_stdout is not None or on_stderr is not None:
            handle._read_beside(None, on_stdout, on_stderr)
        return handle

    async def _finish(
        self, handle: AsyncCommandHandle, on_stdout: Optional[TextListener], on_stderr: Optional[TextListener], check: bool
    ) -> CommandResult:
        try:
            return await handle.wait(None, on_stdout, on_stderr, check=check)
        finally:
            await handle.disconnect()
            if handle.exit_code is None:
                # Kills a command whose run() was cancelled or failed.
                await handle.kill()
