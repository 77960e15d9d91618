// Detection of QEMU.

import assert from "node:assert/strict";
import { chmod, mkdir, mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { it } from "node:test";
import { findQemu } from "../../src/vmm/qemu/binary.ts";

it("a QEMU outside of /usr needs its program and the folders beside it that exist, and not the folder above", async (t) => {
  const prefix = await realpath(await mkdtemp(join(tmpdir(), "forkd-qemu-")));
  const before = process.env["FORKD_QEMU"];
  t.after(async () => {
    if (before === undefined) delete process.env["FORKD_QEMU"];
    else process.env["FORKD_QEMU"] = before;
    await rm(prefix, { recursive: true });
  });
  for (const name of ["bin", "share/qemu", "share/seabios", "lib", "private"]) await mkdir(join(prefix, name), { recursive: true });
  const path = join(prefix, "bin", "qemu-system-x86_64");
  await writeFile(path, "#!/bin/sh\necho 'QEMU emulator version 10.0.13 (Debian 1:10.0.13)'\n");
  await chmod(path, 0o755);
  process.env["FORKD_QEMU"] = path;
  const beside = ["share/qemu", "share/seabios", "lib"].map((name) => join(prefix, name));
  assert.deepEqual(await findQemu(), { path, version: "10.0.13", files: [path, ...beside] });
});
