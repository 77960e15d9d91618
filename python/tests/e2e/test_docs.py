"""Runs each program of the documentation, in order."""

from __future__ import annotations

import contextlib
import io
import re
import unittest
from typing import Any, Dict, List, Tuple

from ..helpers.spec import ROOT

FILES = ("python/README.md", "docs/sdk-python.md")


class Docs(unittest.TestCase):
    def test_every_program_runs(self) -> None:
        for file in FILES:
            names: Dict[str, Any] = {"__name__": "docs"}
            blocks = blocks_of((ROOT / file).read_text())
            self.assertGreater(len(blocks), 0, file)
            for line, language, text in blocks:
                with self.subTest(f"{file}, line {line}"), contextlib.redirect_stdout(io.StringIO()):
                    self.assertEqual(language, "python", "a block in a language that no test runs")
                    exec(compile("\n" * line + text, file, "exec"), names)


def blocks_of(text: str) -> List[Tuple[int, str, str]]:
    """First line, language and text of each program."""
    matches = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text[: match.start()].count("\n") + 1, match.group(1), match.group(2)) for match in matches]
