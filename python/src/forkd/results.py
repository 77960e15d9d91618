"""What commands, code and files give back: small objects with attributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from .types import EvalResult, ExecResult


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
    """What code in the warm interpreter gave. ``str()`` of it is ``result``."""

    #: The last value as text; None when the code does not end with an expression
    result: Optional[str]
    #: The last value where JSON can carry it unchanged, else None
    value: Any
    #: What was raised
    error: Optional[str]
    error_type: Optional[str]
    traceback: Optional[str]
    #: 0, or 1 when the code raised an error
    exit_code: int
    #: What it printed
    stdout: str
    stderr: str
    #: Output beyond what is kept was dropped
    truncated: bool

    def __str__(self) -> str:
        return str(self.result)


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
    )
