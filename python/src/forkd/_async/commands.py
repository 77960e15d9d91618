"""The commands of one sandbox."""

from __future__ import annotations

from typing import Dict, List, Optional, Union

from ..errors import CommandExitError, TimeoutError
from ..results import CommandResult, command_result
from .controller import AsyncController


class AsyncCommands:
    """Commands inside a sandbox."""

    def __init__(self, controller: AsyncController, sandbox_id: str) -> None:
        self._controller = controller
        self._id = sandbox_id

    async def run(
        self,
        cmd: Union[str, List[str]],
        *,
        envs: Optional[Dict[str, str]] = None,
        user: Optional[str] = None,
        cwd: Optional[str] = None,
        stdin: Optional[str] = None,
        timeout: float = 60.0,
        check: bool = True,
        request_timeout: Optional[float] = None,
    ) -> CommandResult:
        """Runs a command to its end. Text is given to ``/bin/sh -c`` inside the guest; a list is the program and its arguments,
        without a shell.

        Args:
            envs: Added to the sandbox's environment.
            stdin: What it reads.
            timeout: How many seconds it may run.
            check: False: an exit code other than 0, and a time-out, are results.

        Raises:
            CommandExitError: its exit code is not 0
            TimeoutError: it ran longer than ``timeout`` and was ended
            InvalidRequestError: it could not be started
            SandboxGoneError: the sandbox ended
        """
        args = ["/bin/sh", "-c", cmd] if isinstance(cmd, str) else cmd
        answer = await self._controller.exec_command(
            self._id, args, timeout, env=envs, user=user, cwd=cwd, stdin=stdin, request_timeout=request_timeout
        )
        result = command_result(answer)
        if check and result.timed_out:
            raise TimeoutError(f"The command ran longer than {timeout:g} s.", "COMMAND_TIMEOUT", hint="Raise timeout if it is only slow.")
        if check and result.exit_code != 0:
            raise CommandExitError(result)
        return result
