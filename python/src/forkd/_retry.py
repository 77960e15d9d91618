"""What is tried again, and when."""

from __future__ import annotations

import errno
import random
from typing import Optional

from ._http import StaleConnection
from .errors import ConnectionError, ErrorContext, ForkdError

#: Waits before the second and the third try, in seconds
RETRY_SECS = (0.05, 0.25)
#: A daemon that asks for more patience than this is not waited for
_MAX_RETRY_SECS = 1.0


def connection_error(what: str, base: str, cause: BaseException, context: ErrorContext) -> ConnectionError:
    context = {**context, "hint": "Start it with 'forkd up', or check FORKD_URL."}
    error = ConnectionError(f"{what} at {base}: {_reason_of(cause)}.", "DAEMON_UNREACHABLE", **context)
    error.__cause__ = cause
    return error


def is_transient(error: ForkdError) -> bool:
    """What another try may mend. A socket that is not there will not come by waiting for it."""
    if isinstance(error, ConnectionError):
        return getattr(error.__cause__, "errno", None) != errno.ENOENT
    return error.code in ("BUSY", "STOPPING")


def retry_delay(error: ForkdError, attempt: int) -> float:
    """The daemon's own wish, or a little more each time and never the same for all who wait."""
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
