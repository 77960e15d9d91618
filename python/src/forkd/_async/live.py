"""Operations that commands and terminals share: find, connect, write, kill."""

from __future__ import annotations

from typing import Optional, Union

from .._wire import bad_answer
from ..errors import NotFoundError
from .command_handle import AsyncCommandHandle
from .controller import AsyncController
from .process_events import AsyncProcessEvents
from .upload import Content


class Live:
    def __init__(self, controller: AsyncController, sandbox_id: str) -> None:
        self._controller = controller
        self._id = sandbox_id

    async def kill(self, pid: Union[int, str], *, request_timeout: Optional[float] = None) -> bool:
        """Kills a command and its process group, by pid or tag; returns when it has ended. False when none is running."""
        try:
            process = await self._process(pid)
        except NotFoundError:
            return False
        await self._controller.kill_process(self._id, process, request_timeout=request_timeout)
        return True

    async def send_stdin(self, pid: Union[int, str], data: Content, *, request_timeout: float = 0) -> None:
        """Writes to stdin; returns when the guest has accepted all of it."""
        await self._controller.write_stdin(self._id, await self._process(pid), data, request_timeout=request_timeout)

    async def close_stdin(self, pid: Union[int, str], *, request_timeout: float = 0) -> None:
        """Closes stdin; for a terminal, sends the end-of-file key."""
        process = await self._process(pid)
        await self._controller.write_stdin(self._id, process, b"", close=True, request_timeout=request_timeout)

    async def _handle(self, events: AsyncProcessEvents, retain_output: bool) -> AsyncCommandHandle:
        """A handle on the process that the first event names."""
        async for event in events:
            if event.started is not None:
                return AsyncCommandHandle(self._controller, self._id, events, event.started, event.cursor, retain_output=retain_output)
            break
        await events.aclose()
        raise bad_answer("The daemon did not name the process.")

    async def _process(self, pid: Union[int, str], *, also_ended: bool = False) -> int:
        """The id of a process, by its pid or its tag; the running one, else the one that ended last."""
        found = [
            process
            for process in await self._controller.list_processes(self._id)
            if pid in (process["pid"], process["tag"]) and (also_ended or process["state"] == "running")
        ]
        if not found:
            raise NotFoundError(
                f"No process {pid!r} runs in {self._id}.", "NOT_FOUND", status=404, hint="commands.list() lists running ones."
            )
        newest = max(found, key=lambda process: (process["state"] == "running", process["started_at_ms"]))
        return newest["id"]
