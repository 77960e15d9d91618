"""The shell of this machine."""

import asyncio
import os
import signal
from pathlib import Path

from tool import text, tool

SECONDS = 60


async def run_shell(command: str, timeout_secs: float = SECONDS) -> "list[dict]":
    child = await asyncio.create_subprocess_exec(
        "/bin/bash",
        "-c",
        command,
        cwd=Path.home(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = await asyncio.wait_for(child.communicate(), timeout_secs)
    except asyncio.TimeoutError:
        os.killpg(child.pid, signal.SIGKILL)
        await child.wait()
        raise TimeoutError(f"not finished after {timeout_secs} s") from None
    return text(f"{output.decode(errors='replace')}\nexit code {child.returncode}")


TOOLS = [
    tool(
        run_shell,
        "Runs a command line with bash in the home folder; gives its output and its exit code.",
        optional=("timeout_secs",),
        command={"type": "string"},
        timeout_secs={"type": "number", "exclusiveMinimum": 0, "default": SECONDS},
    ),
]
