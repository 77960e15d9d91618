"""The interpreters of one sandbox."""

from __future__ import annotations

from typing import Dict, List, Optional, Union

from ..types import Context, Language
from .controller import AsyncController


class AsyncContexts:
    """Interpreters, each with its own state. The first one of a language has the language's name as its id."""

    def __init__(self, controller: AsyncController, sandbox_id: str) -> None:
        self._controller = controller
        self._sandbox_id = sandbox_id

    async def list(self, *, request_timeout: Optional[float] = None) -> List[Context]:
        """Lists the contexts of the sandbox."""
        return await self._controller.list_contexts(self._sandbox_id, request_timeout=request_timeout)

    async def create(
        self,
        language: Language = "python",
        *,
        cwd: Optional[str] = None,
        envs: Optional[Dict[str, str]] = None,
        request_timeout: Optional[float] = None,
    ) -> Context:
        """Starts another interpreter.

        Args:
            cwd: Its working directory; without it, ``/``.
        """
        return await self._controller.create_context(self._sandbox_id, language, cwd=cwd, env=envs, request_timeout=request_timeout)

    async def remove(self, context: Union[str, Context], *, request_timeout: Optional[float] = None) -> None:
        """Ends an interpreter and the processes it started."""
        await self._controller.delete_context(self._sandbox_id, _id_of(context), request_timeout=request_timeout)

    async def restart(self, context: Union[str, Context], *, request_timeout: Optional[float] = None) -> Context:
        """Replaces an interpreter by a fresh one with empty state."""
        return await self._controller.restart_context(self._sandbox_id, _id_of(context), request_timeout=request_timeout)

    async def interrupt(self, context: Union[str, Context], *, request_timeout: Optional[float] = None) -> None:
        """Interrupts the code that an interpreter runs; its state is kept."""
        await self._controller.interrupt_context(self._sandbox_id, _id_of(context), request_timeout=request_timeout)


def _id_of(context: Union[str, Context]) -> str:
    return context if isinstance(context, str) else context["id"]
