"""Streamed evals, and contexts."""

from __future__ import annotations

import json
from typing import Any, List

import forkd

from ..helpers.both import HalfCase, both, get
from ..helpers.fake_daemon import FakeDaemon, Reply, Seen

END = {
    "result": "7",
    "value": 7,
    "error": None,
    "error_type": None,
    "traceback": None,
    "exit_code": 0,
    "truncated": False,
    "execution_count": 2,
}
SHOWN = {"is_main": False, "data": {"text/html": "<b>"}}


def event(kind: str, data: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def streaming(*events: bytes) -> Any:
    async def override(seen: Seen, reply: Reply, _: int) -> bool:
        if seen.route != "evalStream":
            return False
        await reply.head(200, "text/event-stream")
        await reply.chunk(b"".join(events))
        return await reply.end()

    return override


@both(globals())
class Code(HalfCase):
    async def test_callbacks_are_called_in_order_and_the_result_is_complete(self) -> None:
        said = streaming(event("stdout", {"text": "one\n"}), event("result", SHOWN), event("stderr", {"text": "two"}), event("end", END))
        with FakeDaemon(said) as daemon:
            sandbox = self.half.Sandbox(self.controller(socket=daemon.socket), {"id": "sb-1"})
            seen: List[Any] = []
            result = await get(sandbox.eval("x", on_stdout=seen.append, on_stderr=seen.append, on_result=seen.append))
        self.assertEqual(seen, ["one\n", SHOWN, "two"])
        self.assertEqual((result.stdout, result.stderr, result.results, result.value), ("one\n", "two", [SHOWN], 7))
        self.assertEqual((result.execution_count, result.truncated), (2, False))

    async def test_an_error_of_the_daemon_and_a_stream_without_an_end(self) -> None:
        problem = {"error": "Too late.", "code": "EVAL_TIMEOUT", "hint": "", "request_id": "r"}
        with FakeDaemon(streaming(event("error", problem))) as daemon, self.assertRaises(forkd.TimeoutError):
            await get(self.controller(socket=daemon.socket).eval_code("sb-1", "x", on_stdout=print))
        with FakeDaemon(streaming(event("stdout", {"text": "x"}))) as daemon, self.assertRaises(forkd.ConnectionError):
            await get(self.controller(socket=daemon.socket, retries=0).eval_code("sb-1", "x", on_stdout=str))

    async def test_contexts_are_given_by_id_or_as_objects(self) -> None:
        with FakeDaemon() as daemon:
            sandbox = self.half.Sandbox(self.controller(socket=daemon.socket), {"id": "sb-1"})
            context = await get(sandbox.contexts.create("bash", cwd="/srv", envs={"A": "b"}))
            self.assertEqual(await get(sandbox.contexts.list()), [context])
            await get(sandbox.contexts.interrupt(context))
            await get(sandbox.contexts.restart(context["id"]))
            await get(sandbox.contexts.remove(context))
            self.assertEqual(daemon.last.params, {"id": "sb-1", "context": context["id"]})
            await get(sandbox.eval("1", context=context, check=False))
            self.assertEqual(daemon.last.body["context"], context["id"])
