"""The stream of events, across lost connections."""

from __future__ import annotations

import json
from typing import Any, List

import forkd

from ..helpers import spec
from ..helpers.both import HalfCase, both, closed, collect, get, step
from ..helpers.clock import Clock
from ..helpers.fake_daemon import FakeDaemon, Reply, Seen


def event(number: int) -> bytes:
    sample = {**spec.sample({"$ref": "#/components/schemas/Event"}), "id": number}
    return f"id: {number}\ndata: {json.dumps(sample)}\n\n".encode()


@both(globals())
class Events(HalfCase):
    async def test_events_resume_after_the_last_received_one(self) -> None:
        async def override(_seen: Seen, reply: Reply, count: int) -> bool:
            if count == 3:
                return await reply.problem(503, "STOPPING")
            await reply.head(200, "text/event-stream")
            await reply.chunk(b": hello\n\n" + event(5 + 2 * count) + event(6 + 2 * count))
            return reply.destroy() if count == 1 else await reply.end()

        with FakeDaemon(override) as daemon:
            stream = self.controller(socket=daemon.socket).events(since=6, types=["sandbox.ended", "sandbox.lost"], sandbox="sb-1")
            ids = [(await step(stream))["id"] for _ in range(6)]
            await closed(stream)
            self.assertEqual(ids, [7, 8, 9, 10, 13, 14])
            self.assertEqual(daemon.seen[0].query, {"types": "sandbox.ended,sandbox.lost", "sandbox": "sb-1", "since": "6"})
            self.assertEqual([seen.headers.get("last-event-id") for seen in daemon.seen], [None, "8", "10", "10"])
            self.assertEqual([seen.query.get("since") for seen in daemon.seen], ["6", None, None, None])

    async def test_an_id_without_data_moves_the_position(self) -> None:
        async def override(_seen: Seen, reply: Reply, count: int) -> bool:
            await reply.head(200, "text/event-stream")
            await reply.chunk(b"id: 41\n\n" if count == 1 else event(42))
            return await reply.end()

        with FakeDaemon(override) as daemon:
            stream = self.controller(socket=daemon.socket).events()
            self.assertEqual((await step(stream))["id"], 42)
            await closed(stream)
            self.assertEqual(daemon.last.headers["last-event-id"], "41")

    async def test_the_first_connection_must_succeed(self) -> None:
        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            return await reply.problem(401, "UNAUTHORIZED")

        with FakeDaemon(override) as daemon, self.assertRaises(forkd.AuthenticationError):
            await collect(self.controller(socket=daemon.socket).events())
        with self.assertRaises(forkd.ConnectionError):
            await collect(self.controller(socket="/nowhere/forkd.sock").events())

    async def test_a_token_that_is_revoked_meanwhile_is_an_error(self) -> None:
        async def override(_seen: Seen, reply: Reply, count: int) -> bool:
            if count > 1:
                return await reply.problem(401, "UNAUTHORIZED")
            await reply.head(200, "text/event-stream")
            await reply.chunk(event(1))
            return await reply.end()

        with FakeDaemon(override) as daemon:
            seen: List[Any] = []
            stream = self.controller(socket=daemon.socket).events()
            seen.append(await step(stream))
            with self.assertRaises(forkd.AuthenticationError):
                await step(stream)
            self.assertEqual(len(seen), 1)

    async def test_the_iteration_ends_after_its_time_without_an_error(self) -> None:
        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            await reply.head(200, "text/event-stream")
            await reply.chunk(event(1))
            await reply.closed()
            return True

        with FakeDaemon(override) as daemon, Clock() as clock:
            stream = self.controller(socket=daemon.socket).events(timeout=1000)
            self.assertEqual((await step(stream))["id"], 1)
            clock.ahead += 1001
            self.assertEqual(await collect(stream), [])

    async def test_a_concurrent_call_uses_another_connection(self) -> None:
        async def override(seen: Seen, reply: Reply, _: int) -> bool:
            if seen.route != "getEvents":
                return False
            await reply.head(200, "text/event-stream")
            await reply.chunk(event(1))
            await reply.closed()
            return True

        with FakeDaemon(override) as daemon:
            c = self.controller(socket=daemon.socket)
            stream = c.events()
            await step(stream)
            self.assertTrue((await get(c.health()))["ok"])
            await closed(stream)
