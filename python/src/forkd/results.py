"""Results of commands, code and file operations, as small objects with attributes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, List, Literal, Optional, Union

from .types import DisplayResult, EvalResult, ExecResult, FileInfo, ListedFile, OutputLost, Process, ProcessExit, ProcessStarted


@dataclass(frozen=True)
class CommandResult:
    """A command that has ended."""

    stdout: str
    stderr: str
    #: 128 + n after signal n, 124 after a time-out
    exit_code: int
    #: The signal that ended it, such as ``SIGTERM``
    signal: Optional[str] = None
    timed_out: bool = False
    #: Output beyond what is kept was dropped
    truncated: bool = False


@dataclass(frozen=True)
class Evaluation:
    """The result of code in the warm interpreter. ``str()`` of it is ``result``."""

    #: The last value as text; None when the code does not end with an expression
    result: Optional[str]
    #: The last value if JSON can represent it, else None
    value: Any
    #: The error that the code raised
    error: Optional[str]
    error_type: Optional[str]
    traceback: Optional[str]
    #: 0, or 1 when the code raised an error; of a shell the status of the last command
    exit_code: int
    #: Output of the code
    stdout: str
    stderr: str
    #: Output or results beyond what is kept were dropped
    truncated: bool
    #: Displayed objects, such as figures, by MIME type, and the value if it has more than text
    results: List[DisplayResult] = field(default_factory=list)
    #: Number of evals of its interpreter, this one included
    execution_count: int = 0

    def __str__(self) -> str:
        return str(self.result)


@dataclass(frozen=True)
class ProcessEvent:
    """One event of a watched process. Each type has its own field; the others are empty."""

    type: Literal["started", "stdout", "stderr", "lost", "exit"]
    #: Position after this event; a later watch can continue from it
    cursor: str
    #: For stdout and stderr
    data: bytes = b""
    #: Offset of the data in the whole output
    offset: int = 0
    started: Optional[ProcessStarted] = None
    #: Requested output that is no longer retained
    lost: Optional[OutputLost] = None
    exit: Optional[ProcessExit] = None


@dataclass(frozen=True)
class ProcessInfo:
    """A process of a sandbox."""

    #: Process id in the API; the same in forks of the sandbox
    id: int
    #: Process id inside the guest
    pid: int
    tag: Optional[str]
    #: The program and its arguments
    args: List[str]
    cwd: str
    user: str
    #: Whether it has a terminal
    terminal: bool
    #: Whether its stdin is open
    stdin_open: bool
    #: Seconds since 1970, by the guest's clock
    started_at: float
    state: Literal["running", "ended"]
    #: None while it runs
    exit_code: Optional[int]
    signal: Optional[str]
    timed_out: bool

    @property
    def cmd(self) -> str:
        """The program."""
        return self.args[0] if self.args else ""


@dataclass(frozen=True)
class PtySize:
    """Size of a terminal."""

    rows: int
    cols: int


@dataclass(frozen=True)
class EntryInfo:
    """A file, a directory or a link of a sandbox."""

    name: str
    #: In the form that every call accepts
    path: str
    type: Literal["file", "directory", "symlink", "char", "block", "fifo", "socket"]
    size: int
    #: Permission bits, such as 0o644
    mode: int
    uid: int
    gid: int
    #: Name of the owner in the guest; None when the number has none
    owner: Optional[str]
    group: Optional[str]
    modified_time: datetime
    #: Target of a link
    symlink_target: Optional[str]


@dataclass(frozen=True)
class FileChange:
    """A change in a watched directory."""

    #: overflow: changes were lost; list the directory again
    type: Literal["created", "modified", "attributes", "removed", "moved", "overflow"]
    path: str
    #: Previous path of a moved file
    from_path: Optional[str] = None
    is_directory: bool = False

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]


def entry_info(path: str, answer: Union[FileInfo, ListedFile]) -> EntryInfo:
    return EntryInfo(
        name=path.rstrip("/").rsplit("/", 1)[-1] or "/",
        path=path,
        type=answer["kind"],
        size=answer["size"],
        mode=int(answer["mode"], 8),
        uid=answer["uid"],
        gid=answer["gid"],
        owner=answer["owner"],
        group=answer["group"],
        modified_time=datetime.fromtimestamp(answer["mtime_ms"] / 1000, timezone.utc),
        symlink_target=answer["target"],
    )


def process_info(answer: Process) -> ProcessInfo:
    return ProcessInfo(
        id=answer["id"],
        pid=answer["pid"],
        tag=answer["tag"],
        args=answer["args"],
        cwd=answer["cwd"],
        user=answer["user"],
        terminal=answer["terminal"],
        stdin_open=answer["stdin_open"],
        started_at=answer["started_at_ms"] / 1000,
        state=answer["state"],
        exit_code=answer["exit_code"],
        signal=answer["signal"],
        timed_out=answer["timed_out"],
    )


def command_result(answer: ExecResult) -> CommandResult:
    return CommandResult(
        stdout=answer["stdout"],
        stderr=answer["stderr"],
        exit_code=answer["exit_code"],
        signal=answer["signal"],
        timed_out=answer["timed_out"],
        truncated=answer["truncated"],
    )


def evaluation(answer: EvalResult) -> Evaluation:
    return Evaluation(
        result=answer["result"],
        value=answer.get("value"),
        error=answer["error"],
        error_type=answer["error_type"],
        traceback=answer["traceback"],
        exit_code=answer["exit_code"],
        stdout=answer["stdout"],
        stderr=answer["stderr"],
        truncated=answer["truncated"],
        results=answer["results"],
        execution_count=answer["execution_count"],
    )
