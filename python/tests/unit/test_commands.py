"""Running commands: output, input, lost connections, terminals."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from typing import Any, Callable, List, Optional

import forkd

from ..helpers import spec
from ..helpers.both import HalfCase, both, closed, collect, get
from ..helpers.fake_daemon import FakeDaemon, Override, Reply, Seen
from ..helpers.patience import patience
from ..helpers.samples import sandbox


def event(kind: str, cursor: str, **data: Any) -> bytes:
    return f"id: {cursor}\nevent: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def output(kind: str, cursor: str, offset: int, data: bytes) -> bytes:
    return event(kind, cursor, offset=offset, base64=base64.b64encode(data).decode())


def started(cursor: str = "0-0", terminal: bool = False) -> bytes:
    stdout, stderr = cursor.split("-")
    return event("started", cursor, id=7, pid=70, tag="web", terminal=terminal, stdout_offset=int(stdout), stderr_offset=int(stderr))


FIRST = output("stdout", "3-0", 0, b"hi\xc3")
SECOND = output("stdout", "5-0", 3, b"\xbc!")
ERR = output("stderr", "5-3", 0, b"err")
EXIT = event("exit", "5-3", exit_code=3, signal=None, timed_out=False)
DONE = event("exit", "5-3", exit_code=0, signal=None, timed_out=False)


def streams(*answers: List[bytes], after: Optional[Callable[[Reply], Any]] = None) -> Override:
    """Answers requests that open a stream with these, in order; other requests with samples."""
    count = 0

    async def override(seen: Seen, reply: Reply, _: int) -> bool:
        nonlocal count
        if seen.route not in ("watchProcess", "startProcess"):
            return False
        parts = answers[min(count, len(answers) - 1)]
        count += 1
        await reply.head(200, "text/event-stream")
        for part in parts:
            await reply.chunk(part)
        if parts and parts[-1] in (EXIT, DONE):
            return await reply.end()
        if after is not None:
            return bool(after(reply))
        await reply.closed()
        return True

    return override


def process(**fields: Any) -> Any:
    return {**spec.sample({"$ref": "#/components/schemas/Process"}), "id": 7, "pid": 70, "tag": "web", "state": "running", **fields}


def processes(*found: Any, streamed: Override) -> Override:
    """Answers the process list with these."""

    async def override(seen: Seen, reply: Reply, count: int) -> Optional[bool]:
        if seen.route == "listProcesses":
            return await reply.send(200, "application/json", json.dumps(found).encode())
        return await streamed(seen, reply, count)

    return override


@both(globals())
class Commands(HalfCase):
    def commands(self, daemon: FakeDaemon, way: str = "socket") -> Any:
        return self.half.Sandbox(self.controller(**{way: getattr(daemon, way)}, retries=0), sandbox()).commands

    async def test_a_command_in_the_background_is_waited_for(self) -> None:
        for way in ("socket", "url"):
            with FakeDaemon(streams([started(), FIRST, SECOND, ERR, DONE])) as daemon:
                handle = await get(self.commands(daemon, way).run("make", background=True, tag="web", stdin=True, envs={"A": "b"}))
                self.assertEqual((handle.id, handle.pid, handle.tag, handle.exit_code), (7, 70, "web", None))
                result = await get(handle.wait())
                self.assertEqual((result.stdout, result.stderr, result.exit_code, result.truncated), ("hiü!", "err", 0, False))
                self.assertEqual((handle.stdout, handle.exit_code, handle.cursor), ("hiü!", 0, "5-3"))
                self.assertEqual(await get(handle.wait()), result)
                [seen] = daemon.seen
                self.assertEqual(seen.body, {"args": ["/bin/sh", "-c", "make"], "env": {"A": "b"}, "tag": "web", "stdin": True})
                self.assertEqual((seen.query, seen.headers["accept"]), ({"encoding": "base64"}, "text/event-stream"))

    async def test_callbacks_get_output_as_it_arrives(self) -> None:
        told: List[str] = []
        with FakeDaemon(streams([started(), FIRST, SECOND, ERR, EXIT])) as daemon:
            run = self.commands(daemon).run
            with self.assertRaises(forkd.CommandExitError) as caught:
                await get(run("make", on_stdout=told.append, on_stderr=lambda text: told.append(f"! {text}")))
            self.assertEqual(told, ["hi", "ü!", "! err"])
            self.assertEqual((caught.exception.exit_code, caught.exception.stdout), (3, "hiü!"))
            self.assertEqual(daemon.last.body["timeout_secs"], 60)
            result = await get(run("make", on_stdout=told.append, check=False, timeout=0, retain_output=False))
            self.assertEqual((result.exit_code, result.stdout), (3, ""))
            self.assertNotIn("timeout_secs", daemon.last.body)

    async def test_iteration_over_output(self) -> None:
        with FakeDaemon(streams([started(), FIRST, SECOND, ERR, DONE])) as daemon:
            handle = await get(self.commands(daemon).run(["x"], background=True))
            self.assertEqual(await collect(handle), [("hi", None, None), ("ü!", None, None), (None, "err", None)])
            self.assertEqual((await get(handle.wait())).stderr, "err")

    async def test_a_stream_resumes_at_its_cursor_after_a_lost_connection(self) -> None:
        answers = [[started(), FIRST], [started("3-0"), SECOND], [started("5-0"), ERR, DONE]]
        with FakeDaemon(streams(*answers, after=lambda reply: reply.destroy())) as daemon:
            result = await get((await get(self.commands(daemon).run(["x"], background=True))).wait())
            self.assertEqual((result.stdout, result.stderr), ("hiü!", "err"))
            self.assertEqual(daemon.names, ["startProcess", "watchProcess", "watchProcess"])
            self.assertEqual([seen.headers.get("last-event-id") for seen in daemon.seen], [None, "3-0", "5-0"])
            self.assertEqual(daemon.last.params, {"id": "sb-1", "process": "7"})

    async def test_a_command_is_never_started_twice(self) -> None:
        async def refused(_seen: Seen, reply: Reply, _: int) -> bool:
            return await reply.problem(422, "EXEC_FAILED")

        async def lost(_seen: Seen, reply: Reply, _: int) -> bool:
            return reply.destroy()

        for override, kind in ((refused, forkd.InvalidRequestError), (lost, forkd.ConnectionError)):
            with FakeDaemon(override) as daemon:
                with self.assertRaises(kind):
                    await get(self.commands(daemon).run(["x"], background=True))
                self.assertEqual(len(daemon.seen), 1)

    async def test_the_end_of_the_sandbox_is_an_error_after_the_last_output(self) -> None:
        gone = event("error", "3-0", error="Gone.", code="VMM_EXITED", hint="h", request_id="r")
        told: List[str] = []
        with FakeDaemon(streams([started(), FIRST + gone])) as daemon:
            handle = await get(self.commands(daemon).run(["x"], background=True))
            with self.assertRaises(forkd.SandboxGoneError):
                await get(handle.wait(on_stdout=told.append))
            self.assertEqual(told, ["hi"])

    async def test_lost_output_sets_truncated(self) -> None:
        lost = event("lost", "9-0", channel="stdout", bytes=4)
        with FakeDaemon(processes(process(), streamed=streams([started(), FIRST, lost, DONE]))) as daemon:
            handle = await get(self.commands(daemon).connect("web", from_="0-0"))
            self.assertTrue((await get(handle.wait())).truncated)
            self.assertEqual(daemon.last.query, {"stdout_from": "0", "stderr_from": "0", "encoding": "base64"})

    async def test_callbacks_of_background_commands_run_concurrently(self) -> None:
        came, go = threading.Event(), threading.Event()

        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            await reply.head(200, "text/event-stream")
            await reply.chunk(started() + FIRST)
            while not go.is_set():
                await asyncio.sleep(0.005)
            await reply.chunk(SECOND + DONE)
            return await reply.end()

        told: List[str] = []

        def listener(text: str) -> None:
            told.append(text)
            came.set()

        with FakeDaemon(override) as daemon:
            handle = await get(self.commands(daemon).run(["x"], background=True, on_stdout=listener))
            self.assertTrue(await asyncio.to_thread(came.wait, patience()))
            self.assertEqual((told, handle.exit_code), (["hi"], None))
            with self.assertRaisesRegex(forkd.ForkdError, "read already"):
                await collect(handle)
            go.set()
            self.assertEqual((await get(handle.wait())).exit_code, 0)
            self.assertEqual(told, ["hi", "ü!"])

    async def test_an_error_of_a_callback_ends_the_watch_and_is_raised_by_wait(self) -> None:
        def full(_text: str) -> None:
            raise OSError("screen full")

        with FakeDaemon(streams([started(), FIRST])) as daemon:
            commands = self.commands(daemon)
            handle = await get(commands.run(["x"], background=True, on_stdout=full))
            with self.assertRaisesRegex(OSError, "^screen full$"):
                await get(handle.wait())
            self.assertEqual(daemon.names, ["startProcess"])
            # A command in the foreground is killed when its wait fails.
            with self.assertRaisesRegex(OSError, "^screen full$"):
                await get(commands.run(["x"], on_stdout=full))
            self.assertEqual(daemon.names[1:], ["startProcess", "getProcess", "killProcess"])

    async def test_disconnect_does_not_end_the_command(self) -> None:
        with FakeDaemon(streams([started(), FIRST])) as daemon:
            commands = self.commands(daemon)
            handle = await get(commands.run(["x"], background=True, on_stdout=lambda _: None))
            await get(handle.disconnect())
            with self.assertRaises(forkd.ForkdError) as caught:
                await get(handle.wait())
            self.assertEqual(caught.exception.code, "CANCELLED")
            self.assertEqual(daemon.names, ["startProcess"])

    async def test_stdin(self) -> None:
        with FakeDaemon(streams([started(), DONE])) as daemon:
            commands = self.commands(daemon)
            handle = await get(commands.run(["cat"], background=True, stdin=True))
            await get(handle.send_stdin("a"))
            self.assertEqual((daemon.last.route, daemon.last.body, daemon.last.query), ("writeStdin", b"a", {}))
            await get(handle.close_stdin())
            self.assertEqual((daemon.last.body, daemon.last.query), (b"", {"close": "true"}))

    async def test_stdin_is_written_while_output_is_read(self) -> None:
        read = threading.Event()

        async def override(seen: Seen, reply: Reply, count: int) -> Optional[bool]:
            if seen.route == "writeStdin":
                read.set()
                return False
            assert seen.body["stdin"] is True
            await reply.head(200, "text/event-stream")
            await reply.chunk(started() + FIRST)
            while not read.is_set():
                await asyncio.sleep(0.005)
            await reply.chunk(SECOND + DONE)
            return await reply.end()

        with FakeDaemon(override) as daemon:
            result = await get(self.commands(daemon).run(["cat"], stdin=b"\xff\xfe"))
            self.assertEqual(result.stdout, "hiü!")
            self.assertEqual((daemon.last.body, daemon.last.query), (b"\xff\xfe", {"close": "true"}))

    async def test_input_that_cannot_be_written(self) -> None:
        for code, status, is_error in (("PROCESS_ENDED", 409, False), ("SANDBOX_LOST", 410, True)):
            read = threading.Event()

            async def override(
                seen: Seen, reply: Reply, _: int, read: threading.Event = read, code: str = code, status: int = status
            ) -> Optional[bool]:
                if seen.route == "writeStdin":
                    read.set()
                    return await reply.problem(status, code)
                if seen.route != "startProcess":
                    return False
                await reply.head(200, "text/event-stream")
                await reply.chunk(started())
                while not read.is_set():
                    await asyncio.sleep(0.005)
                if status == 409:
                    await reply.chunk(DONE)
                await reply.closed()
                return True

            with FakeDaemon(override) as daemon:
                commands = self.commands(daemon)
                if is_error:
                    with self.assertRaises(forkd.SandboxGoneError):
                        await get(commands.run(["true"], stdin=b"x"))
                else:
                    self.assertEqual((await get(commands.run(["true"], stdin=b"x"))).exit_code, 0)

    async def test_commands_are_named_by_their_pid_or_their_tag(self) -> None:
        listed = (process(), process(id=5, pid=70, tag=None, state="ended"), process(id=9, pid=90, tag=None))
        with FakeDaemon(processes(*listed, streamed=streams([started(), DONE]))) as daemon:
            commands = self.commands(daemon)
            running = await get(commands.list())
            self.assertEqual([(item.id, item.pid, item.tag, item.cmd) for item in running], [(7, 70, "web", "args"), (9, 90, None, "args")])
            await get(commands.send_stdin(70, b"x"))
            self.assertEqual(daemon.last.params["process"], "7")
            await get(commands.close_stdin("web"))
            self.assertEqual(daemon.last.params["process"], "7")
            self.assertTrue(await get(commands.kill(90)))
            self.assertEqual((daemon.last.route, daemon.last.params["process"]), ("killProcess", "9"))
            self.assertFalse(await get(commands.kill(12345)))
            with self.assertRaises(forkd.NotFoundError):
                await get(commands.connect("nobody"))
            await get((await get(commands.connect(70, from_="now"))).wait())
            self.assertEqual(daemon.last.query, {"stdout_from": "now", "stderr_from": "now", "encoding": "base64"})
            with self.assertRaises(forkd.InvalidRequestError):
                await get(commands.connect(70, from_="yesterday"))

    async def test_kill_returns_whether_the_command_was_running(self) -> None:
        async def override(seen: Seen, reply: Reply, count: int) -> Optional[bool]:
            if seen.route == "getProcess":
                state = "running" if count == 1 else "ended"
                return await reply.send(200, "application/json", json.dumps(process(state=state)).encode())
            return await streams([started(), FIRST])(seen, reply, count)

        with FakeDaemon(override) as daemon:
            handle = await get(self.commands(daemon).run(["x"], background=True))
            self.assertTrue(await get(handle.kill()))
            self.assertFalse(await get(handle.kill()))
            await get(handle.send_signal("SIGINT"))
            self.assertEqual(daemon.last.body, {"signal": "SIGINT"})
            await get(handle.send_signal("SIGHUP", scope="process"))
            self.assertEqual(daemon.last.body, {"signal": "SIGHUP", "scope": "process"})
            await get(handle.disconnect())

    async def test_terminals(self) -> None:
        shown: List[bytes] = []
        streamed = streams([started(terminal=True), FIRST, DONE])
        with FakeDaemon(processes(process(), streamed=streamed)) as daemon:
            pty = self.half.Sandbox(self.controller(socket=daemon.socket), sandbox()).pty
            handle = await get(pty.create(forkd.PtySize(24, 80), cwd="/", on_data=shown.append))
            await get(handle.wait())
            self.assertEqual(shown, [b"hi\xc3"])
            body = daemon.seen[0].body
            self.assertEqual((body["terminal"], body["env"], body["cwd"]), ({"rows": 24, "cols": 80}, {"TERM": "xterm-256color"}, "/"))
            plain = await get(pty.create(forkd.PtySize(24, 80), cmd=["top"]))
            self.assertEqual(await collect(plain), [(None, None, b"hi\xc3")])
            await get(plain.resize(forkd.PtySize(5, 6)))
            self.assertEqual(daemon.last.body, {"rows": 5, "cols": 6})
            await get(pty.resize(70, forkd.PtySize(7, 8)))
            self.assertEqual((daemon.last.body, daemon.last.params["process"]), ({"rows": 7, "cols": 8}, "7"))
            again = await get(pty.connect(70, on_data=shown.append))
            await get(again.wait())
            self.assertEqual(len(shown), 2)

    async def test_watch_without_follow_ends_with_the_existing_output(self) -> None:
        with FakeDaemon(streams([started(), FIRST], after=lambda reply: asyncio.ensure_future(reply.end()))) as daemon:
            c = self.controller(socket=daemon.socket)
            events = await collect(c.watch_process("sb-1", "web", follow=False))
            self.assertEqual(
                [(item.type, item.cursor, item.data) for item in events], [("started", "0-0", b""), ("stdout", "3-0", b"hi\xc3")]
            )
            self.assertEqual(daemon.last.query, {"encoding": "base64", "follow": "false"})
            stream = c.watch_process("sb-1", "web")
            await closed(stream)
            self.assertEqual(await collect(stream), [])
