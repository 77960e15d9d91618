"""Files of a sandbox, and watches."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import datetime, timezone
from typing import Any, List, Optional

import forkd

from ..helpers import spec
from ..helpers.both import HalfCase, both, collect, get, step
from ..helpers.fake_daemon import FakeDaemon, Reply, Seen
from ..helpers.patience import patience
from ..helpers.samples import sandbox

ENTRY = {**spec.sample({"$ref": "#/components/schemas/ListedFile"}), "mode": "0640", "mtime_ms": 1500, "path": "/srv/a b"}


def change(**event: Any) -> bytes:
    return f"data: {json.dumps(event)}\n\n".encode()


READY = change(type="ready")


class OnFiles(HalfCase):
    def files(self, daemon: FakeDaemon) -> Any:
        return self.half.Sandbox(self.controller(socket=daemon.socket, retries=0), sandbox()).files


@both(globals())
class Files(OnFiles):
    async def test_reading_and_writing(self) -> None:
        with FakeDaemon() as daemon:
            files = self.files(daemon)
            self.assertEqual(await get(files.read("/x")), "content ✓\n")
            self.assertEqual(await get(files.read("/x", "bytes", offset=1, user="nobody")), "content ✓\n".encode())
            self.assertEqual(daemon.last.query, {"path": "/x", "offset": "1", "user": "nobody"})
            self.assertEqual(b"".join(await collect(await get(files.read("/x", format="stream")))), "content ✓\n".encode())
            await get(files.write("/a/b", "text"))
            self.assertEqual((daemon.last.query, daemon.last.body), ({"path": "/a/b", "parents": "true"}, b"text"))
            await get(files.write("/a/b", b"text", mode=0o600, append=True, parents=False))
            self.assertEqual(daemon.last.query, {"path": "/a/b", "mode": "600", "append": "true"})
            await get(files.write_files([{"path": "/1", "data": "one"}, {"path": "/2", "data": b"two"}], user="nobody"))
            self.assertEqual([seen.body for seen in daemon.seen[-2:]], [b"one", b"two"])
            self.assertEqual(daemon.last.query, {"path": "/2", "parents": "true", "user": "nobody"})

    async def test_stat_and_list(self) -> None:
        async def override(seen: Seen, reply: Reply, _: int) -> bool:
            answer = [ENTRY] if seen.route == "listFiles" else ENTRY
            return await reply.send(200, "application/json", json.dumps(answer).encode())

        with FakeDaemon(override) as daemon:
            files = self.files(daemon)
            [entry] = await get(files.list("/srv", depth=2))
            self.assertEqual(daemon.last.query, {"path": "/srv", "depth": "2", "limit": "10000"})
            self.assertEqual((entry.name, entry.path, entry.type, entry.mode), ("a b", "/srv/a b", "file", 0o640))
            self.assertEqual(entry.modified_time, datetime.fromtimestamp(1.5, timezone.utc))
            self.assertEqual((await get(files.get_info("/srv/x/", follow=True))).name, "x")
            self.assertEqual((await get(files.get_info("/"))).name, "/")

    async def test_a_long_list_is_read_page_by_page(self) -> None:
        async def override(_seen: Seen, reply: Reply, count: int) -> bool:
            if count < 3:
                reply.extra["x-next-cursor"] = f"c{count}"
            return await reply.send(200, "application/json", json.dumps([ENTRY]).encode())

        with FakeDaemon(override) as daemon:
            self.assertEqual(len(await get(self.files(daemon).list("/srv"))), 3)
            self.assertEqual([seen.query.get("cursor") for seen in daemon.seen], [None, "c1", "c2"])

    async def test_errors_of_the_guest_have_an_errno(self) -> None:
        async def override(seen: Seen, reply: Reply, _: int) -> bool:
            errno = seen.query["path"][1:]
            return await reply.problem(404 if errno == "ENOENT" else 422, "FILE_FAILED", details={"errno": errno})

        with FakeDaemon(override) as daemon:
            files = self.files(daemon)
            for errno in ("ENOENT", "ENOTDIR"):
                self.assertFalse(await get(files.exists(f"/{errno}")))
            with self.assertRaises(forkd.FileError) as caught:
                await get(files.exists("/EACCES"))
            self.assertEqual(caught.exception.errno, "EACCES")
            await get(files.remove("/ENOENT"))
            self.assertEqual(daemon.last.query, {"path": "/ENOENT", "recursive": "true"})
            with self.assertRaises(forkd.FileError):
                await get(files.remove("/ENOTEMPTY", recursive=False))
            with self.assertRaises(forkd.FileError):
                await get(files.remove("/ENOENT", missing_ok=False))

    async def test_the_rest(self) -> None:
        is_there = True

        async def override(seen: Seen, reply: Reply, _: int) -> Optional[bool]:
            if seen.route != "statFile":
                return False
            if not is_there:
                return await reply.problem(404, "FILE_NOT_FOUND", details={"errno": "ENOENT"})
            return await reply.send(200, "application/json", json.dumps(ENTRY).encode())

        with FakeDaemon(override) as daemon:
            files = self.files(daemon)
            self.assertTrue(await get(files.exists("/x")))
            self.assertFalse(await get(files.make_dir("/x")))
            self.assertEqual(daemon.last.body, {"path": "/x", "parents": True})
            self.assertEqual((await get(files.rename("/x", "/y"))).path, "/y")
            self.assertEqual(daemon.seen[-2].body, {"from": "/x", "to": "/y", "overwrite": True})
            await get(files.copy("/x", "/y", overwrite=False))
            self.assertEqual(daemon.seen[-2].body, {"from": "/x", "to": "/y", "overwrite": False, "recursive": True})
            await get(files.chmod("/x", 0o644))
            self.assertEqual(daemon.last.body, {"path": "/x", "mode": "644"})
            await get(files.chown("/x", "nobody", group=7, recursive=True))
            self.assertEqual(daemon.last.body, {"path": "/x", "owner": "nobody", "group": "7", "recursive": True})
            await get(files.symlink("../target", "/link"))
            self.assertEqual(daemon.last.body, {"target": "../target", "path": "/link"})
            self.assertEqual(b"".join(await collect(files.download_tar("/x", plain=True))), "content ✓\n".encode())
            await get(files.upload_tar("/x", iter([b"t", b"ar"])))
            self.assertEqual((daemon.last.route, daemon.last.body), ("writeTar", b"tar"))
            is_there = False
            self.assertTrue(await get(files.make_dir("/x", mode=0o700)))

    async def test_a_broken_stream_raises_the_reason(self) -> None:
        async def override(seen: Seen, reply: Reply, count: int) -> bool:
            assert seen.headers["te"] == "trailers"
            if count > 1:
                return False
            await reply.head(200)
            await reply.chunk(b"half")
            return await reply.fail(error="Cannot read.", code="FILE_FAILED", hint="h", request_id="r")

        with FakeDaemon(override) as daemon:
            files = self.files(daemon)
            with self.assertRaises(forkd.FileError) as caught:
                await get(files.read("/x"))
            self.assertEqual((caught.exception.message, caught.exception.request_id), ("Cannot read.", "r"))
            self.assertEqual(await get(files.read("/x")), "content ✓\n")
            self.assertEqual(daemon.connections, 1)


@both(globals())
class Watches(OnFiles):
    async def test_changes_are_iterated(self) -> None:
        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            await reply.head(200, "text/event-stream")
            await reply.chunk(READY + b": still here\n\n" + change(type="created", path="/srv/a", directory=True))
            await reply.chunk(change(type="moved", path="/srv/c", **{"from": "/srv/b"}))
            return await reply.end()

        with FakeDaemon(override) as daemon:
            watch = await get(self.files(daemon).watch_dir("/srv", recursive=True, debounce_ms=5, user="nobody"))
            self.assertEqual(daemon.last.query, {"path": "/srv", "recursive": "true", "debounce_ms": "5", "user": "nobody"})
            changes = await collect(watch)
            wanted = [("created", "/srv/a", None, True), ("moved", "/srv/c", "/srv/b", False)]
            self.assertEqual([(item.type, item.path, item.from_path, item.is_directory) for item in changes], wanted)
            self.assertEqual(changes[0].name, "a")

    async def test_callbacks_get_changes(self) -> None:
        told: List[Any] = []
        over = threading.Event()

        def on_exit(error: Optional[Exception]) -> None:
            told.append(error)
            over.set()

        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            await reply.head(200, "text/event-stream")
            await reply.chunk(READY + change(type="modified", path="/srv/a"))
            return await reply.end()

        with FakeDaemon(override) as daemon:
            await get(self.files(daemon).watch_dir("/srv", lambda item: told.append(item.type), on_exit))
            self.assertTrue(await asyncio.to_thread(over.wait, patience()))
            self.assertEqual(told, ["modified", None])

    async def test_get_new_events(self) -> None:
        go, sent = threading.Event(), threading.Event()

        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            await reply.head(200, "text/event-stream")
            await reply.chunk(READY)
            while not go.is_set():
                await asyncio.sleep(0.005)
            await reply.chunk(change(type="created", path="/srv/a") + change(type="removed", path="/srv/a"))
            sent.set()
            await reply.closed()
            return True

        with FakeDaemon(override) as daemon:
            watch = await get(self.files(daemon).watch_dir("/srv"))
            self.assertEqual(await get(watch.get_new_events()), [])
            go.set()
            self.assertTrue(await asyncio.to_thread(sent.wait, patience()))
            self.assertEqual([item.type for item in await get(watch.get_new_events())], ["created", "removed"])
            self.assertEqual(await get(watch.get_new_events()), [])
            await get(watch.stop())

    async def test_a_watch_that_ends_is_an_error_unless_it_was_stopped(self) -> None:
        gone = change(type="error", problem={"error": "Gone.", "code": "VMM_EXITED"})

        async def override(seen: Seen, reply: Reply, _: int) -> bool:
            await reply.head(200, "text/event-stream")
            if seen.query["path"] == "/never":
                return await reply.end()
            await reply.chunk(READY + change(type="created", path="/srv/a"))
            if seen.query["path"] == "/gone":
                await reply.chunk(gone)
            if seen.query["path"] == "/lost":
                return reply.destroy()
            await reply.closed()
            return True

        with FakeDaemon(override) as daemon:
            files = self.files(daemon)
            for path, kind in (("/gone", forkd.SandboxGoneError), ("/lost", forkd.ConnectionError)):
                watch = await get(files.watch_dir(path))
                self.assertEqual((await step(watch)).path, "/srv/a")
                with self.assertRaises(kind):
                    await collect(watch)
            with self.assertRaises(forkd.ForkdError) as never:
                await get(files.watch_dir("/never"))
            self.assertEqual(never.exception.code, "BAD_ANSWER")
            over = threading.Event()
            watch = await get(files.watch_dir("/srv", lambda _: None, lambda _: over.set()))
            await get(watch.stop())
            self.assertTrue(await asyncio.to_thread(over.wait, patience()))
            self.assertEqual(await collect(watch), [])
