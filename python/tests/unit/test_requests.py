"""Every method sends a valid request, and together the methods reach every route."""

from __future__ import annotations

import inspect
import json
import unittest
from typing import Any, Callable, Dict, List, Set

import forkd
from forkd._call import Call
from forkd._sync.controller_gen import GeneratedController

from ..helpers import spec
from ..helpers.both import HalfCase, both, get
from ..helpers.fake_daemon import FakeDaemon, Reply, Seen
from .cases import CASES, ELSEWHERE, UNUSED


@both(globals())
class Requests(HalfCase):
    async def test_each_method_sends_what_the_document_takes(self) -> None:
        with FakeDaemon() as daemon:
            for way in ("socket", "url"):
                controller = self.controller(**{way: getattr(daemon, way)}, token="tok-123")
                for case in CASES:
                    with self.subTest(case.route, way=way):
                        given = await get(case.call(controller))
                        seen = daemon.last
                        self.assertEqual(seen.route, case.route)
                        self.assertEqual(seen.headers["authorization"], "Bearer tok-123")
                        for part in ("params", "query", "body"):
                            wanted = getattr(case, part)
                            if wanted is not None:
                                self.assertEqual(getattr(seen, part), wanted, part)
                        self.assert_given(case.route, given)
            # One connection for each transport: all requests reused it.
            self.assertEqual(daemon.connections, 2)

    def assert_given(self, name: str, given: Any) -> None:
        [route] = [route for route in spec.routes() if route.name == name]
        _, kind, body = route.answer()
        if kind == "application/json":
            self.assertEqual(given, json.loads(body))
        elif kind == "":
            self.assertIsNone(given)
        else:
            whole = given[0][:0].join(given) if isinstance(given, list) else given
            self.assertEqual(whole.encode() if isinstance(whole, str) else whole, body)

    async def test_outcomes_of_each_child(self) -> None:
        async def override(seen: Seen, reply: Reply, _: int) -> bool:
            results = {"results": [{"error": {"error": "no", "code": "BUSY", "hint": "", "request_id": ""}}]}
            return await reply.send(207, "application/json", json.dumps(results).encode())

        with FakeDaemon(override) as daemon:
            outcomes = await get(self.controller(socket=daemon.socket).try_spawn_sandboxes("py", 3, env={"A": "b"}))
            self.assertEqual(daemon.last.body, {"snapshot_tag": "py", "n": 3, "env": {"A": "b"}, "per_item": True})
            self.assertEqual([outcome["error"]["code"] for outcome in outcomes], ["BUSY"])

    async def test_a_page_is_a_list_with_the_cursor_of_the_next_page(self) -> None:
        async def override(_seen: Seen, reply: Reply, count: int) -> None:
            if count == 1:
                reply.extra["x-next-cursor"] = "more"

        with FakeDaemon(override) as daemon:
            controller = self.controller(socket=daemon.socket)
            first = await get(controller.list_sandboxes(limit=1))
            self.assertEqual(first.next_cursor, "more")
            self.assertEqual(json.loads(json.dumps(first)), list(first))
            second = await get(controller.list_sandboxes(limit=1, cursor="more"))
            self.assertIsNone(second.next_cursor)

    async def test_an_id_cannot_reach_another_route(self) -> None:
        with FakeDaemon() as daemon:
            controller = self.controller(socket=daemon.socket)
            for bad in ("", ".", "..", None):
                with self.assertRaises(forkd.InvalidRequestError) as caught:
                    await get(controller.kill_sandbox(bad))
                self.assertEqual(caught.exception.code, "BAD_NAME")
            self.assertEqual(daemon.seen, [])
            await get(controller.get_sandbox("../snapshots?x#y"))
            self.assertEqual(daemon.last.params, {"id": "../snapshots?x#y"})

    async def test_what_cannot_be_sent_is_refused(self) -> None:
        with FakeDaemon() as daemon:
            controller = self.controller(socket=daemon.socket)
            calls: List[Callable[[], Any]] = [
                lambda: controller.eval_code("sb-1", "1", timeout_secs=float("nan")),
                lambda: controller.eval_code("sb-1", "1", idempotency_key="a\r\nb: c"),
                lambda: controller.exec_command("sb-1", [object()]),
            ]
            for call in calls:
                with self.assertRaises(forkd.InvalidRequestError) as caught:
                    await get(call())
                self.assertEqual(caught.exception.code, "BAD_REQUEST")
            self.assertEqual(daemon.seen, [])

    async def test_only_creations_have_an_idempotency_key(self) -> None:
        with FakeDaemon() as daemon:
            c = self.controller(socket=daemon.socket)
            creations: List[Callable[[], Any]] = [
                lambda: c.spawn_sandboxes("py"),
                lambda: c.fork_sandbox("sb-1"),
                lambda: c.branch_sandbox("sb-1"),
                lambda: c.create_snapshot("py"),
                lambda: c.compact_snapshot("py", "flat"),
                lambda: c.create_image(reference="x"),
                lambda: c.create_workspace("w", "py"),
            ]
            for create in creations:
                await get(create())
            keys = [seen.headers["idempotency-key"] for seen in daemon.seen]
            self.assertEqual(len(set(keys)), len(creations))
            for key in keys:
                self.assertRegex(key, "^[0-9a-f]{32}$")
            await get(c.spawn_sandboxes("py", idempotency_key=None))
            self.assertNotIn("idempotency-key", daemon.last.headers)
            await get(c.exec_command("sb-1", ["true"]))
            self.assertNotIn("idempotency-key", daemon.last.headers)
            await get(c.exec_command("sb-1", ["true"], idempotency_key="mine"))
            self.assertEqual(daemon.last.headers["idempotency-key"], "mine")

    async def test_readiness_is_an_answer_when_the_daemon_is_not_ready(self) -> None:
        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            return await reply.send(503, "application/json", b'{"ready":false,"reason":"starts"}')

        with FakeDaemon(override) as daemon:
            answer = await get(self.controller(socket=daemon.socket).ready())
            self.assertEqual(answer, {"ready": False, "reason": "starts"})


