"""Which failures are retried, and after what wait."""

from __future__ import annotations

import errno
import random
from typing import Optional

from ._http import StaleConnection
from .errors import ConnectionError, ErrorContext, ForkdError

#: Waits before the second and the third try, in seconds
RETRY_SECS = (0.05, 0.25)
#: Longest wait between tries, also when the daemon asks for more
_MAX_RETRY_SECS = 1.0


def connection_error(what: str, base: str, cause: BaseException, context: ErrorContext) -> ConnectionError:
    context = {**context, "hint": "Start it with 'forkd up', or check FORKD_URL."}
    error = ConnectionError(f"{what} at {base}: {_reason_of(cause)}.", "DAEMON_UNREACHABLE", **context)
    error.__cause__ = cause
    return error


def is_transient(error: ForkdError) -> bool:
    """Whether another try may succeed. A missing socket does not appear by waiting."""
    if isinstance(error, ConnectionError):
        return getattr(error.__cause__, "errno", None) != errno.ENOENT
    return error.code in ("BUSY", "STOPPING")


def retry_delay(error: ForkdError, attempt: int) -> float:
    """The daemon's Retry-After, else a growing wait with jitter, so that clients do not retry at the same time."""
    if isinstance(error.__cause__, StaleConnection):
        return 0.0
    if error.retry_after_secs is not None:
        return min(error.retry_after_secs, _MAX_RETRY_SECS)
    return RETRY_SECS[min(attempt, len(RETRY_SECS) - 1)] * (0.5 + random.random())


def _reason_of(cause: BaseException) -> str:
    number: Optional[int] = getattr(cause, "errno", None)
    if number == errno.ENOENT:
        return "there is no such socket"
    if number == errno.ECONNREFUSED:
        return "nothing listens there"
    text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return text[:1].lower() + text[1:].rstrip(".")
