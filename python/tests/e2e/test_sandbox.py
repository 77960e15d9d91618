"""Sandboxes on real VMs, through both halves, over the socket and over TCP."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import forkd

from ..helpers.both import HalfCase, both, closed, collect, get, step
from ..helpers.patience import patience


@both(globals())
class Sandboxes(HalfCase):
    async def sandbox(self, **options: Any) -> Any:
        made = await get(self.half.Sandbox.create("python", controller=self.controller(), **options))
        self.addAsyncCleanup(_kill, made)
        return made

    async def test_commands(self) -> None:
        sb = await self.sandbox(envs={"MODE": "test"}, metadata={"job": "7"})
        self.assertEqual(sb.info["metadata"], {"job": "7"})
        result = await get(sb.commands.run("echo $MODE $EXTRA; echo err >&2", envs={"EXTRA": "yes"}))
        self.assertEqual((result.stdout, result.stderr, result.exit_code), ("test yes\n", "err\n", 0))
        self.assertEqual((await get(sb.commands.run(["id", "-un"], user="nobody", cwd="/tmp"))).stdout, "nobody\n")
        self.assertEqual((await get(sb.commands.run("cat", stdin="läuft"))).stdout, "läuft")
        with self.assertRaises(forkd.CommandExitError) as caught:
            await get(sb.commands.run("echo so far; echo wrong >&2; exit 3"))
        self.assertEqual((caught.exception.exit_code, caught.exception.stdout), (3, "so far\n"))
        with self.assertRaises(forkd.TimeoutError):
            await get(sb.commands.run("sleep 60", timeout=0.5))
        with self.assertRaises(forkd.InvalidRequestError) as missing:
            await get(sb.commands.run(["/no/such/program"]))
        self.assertEqual(missing.exception.code, "EXEC_FAILED")

    async def test_code_that_keeps_its_state(self) -> None:
        sb = await self.sandbox()
        self.assertIsNone((await get(sb.eval("x = numpy.arange(5)"))).result)
        result = await get(sb.eval("print('told'); int(x.sum())"))
        self.assertEqual((result.value, result.result, result.stdout), (10, "10", "told\n"))
        with self.assertRaises(forkd.EvalError) as caught:
            await get(sb.eval("1 / 0"))
        self.assertEqual(caught.exception.error_type, "ZeroDivisionError")
        with self.assertRaises(forkd.TimeoutError) as slow:
            await get(sb.eval("while True: pass", timeout=0.5))
        self.assertEqual(slow.exception.code, "EVAL_TIMEOUT")
        self.assertEqual((await get(sb.eval("int(x.sum())"))).value, 10)

    async def test_files_of_any_size(self) -> None:
        sb = await self.sandbox()
        content = bytes(range(256)) * 4096 * 8
        await get(sb.files.write("/srv/a/b/big", (content[i : i + 65536] for i in range(0, len(content), 65536)), mode=0o640))
        self.assertTrue(await get(sb.files.read("/srv/a/b/big", "bytes")) == content)
        pieces = await collect(await get(sb.files.read("/srv/a/b/big", "stream", offset=len(content) - 100_000)))
        self.assertTrue(b"".join(pieces) == content[-100_000:])
        info = await get(sb.files.get_info("/srv/a/b/big"))
        self.assertEqual((info.type, info.size, info.mode), ("file", len(content), 0o640))
        await get(sb.files.write("/srv/text", "grüße"))
        await get(sb.files.write("/srv/text", "!", append=True))
        self.assertEqual(await get(sb.files.read("/srv/text")), "grüße!")
        with self.assertRaises(forkd.FileError):
            await get(sb.files.read("/srv/nothing"))

    async def test_forks_and_branches_diverge(self) -> None:
        sb = await self.sandbox()
        await get(sb.eval("x = [1]"))
        tips = await get(sb.fork(2, metadata={"kind": "tip"}))
        for tip in tips:
            self.addAsyncCleanup(_kill, tip)
        values = [(await get(tip.eval(f"x.append({i}); x"))).value for i, tip in enumerate(tips)]
        self.assertEqual(values, [[1, 0], [1, 1]])
        self.assertEqual((await get(sb.eval("x"))).value, [1])
        branch = await get(sb.branch(f"py-{self.half.name}"))
        self.assertEqual((branch["status"], branch["branched_from"]), ("ready", sb.id))
        child = await get(self.half.Sandbox.create(branch["tag"], controller=sb.controller))
        self.assertEqual((await get(child.eval("x"))).value, [1])
        self.assertTrue(await get(child.kill()))
        self.assertFalse(await get(child.kill()))
        await get(sb.controller.delete_snapshot(branch["tag"]))

    async def test_life_cycle(self) -> None:
        sb = await self.sandbox(timeout=600, name=f"life-{self.half.name}")
        other = await get(self.half.Sandbox.connect(f"life-{self.half.name}", controller=sb.controller))
        self.assertEqual(other.id, sb.id)
        self.assertEqual((await get(sb.pause()))["state"], "paused")
        self.assertFalse(await get(sb.is_running()))
        with self.assertRaises(forkd.ConflictError):
            await get(sb.eval("1"))
        await get(sb.resume())
        self.assertTrue(await get(sb.is_running()))
        self.assertIsNone((await get(sb.set_timeout(None)))["expires_at_unix"])
        self.assertIsNotNone((await get(sb.set_timeout(60)))["expires_at_unix"])
        self.assertIsNone((await get(sb.update(name=None)))["name"])
        self.assertTrue((await get(sb.ping()))["pong"])
        self.assertGreater((await get(sb.stats()))["pss_bytes"], 0)
        await get(sb.commands.run("echo for the console > /dev/console"))
        log = sb.logs(follow=True)
        text = ""
        while "for the console" not in text:
            text += await step(log)
        await closed(log)
        self.assertTrue(await get(sb.kill()))
        self.assertFalse(await get(sb.is_running()))
        with self.assertRaises(forkd.NotFoundError):
            await get(sb.get_info())

    async def test_events(self) -> None:
        c = self.controller()
        sb = await self.sandbox(metadata={"who": self.half.name})
        stream = c.events(since=0, types=["sandbox.created", "sandbox.deleted"], sandbox=sb.id)
        event = await step(stream)
        self.assertEqual((event["type"], event["sandbox"], event["metadata"]), ("sandbox.created", sb.id, {"who": self.half.name}))
        await get(sb.kill())
        self.assertEqual((await step(stream))["type"], "sandbox.deleted")
        await closed(stream)
        self.assertEqual(await collect(c.events(sandbox="sb-nobody", timeout=0.2)), [])

    async def test_over_tcp_with_a_token(self) -> None:
        url = os.environ["FORKD_TEST_URL"]
        c = self.controller(url=url, token=os.environ["FORKD_TEST_TOKEN"])
        sb = await get(self.half.Sandbox.create("python", controller=c))
        self.assertEqual((await get(sb.eval("6 * 7"))).value, 42)
        await get(sb.files.write("/srv/x", iter([b"a", b"b"])))
        self.assertEqual(await get(sb.files.read("/srv/x")), "ab")
        self.assertTrue(await get(sb.kill()))
        with self.assertRaises(forkd.AuthenticationError):
            await get(self.controller(url=url, token="").status())

    async def test_calls_of_the_older_sdk(self) -> None:
        c = self.controller(base_url=os.environ["FORKD_TEST_URL"], token=os.environ["FORKD_TEST_TOKEN"], timeout=patience())
        self.assertIn("python", [snapshot["tag"] for snapshot in await get(c.list_snapshots())])
        [source] = await get(c.spawn_sandboxes(snapshot_tag="python", n=1, per_child_netns=True, live_fork=True))
        self.addAsyncCleanup(_kill, self.half.Sandbox(c, source))
        done = await get(c.exec_command(source["id"], ["sh", "-c", "echo noted > /srv/notes"], timeout_secs=int(patience())))
        self.assertEqual(done.get("exit_code"), 0)
        branch = await get(c.branch_sandbox(source["id"], tag=f"handoff-{self.half.name}", diff=True, measure_diff=True))
        [child] = await get(c.spawn_sandboxes(branch["tag"], 1, True))
        self.assertEqual((await get(c.exec_command(child["id"], ["cat", "/srv/notes"])))["stdout"], "noted\n")
        self.assertEqual((await get(c.eval_code(child["id"], "6 * 7")))["result"], "42")
        self.assertTrue((await get(c.ping_sandbox(child["id"])))["pong"])
        self.assertEqual((await get(c.get_sandbox(child["id"])))["snapshot_tag"], branch["tag"])
        await get(c.kill_sandbox(child["id"]))
        with self.assertRaises(forkd.ControllerError) as caught:
            await get(c.get_sandbox(child["id"]))
        error = caught.exception
        self.assertEqual((error.status, error.body["code"]), (404, "NOT_FOUND"))
        self.assertEqual(error.url, f"{os.environ['FORKD_TEST_URL']}/v1/sandboxes/{child['id']}")
        await get(c.delete_snapshot(branch["tag"]))

    async def test_many_at_once(self) -> None:
        c = self.controller()
        infos = await get(c.spawn_sandboxes("python", n=8, metadata={"n": "8"}))
        made = [self.half.Sandbox(c, info) for info in infos]
        if self.half.name == "async":
            results = await asyncio.gather(*(sb.eval(f"{i} + 1") for i, sb in enumerate(made)))
        else:
            results = await asyncio.gather(*(asyncio.to_thread(sb.eval, f"{i} + 1") for i, sb in enumerate(made)))
        self.assertEqual([result.value for result in results], list(range(1, 9)))
        listed = await get(c.list_sandboxes(metadata={"n": "8"}, limit=5))
        self.assertEqual(len(listed), 5)
        self.assertEqual(len(await get(c.list_sandboxes(metadata={"n": "8"}, limit=5, cursor=listed.next_cursor))), 3)
        for sb in made:
            await get(sb.kill())


async def _kill(sandbox: Any) -> None:
    await get(sandbox.kill())
