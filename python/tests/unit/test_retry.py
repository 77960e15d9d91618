"""Which calls are repeated, and which are not."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any, Callable, List

import forkd

from ..helpers.both import HalfCase, both, get
from ..helpers.fake_daemon import FakeDaemon, Override, Reply, Seen
from ..helpers.samples import sandbox

#: Not safe to repeat
CALLS: List[Callable[[Any], Any]] = [
    lambda c: c.exec_command("sb-1", ["true"]),
    lambda c: c.eval_code("sb-1", "1"),
    lambda c: c.update_sandbox("sb-1", ttl_secs=1),
    lambda c: c.write_file("sb-1", "/x", "text", append=True),
    lambda c: c.kill_sandboxes(all=True),
]


async def busy_once(_seen: Seen, reply: Reply, count: int) -> bool:
    return count == 1 and await reply.problem(503, "BUSY")


async def lost_once(_seen: Seen, reply: Reply, count: int) -> bool:
    return count == 1 and reply.destroy()


@both(globals())
class Retry(HalfCase):
    async def test_a_busy_daemon_is_retried(self) -> None:
        await self.assert_repeated(busy_once)

    async def test_safe_calls_are_retried_after_a_broken_connection(self) -> None:
        await self.assert_repeated(lost_once)

    async def assert_repeated(self, override: Override) -> None:
        """Reads, removals and creations are repeated, with the same key."""
        with FakeDaemon(override) as daemon:
            c = self.controller(socket=daemon.socket)
            await get(c.status())
            await get(c.kill_sandbox("sb-1"))
            await get(c.spawn_sandboxes("py"))
            await get(c.write_file("sb-1", "/x", "text"))
            await get(c.ping_sandbox("sb-1"))
            names = ["getStatus", "deleteSandbox", "createSandboxes", "writeFile", "pingSandbox"]
            self.assertEqual(daemon.names, [name for name in names for _ in range(2)])
            keys = [seen.headers["idempotency-key"] for seen in daemon.seen if seen.route == "createSandboxes"]
            self.assertEqual(keys[0], keys[1])

    async def test_programs_and_code_run_at_most_once_unless_the_caller_gave_a_key(self) -> None:
        for override in (busy_once, lost_once):
            with self.subTest(override.__name__), FakeDaemon(override) as daemon:
                c = self.controller(socket=daemon.socket)
                for call in CALLS:
                    with self.assertRaises(forkd.ForkdError):
                        await get(call(c))
                once = ["execCommand", "evalCode", "updateSandbox", "writeFile", "deleteSandboxes"]
                self.assertEqual(daemon.names, once)
                daemon.seen.clear()
                await get(c.exec_command("sb-1", ["true"], idempotency_key="k"))
                self.assertEqual(daemon.names, ["execCommand", "execCommand"])

    async def test_number_of_tries(self) -> None:
        async def stops(_seen: Seen, reply: Reply, _: int) -> bool:
            return await reply.problem(503, "STOPPING")

        with FakeDaemon(stops) as daemon:
            for retries, tries in ((None, 3), (0, 1), (4, 5)):
                daemon.seen.clear()
                with self.assertRaises(forkd.ForkdError) as caught:
                    await get(self.controller(socket=daemon.socket, retries=retries).status())
                self.assertEqual(caught.exception.code, "STOPPING")
                self.assertEqual(len(daemon.seen), tries)

    async def test_a_full_host_is_not_retried(self) -> None:
        async def full(_seen: Seen, reply: Reply, _: int) -> bool:
            return await reply.problem(503, "LIMIT_REACHED", details={"free": 0})

        with FakeDaemon(full) as daemon:
            with self.assertRaises(forkd.LimitError) as caught:
                await get(self.controller(socket=daemon.socket).spawn_sandboxes("py"))
            self.assertEqual(caught.exception.details, {"free": 0})
            self.assertEqual(len(daemon.seen), 1)

    async def test_not_found_after_a_lost_answer_of_a_removal_is_success(self) -> None:
        async def gone(_seen: Seen, reply: Reply, count: int) -> bool:
            return reply.destroy() if count == 1 else await reply.problem(404, "NOT_FOUND")

        with FakeDaemon(gone) as daemon:
            handle = self.half.Sandbox(self.controller(socket=daemon.socket), sandbox())
            self.assertTrue(await get(handle.kill()))
            self.assertFalse(await get(handle.kill()))

    async def test_a_connection_that_was_closed_while_idle(self) -> None:
        # The server answers one request per connection, and closes it at the moment the next one comes.
        with tempfile.TemporaryDirectory(prefix="forkd-py-") as folder:
            path = str(Path(folder) / "forkd.sock")
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(path)
            listener.listen()
            served = []

            def serve(connection: socket.socket) -> None:
                with connection:
                    connection.recv(65536)
                    connection.sendall(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{"ok":true}')
                    connection.recv(65536)

            def accept() -> None:
                while True:
                    try:
                        connection, _ = listener.accept()
                    except OSError:
                        return  # the test has ended
                    served.append(connection)
                    threading.Thread(target=serve, args=[connection], daemon=True).start()

            threading.Thread(target=accept, daemon=True).start()
            try:
                c = self.controller(socket=path)
                self.assertEqual(await get(c.health()), {"ok": True})
                self.assertEqual(await get(c.health()), {"ok": True})
                self.assertEqual(len(served), 2)
                with self.assertRaises(forkd.ConnectionError):
                    await get(c.eval_code("sb-1", "1"))
                self.assertEqual(len(served), 2)
            finally:
                listener.shutdown(socket.SHUT_RDWR)
                listener.close()

    async def test_a_connection_that_the_daemon_closed_before_is_not_used(self) -> None:
        with FakeDaemon() as daemon:
            c = self.controller(socket=daemon.socket)
            await get(c.health())
            daemon.cut()
            for _ in range(3):
                await asyncio.sleep(0)  # the event loop notices closed sockets
            await get(c.eval_code("sb-1", "1"))
            self.assertEqual(daemon.names, ["getHealth", "evalCode"])
