"""Streamed bodies, in both directions."""

from __future__ import annotations

import asyncio
import io
import json
import tempfile
import threading
import unittest
from typing import Any, AsyncIterator, Iterator, List

import forkd
from forkd._streams import EventDecoder, LineDecoder, ServerEvent, TextDecoder

from ..helpers.both import HalfCase, both, closed, collect, get, step
from ..helpers.clock import Clock
from ..helpers.fake_daemon import FakeDaemon, Reply, Seen
from ..helpers.patience import patience
from ..helpers.samples import snapshot

WAYS = ("socket", "url")


class Decoders(unittest.TestCase):
    """One byte per chunk, the worst case."""

    def test_characters_and_lines_that_are_split_between_chunks(self) -> None:
        text = "größe\r\n\n🙂 ok\nlast"
        decoder, lines = TextDecoder(), LineDecoder()
        chunks = [bytes([byte]) for byte in text.encode()]
        self.assertEqual("".join(decoder.feed(chunk) for chunk in chunks) + decoder.finish(), text)
        self.assertEqual([line for chunk in chunks for line in lines.feed(chunk)] + lines.finish(), ["größe", "", "🙂 ok", "last"])

    def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(self) -> None:
        lines = LineDecoder(10_000)
        with self.assertRaises(forkd.ForkdError) as caught:
            for _ in range(11):
                lines.feed(b"a" * 1000)
        self.assertEqual(caught.exception.code, "BAD_ANSWER")

    def test_server_sent_events(self) -> None:
        """Comments, several data lines, ids without data."""
        text = ": hello\nretry: 1\n\nid: 4\n\nid: 5\nevent: a\ndata: one\ndata:two\n\ndata\n\ndata: cut off"
        decoder = EventDecoder()
        events = [event for byte in text.encode() for event in decoder.feed(bytes([byte]))]
        self.assertEqual(events, [ServerEvent("4", "message", ""), ServerEvent("5", "a", "one\ntwo"), ServerEvent("5", "message", "")])


