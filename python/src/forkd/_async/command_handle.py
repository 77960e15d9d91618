"""Handle on one running command."""

from __future__ import annotations

from types import TracebackType
from typing import Any, AsyncGenerator, Callable, List, Literal, Optional, Tuple, Type, Union

from .._streams import TextDecoder
from ..errors import CommandExitError, ConflictError, ForkdError, NotFoundError, TimeoutError
from ..results import CommandResult, ProcessEvent, PtySize
from ..types import ProcessExit, ProcessStarted, SignalProcessSignal
from .controller import AsyncController
from .net import Background, Lock, notify
from .process_events import AsyncProcessEvents
from .upload import Content

#: One piece of output: stdout, stderr, terminal
Piece = Tuple[Optional[str], Optional[str], Optional[bytes]]
TextListener = Callable[[str], Any]
BytesListener = Callable[[bytes], Any]


class AsyncCommandHandle:
    """A command that was started, or connected to. It continues when the handle is closed.

    Its output is read by :meth:`wait`, by an iteration, or by the functions it was started with. Without a reader, the command
    blocks when its pipe is full, and continues after 30 seconds. Output that was dropped by then sets ``truncated`` of the
    result.

    Attributes:
        id: Process id in the API; the same in forks of the sandbox.
        pid: Process id inside the guest.
        tag: Name of the command, if it has one.
        cursor: Position after the output read so far; ``commands.connect`` can continue from it.
    """

    def __init__(
        self,
        controller: AsyncController,
        sandbox_id: str,
        events: AsyncProcessEvents,
        started: ProcessStarted,
        cursor: str,
        *,
        retain_output: bool = True,
    ) -> None:
        self._controller = controller
        self._sandbox_id = sandbox_id
        self._events = events
        self._retain_output = retain_output
        self.id: int = started["id"]
        self.pid: int = started["pid"]
        self.tag: Optional[str] = started["tag"]
        self.cursor = cursor
        self._is_terminal = started["terminal"]
        self._text = {"stdout": TextDecoder(), "stderr": TextDecoder()}
        self._stdout: List[str] = []
        self._stderr: List[str] = []
        self._is_truncated = False
        self._exit: Optional[ProcessExit] = None
        self._failure: Optional[Exception] = None
        self._reader: Optional[Background] = None
        self._writer: Optional[Background] = None
        self._stdin = Lock()

    @property
    def stdout(self) -> str:
        """Standard output read so far."""
        return "".join(self._stdout)

    @property
    def stderr(self) -> str:
        """Standard error read so far."""
        return "".join(self._stderr)

    @property
    def exit_code(self) -> Optional[int]:
        """None until the end of the command was read."""
        return None if self._exit is None else self._exit["exit_code"]

    async def wait(
        self,
        on_pty: Optional[BytesListener] = None,
        on_stdout: Optional[TextListener] = None,
        on_stderr: Optional[TextListener] = None,
        *,
        check: bool = True,
    ) -> CommandResult:
        """Reads the output until the command ends, and returns the result.

        Args:
            on_pty, on_stdout, on_stderr: Called with the output, in order. Characters are never split.
            check: False: return a result, also for an exit code other than 0 and for a time-out.

        Raises:
            CommandExitError: the exit code is not 0
            TimeoutError: the command ran longer than its ``timeout`` and was killed
            SandboxGoneError: the sandbox ended
        """
        if self._reader is not None:
            await self._reader.join()
        else:
            await self._read(on_pty, on_stdout, on_stderr)
        if self._failure is not None:
            raise self._failure
        if self._exit is None:
            raise ForkdError(f"Process {self.id} is no longer watched.", "CANCELLED", hint="Connect to it again.")
        return self._result(self._exit, check)

    async def __aiter__(self) -> AsyncGenerator[Piece, None]:
        """Output as it arrives: ``(stdout, stderr, pty)``, of which one is not None."""
        if self._reader is not None:
            raise ForkdError(f"The output of process {self.id} is read already.", "BAD_REQUEST", hint="Connect to it once more.")
        async for event in self._events:
            self.cursor = event.cursor
            piece = self._take(event)
            if piece is not None:
                yield piece

    async def kill(self, *, request_timeout: Optional[float] = None) -> bool:
        """Kills the command and its process group, and returns when it has ended. False when it had ended already."""
        try:
            info = await self._controller.get_process(self._sandbox_id, self.id, request_timeout=request_timeout)
            await self._controller.kill_process(self._sandbox_id, self.id, request_timeout=request_timeout)
        except NotFoundError:
            return False
        return info["state"] == "running"

    async def send_signal(
        self, signal: SignalProcessSignal, *, scope: Optional[Literal["group", "process"]] = None, request_timeout: Optional[float] = None
    ) -> None:
        """Sends a signal, such as "SIGINT", to the process group; with the scope "process" only to the command itself."""
        await self._controller.signal_process(self._sandbox_id, self.id, signal, scope=scope, request_timeout=request_timeout)

    async def send_stdin(self, data: Content, *, request_timeout: float = 0) -> None:
        """Writes to stdin; returns when the guest has accepted all of it."""
        async with self._stdin:
            await self._controller.write_stdin(self._sandbox_id, self.id, data, request_timeout=request_timeout)

    async def close_stdin(self, *, request_timeout: float = 0) -> None:
        """Closes stdin; for a terminal, sends the end-of-file key."""
        async with self._stdin:
            await self._controller.write_stdin(self._sandbox_id, self.id, b"", close=True, request_timeout=request_timeout)

    async def resize(self, size: PtySize, *, request_timeout: Optional[float] = None) -> None:
        """Sets the size of the terminal."""
        await self._controller.resize_process(self._sandbox_id, self.id, size.rows, size.cols, request_timeout=request_timeout)

    async def disconnect(self) -> None:
        """Stops watching; the command continues."""
        await self._events.aclose()

    async def __aenter__(self) -> AsyncCommandHandle:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        await self.disconnect()

    def _read_beside(self, on_pty: Optional[BytesListener], on_stdout: Optional[TextListener], on_stderr: Optional[TextListener]) -> None:
        """Starts to read the output in the background."""

        async def read() -> None:
            try:
                await self._read(on_pty, on_stdout, on_stderr)
            except Exception as error:  # noqa: BLE001 -- wait() raises it
                self._failure = error
            finally:
                await self._events.aclose()

        self._reader = Background(read)

    def _feed_beside(self, data: Union[str, bytes]) -> None:
        """Writes stdin while the output is read: the command may block on its output before it reads its input."""

        async def write() -> None:
            try:
                await self._controller.write_stdin(self._sandbox_id, self.id, data, close=True, request_timeout=0)
            except ConflictError:
                pass  # the command ended or closed its stdin before it had read everything
            except Exception as error:  # noqa: BLE001 -- wait() raises it
                self._failure = error
                await self._events.aclose()

        self._writer = Background(write)

    async def _read(self, on_pty: Optional[BytesListener], on_stdout: Optional[TextListener], on_stderr: Optional[TextListener]) -> None:
        async for event in self._events:
            self.cursor = event.cursor
            piece = self._take(event)
            if piece is not None:
                for listener, part in zip((on_stdout, on_stderr, on_pty), piece):
                    if part is not None:
                        await notify(listener, part)

    def _take(self, event: ProcessEvent) -> Optional[Piece]:
        if event.exit is not None:
            self._exit = event.exit
        elif event.lost is not None:
            self._is_truncated = True
            self._text[event.lost["channel"]] = TextDecoder()
        elif event.type == "stdout" or event.type == "stderr":
            text = self._text[event.type].feed(event.data)
            if self._retain_output:
                (self._stdout if event.type == "stdout" else self._stderr).append(text)
            if self._is_terminal:
                return (None, None, event.data)
            if text != "":
                return (text, None, None) if event.type == "stdout" else (None, text, None)
        return None

    def _result(self, ended: ProcessExit, check: bool) -> CommandResult:
        result = CommandResult(
            self.stdout, self.stderr, ended["exit_code"], ended["signal"], ended["timed_out"], truncated=self._is_truncated
        )
        return checked(result) if check else result


def checked(result: CommandResult) -> CommandResult:
    """The result of a command that succeeded."""
    if result.timed_out:
        raise TimeoutError(
            "The command ran longer than its timeout and was killed.", "COMMAND_TIMEOUT", hint="Raise timeout if it is only slow."
        )
    if result.exit_code != 0:
        raise CommandExitError(result)
    return result
