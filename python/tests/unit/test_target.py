"""Address of the daemon."""

from __future__ import annotations

import os
import tempfile
import unittest

import forkd
from forkd._target import Target, refuse_foreign_folder, resolve_store, resolve_target, resolve_token


class Targets(unittest.TestCase):
    def test_argument_then_environment_then_the_default_socket(self) -> None:
        every = {"FORKD_URL": "http://env:1", "FORKD_SOCKET": "/env.sock", "FORKD_RUN": "/run/f"}
        self.assertEqual(
            resolve_target("https://h:2/p/", "/s", every),
            Target("https://h:2/p", "h:2", host="h", port=2, is_tls=True, prefix="/p"),
        )
        self.assertEqual(resolve_target(None, "/s", every), Target("unix:///s", "forkd", socket="/s"))
        self.assertEqual(resolve_target(None, None, every), Target("http://env:1", "env:1", host="env", port=1))
        self.assertEqual(resolve_target(None, None, {"FORKD_SOCKET": "/env.sock"}).socket, "/env.sock")
        for url in ("unix:///a/b.sock", "unix:/a/b.sock"):
            self.assertEqual(resolve_target(url, None, {}).socket, "/a/b.sock")

    def test_default_ports(self) -> None:
        self.assertEqual(resolve_target("https://h", None, {}).port, 443)
        self.assertEqual(resolve_target("http://h", None, {}).port, 80)
        self.assertEqual(resolve_target("http://[::1]:8", None, {}).host, "::1")

    def test_the_default_socket_is_that_of_the_daemon(self) -> None:
        uid = os.getuid()
        for env, folder in (
            ({"FORKD_RUN": "/run/f", "XDG_RUNTIME_DIR": "/x"}, "/run/f"),
            ({"XDG_RUNTIME_DIR": "/run/user/7"}, "/run/user/7/forkd"),
            ({"TMPDIR": "/t/"}, f"/t/forkd-{uid}"),
            ({}, f"/tmp/forkd-{uid}"),
        ):
            target = resolve_target(None, None, env)
            self.assertEqual((target.socket, target.uid), (f"{folder}/forkd.sock", uid))

    def test_a_store_that_is_not_the_default_one_has_a_socket_of_its_own(self) -> None:
        usual = "/var/lib/forkd" if os.getuid() == 0 else "/h/.local/share/forkd"
        for home, folder in (
            ("/srv/forkd", "/x/forkd-de7761697ed38754"),
            ("/srv//a/../forkd/", "/x/forkd-de7761697ed38754"),
            (usual, "/x/forkd"),
        ):
            env = {"FORKD_HOME": home, "XDG_RUNTIME_DIR": "/x", "HOME": "/h"}
            self.assertEqual(resolve_target(None, None, env).socket, f"{folder}/forkd.sock")

    def test_a_link_to_a_store_leads_to_the_same_socket(self) -> None:
        with tempfile.TemporaryDirectory(prefix="forkd-py-") as folder:
            os.mkdir(f"{folder}/real")
            os.symlink(f"{folder}/real", f"{folder}/link")
            sockets = [
                resolve_target(None, None, {"FORKD_HOME": f"{folder}/{name}/store", "XDG_RUNTIME_DIR": "/x"}).socket
                for name in ("real", "link")
            ]
            self.assertEqual(sockets[0], sockets[1])

    def test_the_store_id_is_sent_only_to_the_default_socket(self) -> None:
        env = {"FORKD_HOME": "/srv/forkd", "FORKD_RUN": "/run/f"}
        for socket in (None, "/run/f/forkd.sock"):
            self.assertEqual(resolve_store(resolve_target(None, socket, env), env), "de7761697ed38754")
        for url, socket in ((None, "/other.sock"), ("http://h:1", None)):
            self.assertIsNone(resolve_store(resolve_target(url, socket, env), env))
        self.assertIsNone(resolve_store(resolve_target(None, None, {"FORKD_RUN": "/run/f"}), {"FORKD_RUN": "/run/f"}))

    def test_an_invalid_address_or_token_is_refused_before_sending(self) -> None:
        for url in (
            "ftp://x",
            "localhost",
            "unix:relative",
            "8889",
            "http://",
            "http://h:x",
            "http://a b",
            "http://u:p@h",
            "http://h:1\r\n",
        ):
            with self.subTest(url), self.assertRaises(forkd.InvalidRequestError):
                forkd.Controller(url)
        with self.assertRaises(forkd.InvalidRequestError):
            forkd.Controller(token="a\r\nb")
        self.assertEqual(resolve_token(None, {"FORKD_TOKEN": "abc\n"}), "abc")
        self.assertIsNone(resolve_token("", {"FORKD_TOKEN": "abc"}))

    def test_the_older_argument(self) -> None:
        self.assertEqual(forkd.Controller(base_url="http://127.0.0.1:8889/").url, "http://127.0.0.1:8889")
        self.assertEqual(forkd.Controller("http://127.0.0.1:8889", "token", 5).url, "http://127.0.0.1:8889")

    def test_a_default_folder_that_others_can_write_to_is_not_trusted(self) -> None:
        with tempfile.TemporaryDirectory(prefix="forkd-py-") as folder:
            target = resolve_target(None, None, {"FORKD_RUN": folder})
            refuse_foreign_folder(target)
            os.chmod(folder, 0o777)
            with self.assertRaisesRegex(OSError, "another user may listen"):
                refuse_foreign_folder(target)
            os.chmod(folder, 0o700)
            with self.assertRaisesRegex(OSError, "another user may listen"):
                refuse_foreign_folder(Target("", "", socket=target.socket, uid=os.getuid() + 1))
