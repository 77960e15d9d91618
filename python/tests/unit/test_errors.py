"""Errors, as callers see them."""

from __future__ import annotations

import builtins
import pickle
import re
import unittest
from typing import Any, Dict, Type

import forkd
from forkd import errors
from forkd.results import CommandResult, Evaluation

from ..helpers.both import HalfCase, both, get
from ..helpers.fake_daemon import FakeDaemon, Reply, Seen
from ..helpers.spec import ROOT

TS_ERRORS = (ROOT / "packages" / "sdk" / "src" / "errors.ts").read_text()
#: Only in Python: commands raise, as E2B's do; in TypeScript they return a result
ONLY_HERE = {"CommandExitError"}


class Tree(unittest.TestCase):
    def test_the_classes_are_those_of_the_typescript_sdk(self) -> None:
        theirs = set(re.findall(r"^export class (\w+) extends (?:Error|ForkdError)", TS_ERRORS, re.MULTILINE))
        ours = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, forkd.ForkdError)}
        self.assertEqual(ours - ONLY_HERE, theirs)
        self.assertLessEqual(ours, set(forkd.__all__))

    def test_a_code_or_a_status_chooses_the_same_class(self) -> None:
        [table] = re.findall(r"const CLASSES[^=]*= \{\n(.*?)\n\};", TS_ERRORS, re.DOTALL)
        theirs = dict(re.findall(r"^\s+(\w+): (\w+),$", table, re.MULTILINE))
        self.assertEqual({key: kind.__name__ for key, kind in errors._CLASSES.items()}, theirs)

    def test_the_older_name(self) -> None:
        self.assertIs(forkd.ControllerError, forkd.ForkdError)
        self.assertTrue(issubclass(forkd.ControllerError, RuntimeError))

    def test_errors_with_a_built_in_name_derive_from_the_built_in(self) -> None:
        self.assertTrue(issubclass(forkd.TimeoutError, builtins.TimeoutError))
        self.assertTrue(issubclass(forkd.ConnectionError, builtins.ConnectionError))

    def test_errors_can_be_pickled(self) -> None:
        result = Evaluation(None, None, "ValueError: x", "ValueError", "Trace", 1, "", "", False)
        for error in (
            forkd.TimeoutError("Slow.", "CALL_TIMEOUT", hint="Wait.", status=408, details={"a": 1}),
            forkd.EvalError(result),
            forkd.CommandExitError(CommandResult("out", "sh: no\n", 3)),
        ):
            copy = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(copy), str(copy), vars(copy)), (type(error), str(error), vars(error)))

    def test_the_message_of_a_failed_command_has_its_last_line(self) -> None:
        error = forkd.CommandExitError(CommandResult("out", "a\nsh: 1: nope: not found\n", 127))
        self.assertEqual(error.message, "The command exited with code 127: sh: 1: nope: not found.")
        self.assertEqual((error.exit_code, error.stdout, error.stderr[:1], error.error), (127, "out", "a", error.message))


@both(globals())
class Answers(HalfCase):
    async def raised(self, status: int, body: bytes, **headers: str) -> forkd.ForkdError:
        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            return await reply.send(status, "application/json", body, **headers)

        with FakeDaemon(override) as daemon:
            with self.assertRaises(forkd.ForkdError) as caught:
                await get(self.controller(socket=daemon.socket, retries=0).eval_code("sb-1", "1"))
            return caught.exception

    async def test_all_fields_of_an_error_answer(self) -> None:
        body = b'{"error":"Busy: why.","code":"BUSY","hint":"Wait.","request_id":"r","details":{"free":3}}'
        error = await self.raised(503, body, **{"retry-after": "7"})
        self.assertIsInstance(error, forkd.LimitError)
        self.assertEqual(str(error), "Busy: why. Wait. [BUSY]")
        self.assertEqual((error.message, error.hint, error.code, error.status), ("Busy: why.", "Wait.", "BUSY", 503))
        self.assertEqual((error.request_id, error.details, error.retry_after_secs), ("r", {"free": 3}, 7))
        self.assertEqual((error.method, error.url[-23:]), ("POST", "/v1/sandboxes/sb-1/eval"))
        self.assertEqual(error.body["code"], "BUSY")

    async def test_the_class_by_code_then_by_status(self) -> None:
        kinds: Dict[int, Type[forkd.ForkdError]] = {
            400: forkd.InvalidRequestError,
            401: forkd.AuthenticationError,
            403: forkd.AuthenticationError,
            404: forkd.NotFoundError,
            408: forkd.TimeoutError,
            409: forkd.ConflictError,
            410: forkd.SandboxGoneError,
            422: forkd.InvalidRequestError,
            429: forkd.LimitError,
            500: forkd.ForkdError,
            504: forkd.TimeoutError,
        }
        for status, kind in kinds.items():
            error = await self.raised(status, b'{"error":"x"}')
            self.assertIs(type(error), kind)
            self.assertEqual((error.code, error.status), ("UNKNOWN", status))
        self.assertIs(type(await self.raised(400, b'{"error":"x","code":"EXISTS"}')), forkd.ConflictError)

    async def test_an_error_answer_of_a_proxy(self) -> None:
        for body, message in ((b"<h1>Bad gateway</h1>", "<h1>Bad gateway</h1>"), (b"", "The server answered with status 502.")):
            error = await self.raised(502, body)
            self.assertEqual((error.code, error.message, error.request_id), ("HTTP_502", message, "req-1"))
        error = await self.raised(200, b"<html>")
        self.assertEqual(error.code, "BAD_ANSWER")

    async def test_no_daemon(self) -> None:
        for options, words in (
            ({"socket": "/nowhere/forkd.sock"}, "there is no such socket"),
            ({"url": "http://127.0.0.1:1"}, "nothing listens there"),
        ):
            with self.assertRaises(forkd.ConnectionError) as caught:
                await get(self.controller(**options, retries=0).health())
            error: Any = caught.exception
            self.assertIn(words, error.message)
            self.assertIn("Start it with 'forkd up'", str(error))
            self.assertEqual((error.code, error.status), ("DAEMON_UNREACHABLE", 0))
            self.assertIsInstance(error.__cause__, OSError)

    async def test_a_server_that_is_not_a_daemon(self) -> None:
        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            await reply.head(200, "text/plain", **{"transfer-encoding": "gzip"})
            return True

        with FakeDaemon(override) as daemon, self.assertRaisesRegex(forkd.ConnectionError, "unknown coding"):
            await get(self.controller(socket=daemon.socket, retries=0).health())

    async def test_a_call_that_takes_too_long(self) -> None:
        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            await reply.closed()
            return True

        with FakeDaemon(override) as daemon:
            for way in ("socket", "url"):
                with self.assertRaises(forkd.TimeoutError) as caught:
                    await get(self.controller(**{way: getattr(daemon, way)}).health(request_timeout=0.2))
                self.assertEqual(caught.exception.code, "CALL_TIMEOUT")
                self.assertEqual(caught.exception.message, "GET /healthz took longer than 0.2 s.")
            # at most once: it is not retried, and on a slow machine it may not have been sent
            self.assertLessEqual(len(daemon.seen), 2)

    async def test_the_wait_before_a_retry_counts_towards_the_time_out(self) -> None:
        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            reply.extra["retry-after"] = "1"
            return await reply.problem(503, "BUSY")

        with FakeDaemon(override) as daemon, self.assertRaises(forkd.TimeoutError):
            await get(self.controller(socket=daemon.socket, retries=1000, timeout=0.5).health())
