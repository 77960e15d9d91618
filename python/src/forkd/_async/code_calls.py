"""Calls about code: run in an interpreter that keeps its state, and the interpreters."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, cast

from .. import types
from .._call import Call
from .._streams import EventDecoder
from .._wire import bad_answer, fields, parse_json, path
from ..errors import ConnectionError, ForkdError, error_of_problem
from .net import notify
from .sandbox_calls import SandboxCalls

#: The daemon's own time-out for programs and code
_DEFAULT_SECS = 30.0
#: For the way there and back, beyond the time the guest is given
_MARGIN_SECS = 10.0
#: Of stdout, and of stderr: the callbacks get all of it
_MOST_KEPT = 8 * 1024 * 1024


class CodeCalls(SandboxCalls):
    async def eval_code(
        self,
        sandbox_id: str,
        code: str,
        *,
        language: Optional[types.Language] = None,
        context: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        timeout_secs: Optional[float] = None,
        on_stdout: Optional[Callable[[str], Any]] = None,
        on_stderr: Optional[Callable[[str], Any]] = None,
        on_result: Optional[Callable[[types.DisplayResult], Any]] = None,
        idempotency_key: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> types.EvalResult:
        """Runs code in a warm interpreter, which keeps its state. What the code raises is a result, not an error. Never repeated
        by itself, unless ``idempotency_key`` is given. With a callback, output and results come as they are made.

        Args:
            language: Needed only when the snapshot has several; one that is not warm yet is started, where the image has it.
            context: Where it runs, in place of the language's own interpreter.
            env: Set while this code runs.
            timeout_secs: How long the code may run; without it, 30.
        """
        asked = fields(code=code, language=language, context=context, env=env, timeout_secs=timeout_secs)
        timeout = with_margin(timeout_secs, request_timeout)
        if on_stdout is None and on_stderr is None and on_result is None:
            at = path("/v1/sandboxes/{}/eval", sandbox_id)
            return await self._client.json(Call[types.EvalResult]("POST", at, json=asked, idempotency_key=idempotency_key, timeout=timeout))
        at = path("/v1/sandboxes/{}/eval/stream", sandbox_id)
        call = Call[bytes]("POST", at, json=asked, headers={"accept": "text/event-stream"}, timeout=timeout)
        callbacks = {"stdout": on_stdout, "stderr": on_stderr, "result": on_result}
        return await self._streamed(call, callbacks)

    async def _streamed(self, call: Call[bytes], callbacks: Dict[str, Optional[Callable[[Any], Any]]]) -> types.EvalResult:
        printed = {"stdout": "", "stderr": ""}
        results: List[types.DisplayResult] = []
        is_cut = False
        decoder = EventDecoder()
        chunks = self._client.stream(call)
        try:
            async for chunk in chunks:
                for event in decoder.feed(chunk):
                    data = parse_json(event.data)
                    if event.type in printed:
                        is_cut = is_cut or len(printed[event.type]) + len(data["text"]) > _MOST_KEPT
                        printed[event.type] = (printed[event.type] + data["text"])[:_MOST_KEPT]
                        await notify(callbacks[event.type], data["text"])
                    elif event.type == "result":
                        results.append(data)
                        await notify(callbacks["result"], data)
                    elif event.type == "end":
                        kept = {"results": results, "truncated": data["truncated"] or is_cut}
                        return cast(types.EvalResult, {**data, **printed, **kept})
                    elif event.type == "error":
                        raise error_of_problem(data, {})
                    else:
                        raise bad_answer(f"Code that runs has no event of the type {event.type!r}.")
        finally:
            await chunks.aclose()
        raise _stopped()

    async def list_contexts(self, sandbox_id: str, *, request_timeout: Optional[float] = None) -> List[types.Context]:
        """Interpreters of a sandbox, each with its own state."""
        return await self._client.json(
            Call[List[types.Context]]("GET", path("/v1/sandboxes/{}/contexts", sandbox_id), timeout=request_timeout)
        )

    async def create_context(
        self,
        sandbox_id: str,
        language: types.Language = "python",
        *,
        cwd: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        idempotency_key: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> types.Context:
        """Starts another interpreter, with a state of its own.

        Args:
            cwd: Where it begins; without it, ``/``.
        """
        call = Call[types.Context](
            "POST",
            path("/v1/sandboxes/{}/contexts", sandbox_id),
            json=fields(language=language, cwd=cwd, env=env),
            idempotency_key=idempotency_key,
            timeout=request_timeout,
        )
        return await self._client.json(call)

    async def delete_context(self, sandbox_id: str, context: str, *, request_timeout: Optional[float] = None) -> None:
        """Ends an interpreter and what it runs."""
        at = path("/v1/sandboxes/{}/contexts/{}", sandbox_id, context)
        await self._client.empty(Call[None]("DELETE", at, timeout=request_timeout))

    async def restart_context(self, sandbox_id: str, context: str, *, request_timeout: Optional[float] = None) -> types.Context:
        """Puts a fresh interpreter in its place, with nothing of its state."""
        at = path("/v1/sandboxes/{}/contexts/{}/restart", sandbox_id, context)
        return await self._client.json(Call[types.Context]("POST", at, timeout=request_timeout))

    async def interrupt_context(self, sandbox_id: str, context: str, *, request_timeout: Optional[float] = None) -> None:
        """Interrupts the code that it runs; its state stays."""
        at = path("/v1/sandboxes/{}/contexts/{}/interrupt", sandbox_id, context)
        await self._client.empty(Call[None]("POST", at, timeout=request_timeout))


def with_margin(timeout_secs: Optional[float], request_timeout: Optional[float]) -> float:
    if request_timeout is not None:
        return request_timeout
    return (_DEFAULT_SECS if timeout_secs is None else timeout_secs) + _MARGIN_SECS


def _stopped() -> ForkdError:
    return ConnectionError("The daemon stopped while the code ran, which was interrupted.", "DAEMON_UNREACHABLE")
