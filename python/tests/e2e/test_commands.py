"""Live commands, terminals and servers on real VMs, through both halves."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any, Callable, List

import forkd

from ..helpers.both import HalfCase, both, closed, collect, get, step
from ..helpers.patience import patience

SERVERS = """
import http.server, socketserver, threading
class Teller(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.send_response(201)
        self.send_header("X-Path", self.path)
        self.end_headers()
        self.wfile.write(body[::-1])
    def log_message(self, *rest): pass
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536): self.request.sendall(data)
for server in [http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Teller), socketserver.ThreadingTCPServer(("", 8001), Echo)]:
    threading.Thread(target=server.serve_forever, daemon=True).start()
"""


class OnVm(HalfCase):
    async def sandbox(self, **options: Any) -> Any:
        made = await get(self.half.Sandbox.create("python", controller=self.controller(), **options))
        self.addAsyncCleanup(_kill, made)
        return made


@both(globals())
class Commands(OnVm):
    async def test_streamed_output(self) -> None:
        sb = await self.sandbox()
        told: List[str] = []
        script = "echo first; read line; echo got $line; echo err >&2; exit 4"
        handle = await get(sb.commands.run(script, background=True, stdin=True))
        pieces = handle.__aiter__() if hasattr(handle, "__aiter__") else iter(handle)
        self.assertEqual(await step(pieces), ("first\n", None, None))
        await get(handle.send_stdin("grüße\n"))
        rest = await collect(pieces)
        self.assertEqual("".join(out or "" for out, _, _ in rest), "got grüße\n")
        with self.assertRaises(forkd.CommandExitError) as caught:
            await get(handle.wait())
        self.assertEqual((caught.exception.exit_code, caught.exception.stderr), (4, "err\n"))
        result = await get(sb.commands.run("for i in 1 2 3; do echo $i; done", on_stdout=told.append))
        self.assertEqual(("".join(told), result.stdout), ("1\n2\n3\n", "1\n2\n3\n"))
        with self.assertRaises(forkd.TimeoutError):
            await get(sb.commands.run("echo begun; sleep 1000", on_stdout=told.append, timeout=patience(0.1)))
        self.assertEqual(told[-1], "begun\n")

    async def test_input_and_output_larger_than_a_pipe(self) -> None:
        sb = await self.sandbox()
        content = bytes(range(256)) * 4096
        length = 0

        def count(text: str) -> None:
            nonlocal length
            length += len(text)

        result = await get(sb.commands.run("base64 -w0", stdin=content, on_stdout=count, timeout=patience()))
        self.assertTrue(base64.b64decode(result.stdout) == content)
        self.assertEqual(length, len(result.stdout))

    async def test_a_command_outlives_its_handle_and_is_found_again(self) -> None:
        sb = await self.sandbox()
        handle = await get(sb.commands.run("echo one; read x; echo two", background=True, stdin=True, tag="waits"))
        await get(handle.disconnect())
        [info] = await get(sb.commands.list())
        self.assertEqual((info.pid, info.tag, info.state, info.args[0]), (handle.pid, "waits", "running", "/bin/sh"))
        again = await get(sb.commands.connect(handle.pid))
        await get(sb.commands.send_stdin("waits", "go\n"))
        self.assertEqual((await get(again.wait())).stdout, "one\ntwo\n")
        late = await get(sb.commands.connect("waits", from_="4-0"))
        self.assertEqual((await get(late.wait())).stdout, "two\n")
        self.assertEqual(await get(sb.commands.list()), [])

    async def test_killing(self) -> None:
        sb = await self.sandbox()
        handle = await get(sb.commands.run(["sleep", "1000"], background=True))
        self.assertTrue(await get(handle.kill()))
        self.assertFalse(await get(handle.kill()))
        result = await get(handle.wait(check=False))
        self.assertEqual((result.exit_code, result.signal), (137, "SIGKILL"))
        other = await get(sb.commands.run("sleep 1000", background=True, tag="other"))
        await get(other.send_signal("SIGTERM"))
        self.assertEqual((await get(other.wait(check=False))).signal, "SIGTERM")
        self.assertFalse(await get(sb.commands.kill("other")))
        self.assertFalse(await get(sb.commands.kill(99999)))

    async def test_cancelling_run_kills_the_command(self) -> None:
        sb = await self.sandbox()

        def give_up(_text: str) -> None:
            raise KeyError("enough")

        with self.assertRaises(KeyError):
            await get(sb.commands.run("echo x; sleep 1000", on_stdout=give_up))
        self.assertEqual(await get(sb.commands.list()), [])
        if self.half.name == "async":
            begun = asyncio.Event()
            task = asyncio.ensure_future(sb.commands.run("echo x; sleep 1000", on_stdout=lambda _: begun.set()))
            await begun.wait()
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual(await get(sb.commands.list()), [])

    async def test_a_command_continues_in_a_fork(self) -> None:
        sb = await self.sandbox()
        handle = await get(sb.commands.run("echo before; read x; echo $x", background=True, stdin=True, tag="shared"))
        [tip] = await get(sb.fork(1))
        self.addAsyncCleanup(_kill, tip)
        for machine, word in ((sb, "source"), (tip, "fork")):
            own = handle if machine is sb else await get(tip.commands.connect(handle.pid))
            await get(machine.commands.send_stdin(handle.pid, f"{word}\n"))
            self.assertEqual((await get(own.wait())).stdout, f"before\n{word}\n")

    async def test_a_terminal(self) -> None:
        sb = await self.sandbox()
        handle = await get(sb.pty.create(forkd.PtySize(rows=24, cols=80), envs={"PS1": "$ "}))
        await get(handle.send_stdin("stty size; tty\n"))
        seen = b""
        pieces = handle.__aiter__() if hasattr(handle, "__aiter__") else iter(handle)
        while b"/dev/pts/" not in seen:
            seen += (await step(pieces))[2]
        self.assertIn(b"24 80\r\n", seen)
        await get(sb.pty.resize(handle.pid, forkd.PtySize(50, 132)))
        await get(handle.send_stdin("stty size\n"))
        while b"50 132\r\n" not in seen:
            seen += (await step(pieces))[2]
        self.assertTrue(await get(sb.pty.kill(handle.pid)))
        await closed(pieces)


@both(globals())
class Servers(OnVm):
    async def test_requests_and_connections(self) -> None:
        sb = await self.sandbox()
        await get(sb.eval(SERVERS))
        listening = {item["port"] for item in await get(sb.ports.list())}
        self.assertLessEqual({8000, 8001}, listening)
        body = bytes(range(256)) * 4096
        response = await get(sb.ports.fetch(8000, "/a/../b?x=1", method="POST", body=body))
        self.assertEqual((response.status, response.headers["x-path"]), (201, "/b?x=1"))
        self.assertTrue(await get(response.read()) == body[::-1])
        connection = await get(sb.ports.connect(8001))
        await get(connection.write(b"there and back"))
        await get(connection.close_write())
        received = b""
        while True:
            data = await get(connection.read(timeout=patience()))
            if not data:
                break
            received += data
        await get(connection.close())
        self.assertEqual(received, b"there and back")
        calls: List[Callable[[], Any]] = [lambda: sb.ports.fetch(8999), lambda: sb.ports.connect(8999)]
        for call in calls:
            with self.assertRaises(forkd.ForkdError) as caught:
                await get(call())
            self.assertEqual(caught.exception.code, "PORT_CLOSED")

    async def test_addresses(self) -> None:
        sb = await self.sandbox()
        self.assertRegex(await get(sb.get_host(8000)), rf"^8000-{sb.id}\.localhost:\d+$")
        preview = await get(sb.ports.preview(8000, expires_in=60))
        self.assertTrue(preview["url"].startswith(await get(sb.ports.url(8000))))

    async def test_network_policy(self) -> None:
        sb = await self.sandbox(network={"mode": "allow", "allow": ["example.org:443"]})
        self.assertEqual(sb.info["network"]["allow"], ["example.org:443"])
        await get(sb.set_network("none"))
        network = await get(sb.get_network())
        self.assertEqual((network["mode"], network["allow"], network["connections_open"]), ("none", [], 0))
        with self.assertRaises(forkd.InvalidRequestError):
            await get(sb.set_network("allow", allow=["not a rule"]))
        self.assertTrue(json.dumps(network))


async def _kill(sandbox: Any) -> None:
    await get(sandbox.kill())
