"""All errors of this package, and the table that maps codes to classes."""

from __future__ import annotations

import builtins
import json
from typing import TYPE_CHECKING, Any, Dict, Optional, Type, TypedDict

from ._error_codes import ERROR_STATUS

if TYPE_CHECKING:
    from .results import CommandResult, Evaluation


class ErrorContext(TypedDict, total=False):
    """The request, and its answer."""

    status: int
    hint: str
    request_id: str
    details: Optional[Dict[str, Any]]
    retry_after_secs: Optional[float]
    method: str
    url: str
    body: Any


# A RuntimeError, for compatibility with the older SDK.
class ForkdError(RuntimeError):
    """Base of every error of this package. ``str()`` has the message, the hint and the code.

    Attributes:
        code: Stable code, see docs/errors.md.
        message: What failed: why.
        hint: What to do.
        status: HTTP status; 0 when there was no answer.
        request_id: Id of the request in the daemon's log; empty when there was no answer.
        details: Structured facts, such as free memory.
        retry_after_secs: Seconds after which the daemon recommends another try.
        method, url: The request.
        body: The answer's body, parsed if it is JSON; None when there was no answer.
    """

    def __init__(
        self,
        message: str,
        code: str = "UNKNOWN",
        *,
        hint: str = "",
        status: int = 0,
        request_id: str = "",
        details: Optional[Dict[str, Any]] = None,
        retry_after_secs: Optional[float] = None,
        method: str = "",
        url: str = "",
        body: Any = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.status = status
        self.request_id = request_id
        self.details = details
        self.retry_after_secs = retry_after_secs
        self.method = method
        self.url = url
        self.body = body

    def __str__(self) -> str:
        return " ".join(part for part in (self.message, self.hint, f"[{self.code}]") if part)


class InvalidRequestError(ForkdError):
    """The request is not valid; nothing was changed (400, 405, 413, 415, 422)."""


class AuthenticationError(ForkdError):
    """The token is missing, wrong, or its scope is too narrow (401, 403)."""


class NotFoundError(ForkdError):
    """No such snapshot, sandbox, image, workspace or token (404)."""


class FileError(ForkdError):
    """A file operation failed in the guest; ``errno`` is the guest's error, such as ``ENOENT``."""

    @property
    def errno(self) -> str:
        """ENOENT, EEXIST, EACCES, ENOSPC, EISDIR, ENOTDIR, …; empty when the error is not one of the guest's system."""
        errno = (self.details or {}).get("errno")
        return errno if isinstance(errno, str) else ""


class ConflictError(ForkdError):
    """It exists already, something depends on it, or its state does not allow the operation (409)."""


class SandboxGoneError(ForkdError):
    """The sandbox ended or was lost (410)."""


class LimitError(ForkdError):
    """A limit is reached or the daemon is busy: end sandboxes, or retry later (429, 503)."""


class TimeoutError(ForkdError, builtins.TimeoutError):
    """Time-out of the call (``request_timeout``), of the code or of the guest (408, 504). Also a built-in TimeoutError."""


class ConnectionError(ForkdError, builtins.ConnectionError):
    """The daemon could not be reached, or the connection broke before the answer was complete. The code is
    DAEMON_UNREACHABLE. Also a built-in ConnectionError."""


class EvalError(ForkdError):
    """The code given to :meth:`Sandbox.eval` raised an error.

    Attributes:
        result: The whole result, with the output before the error.
    """

    def __init__(self, result: Evaluation) -> None:
        super().__init__(result.error or "The code raised an error.", "EVAL_RAISED", hint="The traceback says where.")
        self.args = (result,)
        self.result = result

    @property
    def error_type(self) -> str:
        """Name of the error's class inside the guest, such as ``ZeroDivisionError``."""
        return self.result.error_type or ""

    @property
    def traceback(self) -> str:
        """The guest's traceback."""
        return self.result.traceback or ""


class CommandExitError(ForkdError):
    """A command given to ``sandbox.commands.run`` exited with a code other than 0.

    Attributes:
        result: The whole result.
    """

    def __init__(self, result: CommandResult) -> None:
        message = f"The command exited with code {result.exit_code}{_end_of(result.stderr)}."
        super().__init__(message, "COMMAND_FAILED", hint="With check=False it is a result, not an error.")
        self.args = (result,)
        self.result = result

    @property
    def exit_code(self) -> int:
        """Exit code; 128 + n after signal n."""
        return self.result.exit_code

    @property
    def stdout(self) -> str:
        """Standard output of the command."""
        return self.result.stdout

    @property
    def stderr(self) -> str:
        """Standard error of the command."""
        return self.result.stderr

    @property
    def error(self) -> str:
        """The error message."""
        return self.message


# The code decides the class; the status decides for unknown codes.
_CLASSES: Dict[str, Type[ForkdError]] = {
    "DAEMON_UNREACHABLE": ConnectionError,
    "EXISTS": ConflictError,
    "FILE_NOT_FOUND": FileError,
    "FILE_EXISTS": FileError,
    "FILE_DENIED": FileError,
    "FILE_NO_SPACE": FileError,
    "FILE_FAILED": FileError,
    "LIMIT_REACHED": LimitError,
    "QUOTA_EXCEEDED": LimitError,
    "BUSY": LimitError,
    "400": InvalidRequestError,
    "401": AuthenticationError,
    "403": AuthenticationError,
    "404": NotFoundError,
    "405": InvalidRequestError,
    "408": TimeoutError,
    "409": ConflictError,
    "410": SandboxGoneError,
    "413": InvalidRequestError,
    "415": InvalidRequestError,
    "422": InvalidRequestError,
    "429": LimitError,
    "504": TimeoutError,
}


def error_of_answer(status: int, text: str, context: ErrorContext) -> ForkdError:
    """Fields of an error answer. A proxy may answer with any content."""
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if isinstance(body, dict) and isinstance(body.get("error"), str):
        return error_of_problem(body, {**context, "status": status, "body": body})
    message = text.strip()[:500] or f"The server answered with status {status}."
    return _error_of(f"HTTP_{status}", message, {**context, "status": status, "body": text})


def error_of_problem(problem: Dict[str, Any], context: ErrorContext) -> ForkdError:
    """The error of an answer, or of a streamed line, which has no status but that of its code."""
    more: ErrorContext = {
        **context,
        "hint": problem.get("hint") or "",
        "request_id": problem.get("request_id") or context.get("request_id", ""),
        "details": problem.get("details"),
    }
    return _error_of(problem.get("code") or "UNKNOWN", problem["error"], more)


def _error_of(code: str, message: str, context: ErrorContext) -> ForkdError:
    status = context.get("status") or ERROR_STATUS.get(code, 500)
    chosen = _CLASSES.get(code) or _CLASSES.get(str(status)) or ForkdError
    context = {**context, "status": status}
    return chosen(message, code, **context)


def _end_of(stderr: str) -> str:
    lines = stderr.strip().splitlines()
    return f": {lines[-1][:200].rstrip('.')}" if lines else ""
