"""The time a call may take."""

from __future__ import annotations

import time
from typing import Optional

from .errors import TimeoutError

#: What a socket and a timer can hold
_MAX_SECS = 10**6


def end_of(timeout: Optional[float]) -> Optional[float]:
    """When so many seconds will have passed, on the clock of deadlines; None: never."""
    return None if timeout is None else time.monotonic() + timeout


class Elapsed(Exception):
    """The caller's own end of an endless stream has come. Never leaves this package."""


class Deadline:
    """Starts anew with each sign of life; beyond that, an endless stream may have an end of its own."""

    def __init__(self, describe: str, timeout: float, until: Optional[float] = None) -> None:
        self._describe = describe
        self._timeout = timeout
        #: of :func:`end_of`
        self._until = until
        self._end: Optional[float] = None
        self.restart()

    def restart(self) -> None:
        """Something came: the time starts anew."""
        self._end = time.monotonic() + self._timeout if 0 < self._timeout < _MAX_SECS else None

    def pause(self) -> None:
        """No limit until restart."""
        self._end = None

    def remaining(self) -> Optional[float]:
        """Seconds left, always more than 0; None: no limit.

        Raises:
            TimeoutError: nothing is left
        """
        ends = [end for end in (self._end, self._until) if end is not None]
        if not ends:
            return None
        left = min(ends) - time.monotonic()
        if left <= 0:
            raise self.error()
        return left

    def error(self) -> Exception:
        """What a call that is over fails with."""
        if self._until is not None and time.monotonic() >= self._until:
            return Elapsed()
        return TimeoutError(
            f"{self._describe} took longer than {self._timeout:g} s.",
            "CALL_TIMEOUT",
            hint="Raise request_timeout if it is only slow. Whether it was done is not known.",
        )
