"""Upper bounds of waits in tests."""

from __future__ import annotations

import os

#: Milliseconds, for runs without the runner, which measures a boot, a fork and an eval on this machine
_ASSUMED_REFERENCE_MS = "10000"
#: The reference is measured on an idle machine; the run executes three files at a time
_BUSY = 2


def patience(times: float = 20) -> float:
    """Seconds: a multiple of the measured time, as in tests/helpers/patience.ts."""
    return float(os.environ.get("FORKD_TEST_REFERENCE_MS") or _ASSUMED_REFERENCE_MS) / 1000 * _BUSY * times