class Surface(unittest.TestCase):
    """The table of cases, the document and the controllers agree."""

    def test_every_route_is_reached_by_a_method(self) -> None:
        reached = {case.route for case in CASES} | set(ELSEWHERE) | set(UNUSED) | set(generated_requests())
        self.assertEqual([route.name for route in spec.routes() if route.name not in reached], [])

    def test_every_field_of_every_route_can_be_given(self) -> None:
        said: Any = {}
        for case in CASES:
            said.setdefault(case.route, set()).update(case.query or {}, case.body if isinstance(case.body, dict) else {})
        for route, names in generated_requests().items():
            said.setdefault(route, set()).update(names)
        said["createSandboxes"].add("per_item")  # try_spawn_sandboxes
        said["startProcess"].add("encoding")  # stream_process, in test_commands.py
        for paged in ("listSandboxes", "listSnapshots"):
            said[paged].update({"limit", "cursor"})
        missing = {
            route.name: sorted({*route.body_fields(), *route.names("query")} - said[route.name])
            for route in spec.routes()
            if route.name not in {*ELSEWHERE, *UNUSED}
        }
        self.assertEqual({name: names for name, names in missing.items() if names}, {})

    def test_every_method_is_in_the_list_of_cases(self) -> None:
        used = {name for case in CASES for name in case.call.__code__.co_names}
        elsewhere = {
            "events",
            "try_spawn_sandboxes",
            "close",
            "url",
            "stream_process",
            "watch_process",
            "watch_files",
            "fetch_port",
            "connect_port",
        }
        by_hand = [name for name in public(forkd.Controller) if name not in vars(GeneratedController)]
        self.assertEqual([name for name in by_hand if name not in used | elsewhere], [])

    def test_both_halves_have_the_same_methods_with_the_same_arguments(self) -> None:
        pairs = [
            (forkd.Controller, forkd.AsyncController),
            (forkd.Sandbox, forkd.AsyncSandbox),
            (forkd.Commands, forkd.AsyncCommands),
            (forkd.CommandHandle, forkd.AsyncCommandHandle),
            (forkd.Files, forkd.AsyncFiles),
            (forkd.WatchHandle, forkd.AsyncWatchHandle),
            (forkd.Ports, forkd.AsyncPorts),
            (forkd.PortConnection, forkd.AsyncPortConnection),
            (forkd.PortResponse, forkd.AsyncPortResponse),
            (forkd.Pty, forkd.AsyncPty),
        ]
        for one, other in pairs:
            self.assertEqual(public(one), public(other))
            for name in public(one):
                if callable(getattr(one, name)):
                    mine = [str(p).split(":")[0] for p in inspect.signature(getattr(one, name)).parameters.values()]
                    its = [str(p).split(":")[0] for p in inspect.signature(getattr(other, name)).parameters.values()]
                    self.assertEqual(mine, its, name)

    def test_every_public_method_has_a_docstring(self) -> None:
        for kind in (getattr(forkd, name) for name in forkd.__all__ if isinstance(getattr(forkd, name), type)):
            self.assertIsNotNone(kind.__doc__)
            methods = [name for name in public(kind) if callable(getattr(kind, name)) or isinstance(getattr(kind, name), property)]
            bare = [name for name in methods if not inspect.getdoc(getattr(kind, name))]
            self.assertEqual(bare, [], kind)


def generated_requests() -> Dict[str, Set[str]]:
    """The routes that generated methods reach, and the fields that they send when they are given all arguments."""
    found: Dict[str, Set[str]] = {}
    for name in (name for name in vars(GeneratedController) if not name.startswith("_")):
        controller = forkd.Controller()
        recorder = controller._client = Recorder()  # type: ignore[assignment]
        keywords, values = {}, []
        for parameter in inspect.signature(getattr(controller, name)).parameters.values():
            value = example(parameter.name, str(parameter.annotation))
            if parameter.kind is parameter.KEYWORD_ONLY:
                keywords[parameter.name] = value
            else:
                values.append(value)
        getattr(controller, name)(*values, **keywords)
        [call] = recorder.calls
        route = spec.find(call.method, call.path)
        assert route is not None, f"{name}: {call.method} {call.path} is no route"
        found.setdefault(route[0].name, set()).update(call.query, call.json or {})
    return found


class Recorder:
    """In place of a client: keeps the calls that would be sent."""

    timeout = 60.0

    def __init__(self) -> None:
        self.calls: List[Call[Any]] = []

    def __getattr__(self, _name: str) -> Callable[..., Any]:
        return self._record

    def _record(self, call: Call[Any], *_: Any) -> Any:
        self.calls.append(call)
        return {"results": []}


def example(name: str, annotation: str) -> Any:
    """A value that is sent, by the type of the argument."""
    if name == "request_timeout":
        return 60
    if "ProgressListener" in annotation:
        return None
    for kind, value in (("Dict", {"a": "b"}), ("List", ["x"]), ("Content", b"x"), ("bool", True), ("int", 1), ("float", 1)):
        if kind in annotation and "str" not in annotation.replace("Dict[str, str]", "").replace("List[str]", ""):
            return value
    return "x"


def public(kind: Any) -> List[str]:
    return [name for name in dir(kind) if not name.startswith("_")]
