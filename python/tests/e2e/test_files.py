"""Files on real VMs, through both halves."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import forkd

from ..helpers.both import HalfCase, both, collect, get, step


@both(globals())
class Files(HalfCase):
    async def sandbox(self) -> Any:
        made = await get(self.half.Sandbox.create("python", controller=self.controller()))
        self.addAsyncCleanup(_kill, made)
        return made

    async def test_a_tree(self) -> None:
        files = (await self.sandbox()).files
        self.assertTrue(await get(files.make_dir("/srv/a/b", mode=0o750)))
        self.assertFalse(await get(files.make_dir("/srv/a/b")))
        await get(files.write_files([{"path": "/srv/a/one", "data": "1"}, {"path": "/srv/a/b/two", "data": b"22"}]))
        await get(files.symlink("one", "/srv/a/link"))
        entries = {entry.path: entry for entry in await get(files.list("/srv/a", depth=2))}
        self.assertEqual(sorted(entries), ["/srv/a/b", "/srv/a/b/two", "/srv/a/link", "/srv/a/one"])
        self.assertEqual((entries["/srv/a/b"].type, entries["/srv/a/b"].mode & 0o777), ("directory", 0o750))
        self.assertEqual((entries["/srv/a/b/two"].size, entries["/srv/a/b/two"].owner), (2, "root"))
        self.assertEqual(entries["/srv/a/link"].symlink_target, "one")
        self.assertEqual((await get(files.get_info("/srv/a/link", follow=True))).type, "file")
        self.assertEqual((await get(files.rename("/srv/a/one", "/srv/a/uno"))).name, "uno")
        self.assertFalse(await get(files.exists("/srv/a/one")))
        self.assertTrue(await get(files.exists("/srv/a/link")))
        await get(files.copy("/srv/a", "/srv/copy"))
        await get(files.chmod("/srv/copy", 0o700, recursive=True))
        await get(files.chown("/srv/copy", "nobody", recursive=True))
        info = await get(files.get_info("/srv/copy/b/two"))
        self.assertEqual((info.mode & 0o777, info.owner), (0o700, "nobody"))
        with self.assertRaises(forkd.FileError) as caught:
            await get(files.remove("/srv/copy", recursive=False))
        self.assertEqual(caught.exception.errno, "ENOTEMPTY")
        await get(files.remove("/srv/copy"))
        await get(files.remove("/srv/copy"))
        with self.assertRaises(forkd.FileError) as missing:
            await get(files.read("/srv/copy/b/two"))
        self.assertEqual((missing.exception.code, missing.exception.errno), ("FILE_NOT_FOUND", "ENOENT"))

    async def test_the_rights_of_a_user(self) -> None:
        files = (await self.sandbox()).files
        await get(files.write("/tmp/mine", "x", user="nobody"))
        self.assertEqual((await get(files.get_info("/tmp/mine"))).owner, "nobody")
        with self.assertRaises(forkd.FileError) as caught:
            await get(files.write("/etc/mine", "x", user="nobody"))
        self.assertEqual(caught.exception.errno, "EACCES")

    async def test_archives(self) -> None:
        files = (await self.sandbox()).files
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            for name in ("a/one", "a/b/two"):
                entry = tarfile.TarInfo(name)
                entry.size = 1 << 20
                archive.addfile(entry, io.BytesIO(name.encode()[:1] * (1 << 20)))
        made.seek(0)
        result = await get(files.upload_tar("/srv/unpacked", made))
        self.assertEqual(result["bytes"], 2 << 20)
        content = b"".join(await collect(files.download_tar("/srv/unpacked")))
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            sizes = {entry.name.strip("./"): entry.size for entry in archive if entry.isfile()}
        self.assertEqual(sizes, {"a/one": 1 << 20, "a/b/two": 1 << 20})

    async def test_changes(self) -> None:
        files = (await self.sandbox()).files
        await get(files.make_dir("/srv/watched"))
        watch = await get(files.watch_dir("/srv/watched", recursive=True))
        await get(files.make_dir("/srv/watched/sub"))
        change = await step(watch)
        self.assertEqual((change.type, change.path, change.is_directory), ("created", "/srv/watched/sub", True))
        await get(files.write("/srv/watched/sub/file", "x"))
        seen = []
        while "/srv/watched/sub/file" not in seen:
            seen.append((await step(watch)).path)
        await get(watch.stop())
        self.assertEqual(await collect(watch), [])


async def _kill(sandbox: Any) -> None:
    await get(sandbox.kill())
