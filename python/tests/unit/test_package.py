"""The installed package: typed, without dependencies, usable by programs that close nothing."""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import List

import forkd

from ..helpers.both import HalfCase, both, get
from ..helpers.fake_daemon import FakeDaemon
from ..helpers.patience import patience
from ..helpers.spec import ROOT

PACKAGE = ROOT / "python" / "src" / "forkd"


class Package(unittest.TestCase):
    def test_its_version_is_that_of_the_other_packages(self) -> None:
        for folder in ("", "packages/sdk", "packages/runtime", "packages/daemon", "packages/cli"):
            version = json.loads((ROOT / folder / "package.json").read_text())["version"]
            self.assertEqual(forkd.__version__, version, folder)

    def test_its_name_is_not_that_of_another_project(self) -> None:
        manifest = (ROOT / "python" / "pyproject.toml").read_text()
        self.assertIn('\nname = "forkd-vm"\n', manifest)

    def test_it_needs_nothing_but_the_standard_library(self) -> None:
        manifest = (ROOT / "python" / "pyproject.toml").read_text()
        self.assertIn("\ndependencies = []\n", manifest)
        for file in PACKAGE.rglob("*.py"):
            for name in re.findall(r"^(?:from|import) (\w+)", file.read_text(), re.MULTILINE):
                # sys.stdlib_module_names exists since Python 3.10.
                self.assertIn(name, getattr(sys, "stdlib_module_names", [name]), file)

    def test_its_licence_is_that_of_the_repository(self) -> None:
        # A symbolic link would be dangling in the source archive.
        self.assertFalse((ROOT / "python" / "LICENSE").is_symlink())
        self.assertEqual((ROOT / "python" / "LICENSE").read_text(), (ROOT / "LICENSE").read_text())

    def test_it_is_typed(self) -> None:
        self.assertTrue((PACKAGE / "py.typed").exists())

    def test_every_name_is_exported_and_documented(self) -> None:
        self.assertEqual(sorted(forkd.__all__, key=_isort_key), forkd.__all__)
        text = (ROOT / "docs" / "sdk-python.md").read_text()
        missing = [name for name in forkd.__all__ if f"`{name}" not in text and not name.startswith("__")]
        self.assertEqual(missing, [], "not in docs/sdk-python.md")

    def test_every_method_is_in_the_docs(self) -> None:
        text = (ROOT / "docs" / "sdk-python.md").read_text()
        kinds = [getattr(forkd, name) for name in forkd.__all__ if isinstance(getattr(forkd, name), type)]
        for kind in [kind for kind in kinds if not issubclass(kind, BaseException)]:
            names = [name for name in sorted({*dir(kind)} - {*dir(list)}) if not name.startswith("_") and callable(getattr(kind, name))]
            missing = [name for name in names if not re.search(rf"\b{name}\b", text)]
            self.assertEqual(missing, [], f"{kind.__name__}: not in docs/sdk-python.md")

    def test_a_program_that_closes_nothing_ends_without_a_warning(self) -> None:
        program = """
            import sys, forkd
            controller = forkd.Controller(sys.argv[1])
            controller.health()
            sandbox = forkd.Sandbox.create("py", controller=controller)
            sandbox.eval("1", check=False)
            print("done")
        """
        with FakeDaemon() as daemon:
            for address in (f"unix://{daemon.socket}", daemon.url):
                self.assertEqual(self.run_program(program, address), "done\n")

    def test_a_process_that_forks_shares_no_connection(self) -> None:
        program = """
            import os, sys, forkd
            controller = forkd.Controller(sys.argv[1])
            controller.health()
            pid = os.fork()
            for _ in range(20):
                assert controller.version() != controller.health()
            if pid == 0:
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            print("done")
        """
        with FakeDaemon() as daemon:
            self.assertEqual(self.run_program(program, f"unix://{daemon.socket}"), "done\n")
            self.assertEqual(daemon.connections, 2)

    def run_program(self, text: str, *args: str) -> str:
        lines = text.strip("\n").splitlines()
        code = "\n".join(line[12:] for line in lines)
        command = [sys.executable, "-W", "error", "-c", code, *args]
        env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
        ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=patience(), check=False)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        return ended.stdout


@both(globals())
class Tls(HalfCase):
    async def test_tls_and_an_untrusted_certificate(self) -> None:
        with tempfile.TemporaryDirectory(prefix="forkd-py-") as folder:
            key, cert = Path(folder) / "key.pem", Path(folder) / "cert.pem"
            if not make_certificate(key, cert):
                self.skipTest("openssl is not installed")
            server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            server.load_cert_chain(cert, key)
            with FakeDaemon(ssl_context=server) as daemon:
                c = self.controller(url=daemon.url, token="t", ssl_context=ssl.create_default_context(cafile=str(cert)))
                for _ in range(3):
                    await get(c.write_file("sb-1", "/x", b"x" * (1 << 20)))
                    self.assertEqual(len(daemon.last.body), 1 << 20)
                self.assertTrue((await get(c.health()))["ok"])
                self.assertEqual(daemon.connections, 1)
                with self.assertRaisesRegex(forkd.ConnectionError, "(?i)certificate") as caught:
                    await get(self.controller(url=daemon.url, retries=0).health())
                self.assertIsInstance(caught.exception.__cause__, ssl.SSLError)


def make_certificate(key: Path, cert: Path) -> bool:
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    try:
        subprocess.run([*make, *names, "-keyout", key, "-out", cert], check=True, capture_output=True)
    except FileNotFoundError:
        return False
    return True


def _isort_key(name: str) -> List[object]:
    """Constants, then classes, then the rest."""
    return [0 if name.isupper() else 1 if name[0].isupper() else 2, name]
