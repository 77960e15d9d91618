"""Runs a folder of tests and says how many passed. Usage: python3 python/tests/run.py unit|e2e [NAME...]"""

from __future__ import annotations

import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    folder, *names = sys.argv[1:]
    loader = unittest.TestLoader()
    sys.path.insert(0, str(ROOT))
    if names:
        suite = loader.loadTestsFromNames([f"tests.{folder}.{name}" for name in names])
    else:
        suite = loader.discover(str(ROOT / "tests" / folder), top_level_dir=str(ROOT))
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    print(f"{result.testsRun - failed - len(result.skipped)} passed, {failed} failed", flush=True)
    return 0 if result.wasSuccessful() and result.testsRun > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
