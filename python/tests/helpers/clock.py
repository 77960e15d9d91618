"""A clock for deadlines that tests advance, so that no test waits."""

from __future__ import annotations

import time
from unittest import mock


class Clock:
    """While active, deadlines see the real time plus an offset."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._patch = mock.patch("forkd._deadline.time", self)

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    def __enter__(self) -> Clock:
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()
