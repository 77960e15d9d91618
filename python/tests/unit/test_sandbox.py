"""The handle on one sandbox."""

from __future__ import annotations

import json
import os
from typing import Any, Dict
from unittest import mock

import forkd

from ..helpers.both import HalfCase, both, collect, get
from ..helpers.fake_daemon import FakeDaemon, Reply, Seen
from ..helpers.samples import sandbox
from .cases import LIMITS, NETWORK

RAISED: Dict[str, Any] = {
    "result": None,
    "error": "ZeroDivisionError: division by zero",
    "error_type": "ZeroDivisionError",
    "traceback": "Trace",
    "exit_code": 1,
    "stdout": "so far\n",
    "stderr": "",
    "truncated": False,
    "results": [],
    "execution_count": 1,
}
ENDED = {"stdout": "out", "stderr": "err", "exit_code": 0, "signal": None, "timed_out": False, "truncated": False}


@both(globals())
class Sandboxes(HalfCase):
    def sandbox(self, daemon: FakeDaemon) -> Any:
        return self.half.Sandbox(self.controller(socket=daemon.socket), sandbox())

    async def entered(self, sb: Any) -> Any:
        return await sb.__aenter__() if hasattr(sb, "__aenter__") else sb.__enter__()

    async def left(self, sb: Any) -> None:
        await sb.__aexit__(None, None, None) if hasattr(sb, "__aexit__") else sb.__exit__(None, None, None)

    async def test_create_eval_fork_and_kill_at_the_end_of_the_block(self) -> None:
        with FakeDaemon() as daemon:
            create = self.half.Sandbox.create
            given = {"idle_timeout": 9, "network": NETWORK, "isolation": "any", **LIMITS}
            sb = await get(create("py", 60, {"k": "v"}, {"A": "b"}, socket=daemon.socket, **given))
            self.assertIs(await self.entered(sb), sb)
            await get(sb.eval("x = numpy.arange(5); x.sum()", check=False))
            tips = await get(sb.fork(3, timeout=5, isolation="kvm", **LIMITS))
            self.assertEqual([type(tip) for tip in tips], [self.half.Sandbox])
            await self.left(sb)
            self.assertEqual(daemon.names, ["createSandboxes", "evalCode", "forkSandbox", "deleteSandbox"])
            self.assertEqual(
                daemon.seen[0].body,
                {
                    "snapshot_tag": "py",
                    "n": 1,
                    "ttl_secs": 60,
                    "idle_timeout_secs": 9,
                    "metadata": {"k": "v"},
                    "env": {"A": "b"},
                    "network": NETWORK,
                    "isolation": "any",
                    **LIMITS,
                },
            )
            self.assertEqual(daemon.seen[2].body, {"n": 3, "ttl_secs": 5, "isolation": "kvm", **LIMITS})
            # The forks stay usable, with the same controller.
            self.assertTrue(await get(tips[0].kill()))
            await get(sb.controller.close())

    async def test_the_snapshot_when_none_is_named(self) -> None:
        with FakeDaemon() as daemon:
            c = self.controller(socket=daemon.socket)
            with mock.patch.dict(os.environ, {"FORKD_TAG": "agent"}):
                await get(self.half.Sandbox.create(controller=c))
                self.assertEqual(daemon.last.body["snapshot_tag"], "agent")
                await get(self.half.Sandbox.create(template="theirs", controller=c))
                self.assertEqual(daemon.last.body["snapshot_tag"], "theirs")
            with mock.patch.dict(os.environ, {"FORKD_TAG": ""}):
                await get(self.half.Sandbox.create(controller=c))
                self.assertEqual(daemon.last.body["snapshot_tag"], "python")

    async def test_code_that_raises_is_an_error_unless_check_is_false(self) -> None:
        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            return await reply.send(200, "application/json", json.dumps(RAISED).encode())

        with FakeDaemon(override) as daemon:
            sb = self.sandbox(daemon)
            with self.assertRaises(forkd.EvalError) as caught:
                await get(sb.eval("1/0"))
            error = caught.exception
            self.assertEqual((error.message, error.error_type, error.traceback), (RAISED["error"], "ZeroDivisionError", "Trace"))
            self.assertEqual(error.result.stdout, "so far\n")
            result = await get(sb.eval("1/0", check=False, timeout=3, language="python"))
            self.assertEqual((result.exit_code, result.value), (1, None))
            self.assertEqual(daemon.last.body, {"code": "1/0", "timeout_secs": 3, "language": "python"})

    async def test_a_value_and_its_text(self) -> None:
        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            answer = {**RAISED, "error": None, "exit_code": 0, "result": "[1, 2]", "value": [1, 2]}
            return await reply.send(200, "application/json", json.dumps(answer).encode())

        with FakeDaemon(override) as daemon:
            result = await get(self.sandbox(daemon).eval("[1, 2]"))
            self.assertEqual((result.value, result.result, str(result)), ([1, 2], "[1, 2]", "[1, 2]"))

    async def test_a_string_is_run_by_the_shell_and_a_list_directly(self) -> None:
        async def override(seen: Seen, reply: Reply, _: int) -> bool:
            return await reply.send(200, "application/json", json.dumps(ENDED).encode())

        with FakeDaemon(override) as daemon:
            sb = self.sandbox(daemon)
            result = await get(sb.commands.run("cd / && ls"))
            self.assertEqual(daemon.last.body, {"args": ["/bin/sh", "-c", "cd / && ls"], "timeout_secs": 60})
            self.assertEqual((result.stdout, result.stderr, result.exit_code), ("out", "err", 0))
            await get(sb.commands.run(["ls"], cwd="/", envs={"A": "b"}, user="nobody", timeout=5))
            self.assertEqual(daemon.last.body, {"args": ["ls"], "cwd": "/", "env": {"A": "b"}, "user": "nobody", "timeout_secs": 5})

    async def test_a_failed_command_is_an_error_unless_check_is_false(self) -> None:
        async def override(seen: Seen, reply: Reply, _: int) -> bool:
            slow = "slow" in seen.body["args"]
            answer = {**ENDED, "exit_code": 124 if slow else 3, "timed_out": slow}
            return await reply.send(200, "application/json", json.dumps(answer).encode())

        with FakeDaemon(override) as daemon:
            sb = self.sandbox(daemon)
            with self.assertRaises(forkd.CommandExitError) as caught:
                await get(sb.commands.run("exit 3"))
            self.assertEqual((caught.exception.exit_code, caught.exception.stderr), (3, "err"))
            with self.assertRaises(forkd.TimeoutError) as slow:
                await get(sb.commands.run(["slow"], timeout=2))
            self.assertEqual(slow.exception.code, "COMMAND_TIMEOUT")
            self.assertEqual((await get(sb.commands.run("exit 3", check=False))).exit_code, 3)
            self.assertTrue((await get(sb.commands.run(["slow"], check=False))).timed_out)

    async def test_the_rest_is_passed_on_and_info_is_kept_up_to_date(self) -> None:
        async def override(seen: Seen, reply: Reply, _: int) -> bool:
            states = {"pauseSandbox": "paused", "resumeSandbox": "running", "getSandbox": "lost"}
            if seen.route not in states:
                return False
            return await reply.send(200, "application/json", json.dumps({**sandbox(), "state": states[seen.route]}).encode())

        with FakeDaemon(override) as daemon:
            sb = await get(self.half.Sandbox.connect("sb-1", controller=self.controller(socket=daemon.socket)))
            self.assertEqual((sb.id, sb.sandbox_id), ("sb-1", "sb-1"))
            self.assertFalse(await get(sb.is_running()))
            await get(sb.ping())
            await get(sb.branch("b1", wait=False))
            self.assertEqual(daemon.last.body, {"tag": "b1", "wait": False})
            await get(sb.pause())
            self.assertEqual(sb.info["state"], "paused")
            await get(sb.resume())
            self.assertEqual(sb.info["state"], "running")
            await get(sb.set_timeout(60))
            self.assertEqual(daemon.last.body, {"ttl_secs": 60})
            await get(sb.set_timeout(None))
            self.assertEqual(daemon.last.body, {"ttl_secs": None})
            await get(sb.update(name="new", metadata={}, idle_timeout=5))
            self.assertEqual(daemon.last.body, {"name": "new", "metadata": {}, "idle_timeout_secs": 5})
            self.assertEqual((await get(sb.get_info()))["state"], "lost")
            await get(sb.stats())
            self.assertEqual("".join(await collect(sb.logs(tail=1))), "content ✓\n")

    async def test_kill_returns_whether_the_sandbox_existed(self) -> None:
        async def override(_seen: Seen, reply: Reply, count: int) -> bool:
            codes = {2: (404, "NOT_FOUND"), 3: (410, "SANDBOX_LOST"), 4: (500, "INTERNAL")}
            return count in codes and await reply.problem(*codes[count])

        with FakeDaemon(override) as daemon:
            sb = self.sandbox(daemon)
            self.assertEqual([await get(sb.kill()) for _ in range(3)], [True, False, False])
            with self.assertRaises(forkd.ForkdError):
                await get(sb.kill())
