"""Servers inside a sandbox: requests, connections, addresses."""

from __future__ import annotations

import json
import unittest
from typing import Any, Optional

import forkd
from forkd._port_path import port_target

from ..helpers import spec
from ..helpers.both import HalfCase, both, collect, get
from ..helpers.fake_daemon import FakeDaemon, Reply, Seen
from ..helpers.patience import patience
from ..helpers.samples import sandbox


class Paths(unittest.TestCase):
    def test_a_target_cannot_reach_another_route(self) -> None:
        for given, wanted in (
            ("", "/"),
            ("/", "/"),
            ("a/b", "/a/b"),
            ("/a/../b/./c/", "/b/c/"),
            ("/../../v1/stop", "/v1/stop"),
            ("/%2e%2E/%2e/x", "/x"),
            ("/a/..", "/"),
            ("//x", "/x"),
            ("/ü b?q=a b&x=/../y#z", "/%C3%BC%20b?q=a%20b&x=/../y"),
            ("/a\\..\\b\r\nx: y", "/a%5C..%5Cb%0D%0Ax:%20y"),
            ("/%41?", "/%41?"),
        ):
            self.assertEqual(port_target(given), wanted, given)


@both(globals())
class Ports(HalfCase):
    def sandbox(self, daemon: FakeDaemon, way: str = "socket", **options: Any) -> Any:
        return self.half.Sandbox(self.controller(**{way: getattr(daemon, way)}, **options), sandbox())

    async def test_any_answer_of_the_server_is_a_result(self) -> None:
        async def override(seen: Seen, reply: Reply, _: int) -> bool:
            reply.extra["Set-Cookie"] = "a=b"
            return await reply.send(418, "application/json", json.dumps({"body": seen.body.decode(), "url": seen.url}).encode())

        with FakeDaemon(override) as daemon:
            for way in ("socket", "url"):
                ports = self.sandbox(daemon, way, token="tok").ports
                response = await get(
                    ports.fetch(8000, "/items?limit=3", method="post", headers={"X-A": "b", "Authorization": "mine"}, body="tea")
                )
                self.assertEqual((response.status, response.headers["set-cookie"]), (418, "a=b"))
                self.assertIn(("Set-Cookie", "a=b"), response.raw_headers)
                wanted = {"body": "tea", "url": "/v1/sandboxes/sb-1/proxy/8000/items?limit=3"}
                self.assertEqual(await get(response.json()), wanted)
                self.assertEqual(json.loads(await get(response.text())), wanted)
                seen = daemon.last
                self.assertEqual((seen.headers["x-a"], seen.headers["authorization"], seen.headers["x-forkd-token"]), ("b", "mine", "tok"))
                self.assertNotIn("content-type", seen.headers)
            await get(ports.fetch(8000))
            self.assertNotIn("authorization", daemon.last.headers)

    async def test_streamed_bodies_in_both_directions(self) -> None:
        async def override(seen: Seen, reply: Reply, _: int) -> bool:
            await reply.head(200)
            for part in (seen.body, b"end"):
                await reply.chunk(part)
            return await reply.end()

        with FakeDaemon(override) as daemon:
            response = await get(self.sandbox(daemon).ports.fetch(8000, method="PUT", body=iter([b"a", b"b"])))
            self.assertEqual(b"".join(await collect(response)), b"abend")

    async def test_a_head_response_has_no_body(self) -> None:
        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            await reply.head(200, **{"content-length": "1000"})
            return True

        with FakeDaemon(override) as daemon:
            ports = self.sandbox(daemon).ports
            for _ in range(2):
                response = await get(ports.fetch(8000, method="HEAD"))
                self.assertEqual((response.headers["content-length"], await get(response.read())), ("1000", b""))
            self.assertEqual(daemon.connections, 1)

    async def test_an_answer_of_the_daemon_is_an_error_and_is_not_retried(self) -> None:
        async def override(_seen: Seen, reply: Reply, _: int) -> bool:
            reply.extra["x-forkd-error"] = "PORT_CLOSED"
            return await reply.problem(502, "PORT_CLOSED")

        with FakeDaemon(override) as daemon:
            with self.assertRaises(forkd.ForkdError) as caught:
                await get(self.sandbox(daemon).ports.fetch(8000))
            self.assertEqual((caught.exception.code, len(daemon.seen)), ("PORT_CLOSED", 1))

        async def lost(_seen: Seen, reply: Reply, _: int) -> bool:
            return reply.destroy()

        with FakeDaemon(lost) as daemon:
            with self.assertRaises(forkd.ConnectionError):
                await get(self.sandbox(daemon).ports.fetch(8000))
            self.assertEqual(len(daemon.seen), 1)

    async def test_hop_by_hop_headers_are_refused(self) -> None:
        with FakeDaemon() as daemon:
            ports = self.sandbox(daemon).ports
            for name in ("Host", "connection", "Transfer-Encoding", "x-forkd-token", "a b", "a\r\nb"):
                with self.assertRaises(forkd.InvalidRequestError):
                    await get(ports.fetch(8000, headers={name: "x"}))
            with self.assertRaises(forkd.InvalidRequestError):
                await get(ports.fetch(8000, headers={"x": "a\r\nb: c"}))
            self.assertEqual(daemon.seen, [])

    async def test_a_connection(self) -> None:
        async def override(seen: Seen, reply: Reply, _: int) -> Optional[bool]:
            if seen.params["port"] == "1":
                return await reply.problem(502, "PORT_CLOSED")
            assert (seen.headers["connection"], seen.headers["upgrade"]) == ("Upgrade", "tcp")
            await reply.raw(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nhello")
            while True:
                data = await reply.take()
                if not data:
                    await reply.raw(b"bye")
                    return reply.destroy_later()
                await reply.raw(data.upper())

        with FakeDaemon(override) as daemon:
            for way in ("socket", "url"):
                ports = self.sandbox(daemon, way).ports
                connection = await get(ports.connect(8000))
                self.assertEqual(await get(connection.read()), b"hello")
                await get(connection.write(b"there and back"))
                self.assertEqual(await get(connection.read(timeout=patience())), b"THERE AND BACK")
                with self.assertRaises(forkd.TimeoutError):
                    await get(connection.read(timeout=0.1))
                await get(connection.close())
                connection = await get(ports.connect(8000))
                await get(connection.close_write())
                received = b""
                while True:
                    data = await get(connection.read())
                    if not data:
                        break
                    received += data
                self.assertEqual(received, b"hellobye")
                await get(connection.close())
                with self.assertRaises(forkd.ForkdError) as caught:
                    await get(ports.connect(1))
                self.assertEqual(caught.exception.code, "PORT_CLOSED")

    async def test_addresses(self) -> None:
        status = spec.sample({"$ref": "#/components/schemas/Status"})

        async def override(seen: Seen, reply: Reply, count: int) -> bool:
            if seen.route != "getStatus":
                return False
            address = {"proxy_url": None if count == 3 else "http://localhost:8889"}
            return await reply.send(200, "application/json", json.dumps({**status, **address}).encode())

        with FakeDaemon(override) as daemon:
            sb = self.sandbox(daemon)
            self.assertEqual(await get(sb.ports.url(8000)), "http://8000-sb-1.localhost:8889/")
            self.assertEqual(await get(sb.get_host(3000)), "3000-sb-1.localhost:8889")
            with self.assertRaises(forkd.ConflictError) as caught:
                await get(sb.get_host(3000))
            self.assertEqual(caught.exception.code, "NO_TCP")
            await get(sb.ports.preview(8000, expires_in=60))
            self.assertEqual(daemon.last.body, {"expires_in_secs": 60})
            self.assertEqual(len(await get(sb.ports.list())), 1)

    async def test_network_policy(self) -> None:
        with FakeDaemon() as daemon:
            sb = self.sandbox(daemon)
            await get(sb.set_network("allow", allow=["example.org:443"]))
            self.assertEqual(daemon.last.body, {"mode": "allow", "allow": ["example.org:443"]})
            self.assertEqual((await get(sb.get_network()))["mode"], "none")