@both(globals())
class Streams(HalfCase):
    async def test_progress_then_the_result(self) -> None:
        async def override(seen: Seen, reply: Reply, _: int) -> bool:
            assert "application/x-ndjson" in seen.headers["accept"]
            await reply.head(200, "application/x-ndjson")
            await reply.chunk(b'{"progress":{"step":"boot","done":1,"to')
            await reply.chunk(b'tal":2,"unit":"items"}}\n\n{"progress":{"step":"warm"}}\n')
            await reply.chunk(json.dumps({"result": snapshot()}).encode())
            return await reply.end()

        with FakeDaemon(override) as daemon:
            for way in WAYS:
                steps: List[Any] = []
                made = await get(self.controller(**{way: getattr(daemon, way)}).create_snapshot("py", on_progress=steps.append))
                self.assertEqual(made, snapshot())
                self.assertEqual(steps, [{"step": "boot", "done": 1, "total": 2, "unit": "items"}, {"step": "warm"}])

    async def test_an_error_after_progress_has_the_status_of_its_code(self) -> None:
        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            problem = {"error": "No.", "code": "WARMUP_FAILED", "hint": "h", "request_id": "r"}
            await reply.head(200, "application/x-ndjson")
            await reply.chunk(b'{"progress":{"step":"boot"}}\n' + json.dumps({"error": problem}).encode() + b"\n")
            return await reply.end()

        with FakeDaemon(override) as daemon:
            with self.assertRaises(forkd.InvalidRequestError) as caught:
                await get(self.controller(socket=daemon.socket).create_snapshot("py"))
            error = caught.exception
            self.assertEqual((error.code, error.status, error.request_id), ("WARMUP_FAILED", 422, "r"))
            self.assertEqual(len(daemon.seen), 1)

    async def test_broken_progress_is_retried_with_the_same_key(self) -> None:
        async def override(_seen: Seen, reply: Reply, count: int) -> bool:
            if count > 1:
                return False
            await reply.head(200, "application/x-ndjson")
            await reply.chunk(b'{"progress":{"step":"boot"}}\n')
            return reply.destroy()

        with FakeDaemon(override) as daemon:
            self.assertEqual(await get(self.controller(socket=daemon.socket).create_snapshot("py")), snapshot())
            self.assertEqual(len({seen.headers["idempotency-key"] for seen in daemon.seen}), 1)
            self.assertEqual(len(daemon.seen), 2)

    async def test_an_error_raised_by_on_progress_is_the_callers(self) -> None:
        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            await reply.head(200, "application/x-ndjson")
            await reply.chunk(b'{"progress":{"step":"boot"}}\n')
            await reply.closed()
            return True

        def mine(_progress: Any) -> None:
            raise OSError("mine")

        with FakeDaemon(override) as daemon:
            with self.assertRaisesRegex(OSError, "^mine$"):
                await get(self.controller(socket=daemon.socket).create_snapshot("py", on_progress=mine))
            self.assertEqual(len(daemon.seen), 1)

    async def test_a_fully_read_stream_returns_its_connection_to_the_pool(self) -> None:
        with FakeDaemon() as daemon:
            c = self.controller(socket=daemon.socket)
            for _ in range(5):
                await get(c.read_file("sb-1", "/x"))
                await collect(c.logs("sb-1"))
                await get(c.create_snapshot("py"))
                with self.assertRaises(forkd.ForkdError):
                    await get(c.eval_code("sb-1", "1", language="cobol"))
            self.assertEqual(daemon.connections, 1)

    async def test_large_files_both_ways(self) -> None:
        chunk = bytes(i % 251 for i in range(1 << 20))

        async def override(seen: Seen, reply: Reply, _: int) -> bool:
            if seen.route != "readFile":
                return False
            await reply.head(200)
            for _ in range(16):
                await reply.chunk(chunk)
            return await reply.end()

        with FakeDaemon(override) as daemon, tempfile.TemporaryFile() as file:
            file.write(chunk * 3)
            for way in WAYS:
                c = self.controller(**{way: getattr(daemon, way)})
                await get(c.write_file("sb-1", "/big", (chunk for _ in range(16))))
                self.assertTrue(daemon.last.body == chunk * 16)
                file.seek(0)
                await get(c.write_file("sb-1", "/file", file))
                self.assertTrue(daemon.last.body == chunk * 3)
                await get(c.write_file("sb-1", "/bytes", chunk * 5))
                self.assertTrue(daemon.last.body == chunk * 5)
                self.assertTrue(await get(c.read_file("sb-1", "/big")) == chunk * 16)
                await get(c.write_file("sb-1", "/text", io.StringIO("größe")))
                self.assertEqual(daemon.last.body, "größe".encode())

    async def test_an_error_of_the_source_is_raised_and_not_retried(self) -> None:
        def source() -> Iterator[bytes]:
            yield b"x"
            raise OSError("disk")

        with FakeDaemon() as daemon:
            for way in WAYS:
                with self.assertRaisesRegex(OSError, "^disk$") as caught:
                    await get(self.controller(**{way: getattr(daemon, way)}).write_file("sb-1", "/x", source()))
                self.assertNotIsInstance(caught.exception, forkd.ForkdError)
            self.assertEqual(daemon.seen, [])

    async def test_an_incomplete_file_is_an_error(self) -> None:
        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            await reply.head(200)
            await reply.chunk(b"half")
            return reply.destroy()

        with FakeDaemon(override) as daemon:
            for way in WAYS:
                with self.assertRaises(forkd.ConnectionError):
                    await get(self.controller(**{way: getattr(daemon, way)}).read_file("sb-1", "/x"))

    async def test_a_stream_that_falls_silent_times_out(self) -> None:
        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            await reply.head(200)
            await reply.chunk(b"x")
            await reply.closed()
            return True

        with FakeDaemon(override) as daemon:
            for way in WAYS:
                with self.assertRaises(forkd.TimeoutError) as caught:
                    await get(self.controller(**{way: getattr(daemon, way)}).read_file("sb-1", "/silent", request_timeout=0.3))
                self.assertEqual(caught.exception.code, "CALL_TIMEOUT")

    async def test_a_slow_stream_does_not_time_out(self) -> None:
        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            await reply.head(200)
            for _ in range(4):
                await reply.chunk(b"x")
            return await reply.end()

        with FakeDaemon(override) as daemon, Clock() as clock:
            for way in WAYS:
                stream = self.controller(**{way: getattr(daemon, way)}).read_file_stream("sb-1", "/slow", request_timeout=1000)
                read = await step(stream)
                while len(read) < 4:
                    clock.ahead += 800
                    read += await step(stream)
                self.assertEqual(await collect(stream), [])

    async def test_leaving_a_stream_closes_it(self) -> None:
        left = threading.Event()

        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            await reply.head(200)
            await reply.chunk(b"first\n")
            await reply.closed()
            left.set()
            return True

        with FakeDaemon(override) as daemon:
            for way in WAYS:
                left.clear()
                log = self.controller(**{way: getattr(daemon, way)}).logs("sb-1", follow=True)
                self.assertEqual(await step(log), "first\n")
                await closed(log)
                self.assertTrue(await asyncio.to_thread(left.wait, patience()))

    async def test_a_followed_log_ends_after_its_time_without_an_error(self) -> None:
        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            await reply.head(200)
            await reply.chunk("erste größ".encode()[:-1])
            await reply.closed()
            return True

        with FakeDaemon(override) as daemon, Clock() as clock:
            for way in WAYS:
                log = self.controller(**{way: getattr(daemon, way)}).logs("sb-1", follow=True, timeout=1000)
                self.assertEqual(await step(log), "erste grö")
                clock.ahead += 1001
                self.assertEqual(await collect(log), [])

    async def test_an_early_answer_stops_the_upload(self) -> None:
        """The server answers as soon as it has seen the head, and reads nothing more."""
        sent = 0

        def source() -> Iterator[bytes]:
            nonlocal sent
            for _ in range(1000):
                sent += 1
                yield b"x" * (1 << 20)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            body = b'{"error":"No.","code":"NOT_FOUND"}'
            writer.write(b"HTTP/1.1 404 X\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            await writer.drain()
            await release.wait()
            writer.transport.abort()

        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        release = asyncio.run_coroutine_threadsafe(_event(), loop).result(patience())
        server = asyncio.run_coroutine_threadsafe(asyncio.start_server(serve, "127.0.0.1", 0), loop).result(patience())
        try:
            c = self.controller(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout=patience())
            with self.assertRaises(forkd.NotFoundError):
                await get(c.write_file("sb-1", "/x", source()))
            self.assertLess(sent, 1000)
            with self.assertRaises(forkd.NotFoundError):
                await get(c.write_file("sb-1", "/x", b"x" * (64 << 20)))
        finally:
            asyncio.run_coroutine_threadsafe(_end(server, release), loop).result(patience())
            loop.call_soon_threadsafe(loop.stop)
            thread.join(patience())
            loop.close()


class AsyncOnly(unittest.IsolatedAsyncioTestCase):
    async def test_async_source_and_async_callback(self) -> None:
        async def source() -> AsyncIterator[bytes]:
            yield b"a"
            await asyncio.sleep(0)
            yield b"b"

        async def override(seen: Seen, reply: Reply, _: int) -> bool:
            if seen.route != "createSnapshot":
                return False
            await reply.head(200, "application/x-ndjson")
            await reply.chunk(b'{"progress":{"step":"boot"}}\n' + json.dumps({"result": snapshot()}).encode())
            return await reply.end()

        steps: List[Any] = []

        async def listener(progress: Any) -> None:
            await asyncio.sleep(0)
            steps.append(progress["step"])

        with FakeDaemon(override) as daemon:
            async with forkd.AsyncController(socket=daemon.socket) as c:
                await c.write_file("sb-1", "/x", source())
                self.assertEqual(daemon.last.body, b"ab")
                await c.create_snapshot("py", on_progress=listener)
                self.assertEqual(steps, ["boot"])

    async def test_concurrent_calls_use_separate_connections(self) -> None:
        async def override(seen: Seen, reply: Reply, _: int) -> bool:
            answer = {**json.loads(b'{"result":null,"error":null,"error_type":null,"traceback":null}'), "value": seen.body["code"]}
            while len(daemon.seen) % 50 > 0:
                await asyncio.sleep(0.005)  # until all concurrent requests have arrived
            rest = {"exit_code": 0, "stdout": "", "stderr": "", "truncated": False}
            return await reply.send(200, "application/json", json.dumps({**answer, **rest}).encode())

        with FakeDaemon(override) as daemon:
            async with forkd.AsyncController(socket=daemon.socket) as c:
                for _ in range(2):
                    answers = await asyncio.gather(*(c.eval_code("sb-1", str(i)) for i in range(50)))
                    self.assertEqual([answer["value"] for answer in answers], [str(i) for i in range(50)])
            self.assertEqual(daemon.connections, 50)

    async def test_a_call_that_is_cancelled_closes_its_connection(self) -> None:
        came, left = threading.Event(), threading.Event()

        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            came.set()
            await reply.closed()
            left.set()
            return True

        with FakeDaemon(override) as daemon:
            async with forkd.AsyncController(socket=daemon.socket) as c:
                task = asyncio.ensure_future(c.eval_code("sb-1", "1"))
                await asyncio.to_thread(came.wait, patience())
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                self.assertTrue(await asyncio.to_thread(left.wait, patience()))


class LoopsOfTheirOwn(unittest.TestCase):
    def test_one_controller_in_successive_event_loops(self) -> None:
        with FakeDaemon() as daemon:
            c = forkd.AsyncController(socket=daemon.socket)

            async def main() -> None:
                async with c:
                    await c.health()
                    await c.health()

            asyncio.run(main())
            asyncio.run(main())
            self.assertEqual(daemon.connections, 2)


class Threads(unittest.TestCase):
    def test_one_controller_for_many_threads(self) -> None:
        with FakeDaemon() as daemon, forkd.Controller(socket=daemon.socket) as c:
            failures: List[BaseException] = []

            def work(number: int) -> None:
                try:
                    for _ in range(20):
                        c.write_file("sb-1", f"/{number}", str(number) * 1000)
                except forkd.ForkdError as error:
                    failures.append(error)

            threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(failures, [])
            self.assertEqual(len(daemon.seen), 160)
            for seen in daemon.seen:
                self.assertEqual(seen.body.decode(), seen.query["path"][1:] * 1000)
            self.assertLessEqual(daemon.connections, 8)


async def _event() -> asyncio.Event:
    return asyncio.Event()


async def _end(server: asyncio.AbstractServer, release: asyncio.Event) -> None:
    release.set()
    server.close()
    for _ in range(5):
        await asyncio.sleep(0)  # closes the served connections
