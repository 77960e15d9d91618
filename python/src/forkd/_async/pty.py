"""The terminals of one sandbox."""

from __future__ import annotations

from typing import Dict, List, Optional, Union

from ..results import PtySize
from .command_handle import AsyncCommandHandle, BytesListener
from .live import Live

#: Login shell: bash if the image has it, else sh
_ANY_SHELL = ["/bin/sh", "-c", "if command -v bash >/dev/null; then exec bash -il; fi; exec sh -il"]


class AsyncPty(Live):
    """Terminals inside a sandbox. A running one is named by its pid or its tag."""

    async def create(
        self,
        size: PtySize,
        *,
        cmd: Optional[List[str]] = None,
        user: Optional[str] = None,
        cwd: Optional[str] = None,
        envs: Optional[Dict[str, str]] = None,
        on_data: Optional[BytesListener] = None,
        timeout: Optional[float] = None,
        tag: Optional[str] = None,
    ) -> AsyncCommandHandle:
        """Starts a program in a new terminal. Its output is bytes; data written to stdin is typed into the terminal.

        Args:
            cmd: The program and its arguments; without it, a login shell.
            envs: Added to the sandbox's environment, over TERM=xterm-256color.
            on_data: Called with output as it arrives, by a thread, or by a task.
            timeout: Seconds that it may run; without it, no limit.
            tag: Name of the terminal; reusable when it has ended.
        """
        events = self._controller.stream_process(
            self._id,
            cmd or _ANY_SHELL,
            env={"TERM": "xterm-256color", **(envs or {})},
            user=user,
            cwd=cwd,
            tag=tag,
            terminal={"rows": size.rows, "cols": size.cols},
            timeout_secs=timeout or None,
        )
        return await self._opened(await self._handle(events, on_data is None), on_data)

    async def connect(self, pid: Union[int, str], *, from_: str = "start", on_data: Optional[BytesListener] = None) -> AsyncCommandHandle:
        """A handle on a running terminal; see ``commands.connect``."""
        process = await self._process(pid, also_ended=True)
        events = self._controller.watch_process(self._id, process, from_=from_)
        return await self._opened(await self._handle(events, on_data is None), on_data)

    async def resize(self, pid: Union[int, str], size: PtySize, *, request_timeout: Optional[float] = None) -> None:
        """Sets the size of a terminal."""
        process = await self._process(pid)
        await self._controller.resize_process(self._id, process, size.rows, size.cols, request_timeout=request_timeout)

    async def _opened(self, handle: AsyncCommandHandle, on_data: Optional[BytesListener]) -> AsyncCommandHandle:
        if on_data is not None:
            handle._read_beside(on_data, None, None)
        return handle
