"""Time limits of calls."""

from __future__ import annotations

import time
from typing import Optional

from .errors import TimeoutError

#: Largest time-out that sockets and timers accept
_MAX_SECS = 10**6
#: The daemon's default time-out for programs and code
_GUEST_SECS = 30.0
#: Added to the guest's time for the round trip
_GUEST_MARGIN_SECS = 10.0
#: Added to the default time-out for each child of a fork
_PER_CHILD_SECS = 0.5


def end_of(timeout: Optional[float]) -> Optional[float]:
    """The time in so many seconds, on the clock of deadlines; None: no limit."""
    return None if timeout is None else time.monotonic() + timeout


def guest_timeout(timeout_secs: Optional[float], request_timeout: Optional[float]) -> float:
    """Time-out of a call that runs a program or code."""
    if request_timeout is not None:
        return request_timeout
    return (_GUEST_SECS if timeout_secs is None else timeout_secs) + _GUEST_MARGIN_SECS


def fork_timeout(usual: float, n: int, request_timeout: Optional[float]) -> float:
    """Time-out of a call that starts ``n`` children."""
    if request_timeout is not None:
        return request_timeout
    return 0 if usual == 0 else usual + n * _PER_CHILD_SECS


class Elapsed(Exception):
    """The time that the caller gave an endless stream has passed. Never leaves this package."""


class Deadline:
    """A time limit that restarts with each received byte. An endless stream may have a fixed end as well."""

    def __init__(self, describe: str, timeout: float, until: Optional[float] = None) -> None:
        self._describe = describe
        self._timeout = timeout
        #: of :func:`end_of`
        self._until = until
        self._end: Optional[float] = None
        self.restart()

    def restart(self) -> None:
        """Restarts the time after data arrived."""
        self._end = time.monotonic() + self._timeout if 0 < self._timeout < _MAX_SECS else None

    def pause(self) -> None:
        """Suspends the limit until restart."""
        self._end = None

    def remaining(self) -> Optional[float]:
        """Seconds left, always more than 0; None: no limit.

        Raises:
            TimeoutError: the time has passed
        """
        ends = [end for end in (self._end, self._until) if end is not None]
        if not ends:
            return None
        left = min(ends) - time.monotonic()
        if left <= 0:
            raise self.error()
        return left

    def error(self) -> Exception:
        """The error of a call whose time has passed."""
        if self._until is not None and time.monotonic() >= self._until:
            return Elapsed()
        return TimeoutError(
            f"{self._describe} took longer than {self._timeout:g} s.",
            "CALL_TIMEOUT",
            hint="Raise request_timeout if it is only slow. It is not known whether the daemon did it.",
        )
