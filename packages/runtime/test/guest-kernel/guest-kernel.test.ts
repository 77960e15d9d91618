import assert from "node:assert/strict";
import { mkdir, readFile, readdir, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { patience } from "../../../../tests/helpers/patience.ts";
import { run } from "../../src/host/command.ts";
import { ensureGuestKernel, initramfsEntries } from "../../src/guest-kernel/guest-kernel.ts";
import { packInitramfs } from "../../src/guest-kernel/initramfs.ts";
import { collectModules, withoutSignature } from "../../src/guest-kernel/kernel-modules.ts";
import { compareReleases } from "../../src/guest-kernel/kernel-package.ts";
import { decodeLz4Legacy, isLz4Legacy } from "../../src/guest-kernel/lz4-legacy.ts";
import { tempDir, tempHome } from "../image/helpers/temp-home.ts";

async function noKernelPackage(): Promise<string | false> {
  const { stdout } = await run(["apt-cache", "pkgnames", "linux-image-"]).catch(() => ({ stdout: "" }));
  return /cloud-amd64|generic/.test(stdout) ? false : "apt has no kernel package here";
}
const skip = await noKernelPackage();

/** Reads the archive as the kernel does */
function unpackNewc(data: Buffer): Map<string, { mode: number; content: Buffer; rdev: string }> {
  const entries = new Map<string, { mode: number; content: Buffer; rdev: string }>();
  for (let at = 0; ;) {
    assert.equal(data.subarray(at, at + 6).toString(), "070701");
    const field = (i: number): number => Number.parseInt(data.subarray(at + 6 + i * 8, at + 14 + i * 8).toString(), 16);
    const nameEnd = at + 110 + field(11);
    const name = data.subarray(at + 110, nameEnd - 1).toString();
    if (name === "TRAILER!!!") return entries;
    const start = (nameEnd + 3) & ~3;
    entries.set(name, { mode: field(1), content: data.subarray(start, start + field(6)), rdev: `${field(9)}:${field(10)}` });
    at = (start + field(6) + 3) & ~3;
  }
}

test("the initramfs holds the agent, modules in load order and warm interpreters", () => {
  const modules = [
    { name: "b.ko", data: Buffer.from("bb") },
    { name: "a.ko", data: Buffer.from("aaa") },
  ];
  const scripts = new Map([
    ["node/main.js", Buffer.from("js")],
    ["python.py", Buffer.from("py")],
  ]);
  const entries = unpackNewc(packInitramfs(initramfsEntries(Buffer.from("agent"), modules, scripts)));
  assert.equal(entries.get("init")?.mode, 0o100755);
  assert.equal(entries.get("init")?.content.toString(), "agent");
  assert.equal(entries.get("modules/load")?.content.toString(), "b.ko\na.ko\n");
  assert.equal(entries.get("kernels/node/main.js")?.content.toString(), "js");
  assert.equal(entries.get("dev/console")?.rdev, "5:1");
  assert.equal(entries.get("dev/console")?.mode, 0o020600);
  const names = [...entries.keys()];
  assert.ok(names.indexOf("kernels/node") < names.indexOf("kernels/node/main.js"));
});

test("newer kernels sort higher", () => {
  const names = [
    "linux-image-6.1.0-9-cloud-amd64",
    "linux-image-6.12.100+deb12-cloud-amd64",
    "linux-image-6.1.0-54-cloud-amd64",
    "linux-image-6.12.99+deb12-cloud-amd64",
  ];
  assert.deepEqual(names.toSorted(compareReleases), [
    "linux-image-6.1.0-9-cloud-amd64",
    "linux-image-6.1.0-54-cloud-amd64",
    "linux-image-6.12.99+deb12-cloud-amd64",
    "linux-image-6.12.100+deb12-cloud-amd64",
  ]);
});

test("lz4 streams of kernels are decoded", () => {
  // "abcabcabcabcx": literals "abc", a match that overlaps itself, a last literal
  const block = Buffer.from([0x35, 0x61, 0x62, 0x63, 0x03, 0x00, 0x10, 0x78]);
  const size = Buffer.alloc(4);
  size.writeUInt32LE(block.length);
  const stream = Buffer.concat([Buffer.from([0x02, 0x21, 0x4c, 0x18]), size, block]);
  assert.equal(isLz4Legacy(stream), true);
  assert.equal(decodeLz4Legacy(stream, 100).toString(), "abcabcabcabcx");
  assert.throws(() => decodeLz4Legacy(stream, 5), RangeError);
});

/** A minimal ELF file with its dependencies */
function moduleFile(depends: string): Buffer {
  const names = Buffer.from("\0.modinfo\0");
  const info = Buffer.from(`license=GPL\0depends=${depends}\0`);
  const header = Buffer.alloc(64);
  header.writeUInt32BE(0x7f454c46, 0);
  const table = 64 + names.length + info.length;
  header.writeBigUInt64LE(BigInt(table), 40);
  header.writeUInt16LE(64, 58);
  header.writeUInt16LE(2, 60);
  header.writeUInt16LE(0, 62);
  const section = (name: number, offset: number, size: number): Buffer => {
    const entry = Buffer.alloc(64);
    entry.writeUInt32LE(name, 0);
    entry.writeBigUInt64LE(BigInt(offset), 24);
    entry.writeBigUInt64LE(BigInt(size), 32);
    return entry;
  };
  return Buffer.concat([header, names, info, section(0, 64, names.length), section(1, 64 + names.length, info.length)]);
}

async function kernelTree(t: TestContext, modules: Record<string, string>, builtin: string[]): Promise<string> {
  const dir = await tempDir(t);
  for (const [name, depends] of Object.entries(modules)) await writeFile(join(dir, `${name}.ko`), moduleFile(depends));
  await writeFile(join(dir, "modules.builtin"), builtin.map((name) => `kernel/${name}.ko\n`).join(""));
  return dir;
}

const PLAIN = ["virtio_pci", "virtio_console", "virtio_blk", "virtio_net", "squashfs"];

test("modules for a disk are loaded only with a disk, after the others", async (t) => {
  const modules = { overlay: "", ext4: "jbd2,mbcache", jbd2: "", mbcache: "", crc32c_generic: "" };
  const { boot, disk } = await collectModules(await kernelTree(t, modules, PLAIN));
  const names = (list: { name: string }[] | null): string[] => (list ?? []).map(({ name }) => name);
  assert.deepEqual(names(boot), ["overlay"]);
  assert.deepEqual(names(disk), ["crc32c_generic", "jbd2", "mbcache", "ext4"]);
});

test("a kernel with ext4 built in needs nothing more for a disk, one without it cannot have any", async (t) => {
  assert.deepEqual((await collectModules(await kernelTree(t, { overlay: "" }, [...PLAIN, "ext4"]))).disk, []);
  assert.equal((await collectModules(await kernelTree(t, { overlay: "" }, PLAIN))).disk, null);
});

test("the signature of a module is cut off, and a module without one stays as it is", () => {
  const module = moduleFile("");
  const described = Buffer.alloc(12);
  described.writeUInt32BE(5, 8);
  const signed = Buffer.concat([module, Buffer.from("12345"), described, Buffer.from("~Module signature appended~\n")]);
  for (const data of [signed, module]) assert.deepEqual(withoutSignature({ name: "overlay", data }), { name: "overlay", data: module });
});

test("a kernel comes from the distribution's package, once", { skip, timeout: patience(60) }, async (t) => {
  const home = await tempHome(t);
  const dir = await tempDir(t);
  const agent = join(dir, "agent");
  const kernelsDir = join(dir, "kernels");
  await mkdir(kernelsDir);
  await writeFile(agent, "agent 1");
  await writeFile(join(kernelsDir, "python.py"), "print()");
  const first = await ensureGuestKernel(home, { agent, kernelsDir });
  const entries = unpackNewc(await readFile(first.initrd));
  const load = entries.get("modules/load")?.content.toString().trim().split("\n") ?? [];
  assert.ok(
    load.includes("overlay.ko") && load.includes("squashfs.ko") && load.indexOf("failover.ko") < load.indexOf("virtio_net.ko"),
    load.join(" "),
  );
  for (const name of load) {
    const content = entries.get(`modules/${name}`)?.content;
    assert.equal(content?.subarray(1, 4).toString(), "ELF");
    assert.doesNotMatch(content.subarray(-64).toString("latin1"), /signature/, name);
  }
  assert.ok((await stat(first.vmlinuz)).size > 5_000_000);
  assert.ok(first.diskInitrd !== null && (await stat(first.diskInitrd)).size > 0, "distributions' kernels have ext4");

  const steps: string[] = [];
  const second = await ensureGuestKernel(home, { agent, kernelsDir, progress: (event) => steps.push(event.step) });
  assert.deepEqual(second, first);
  assert.equal(steps.length, 0);
  await writeFile(agent, "agent 2");
  const third = await ensureGuestKernel(home, { agent, kernelsDir, progress: (event) => steps.push(event.step) });
  assert.notEqual(third.id, first.id);
  assert.deepEqual(steps, ["Writing the initramfs"]);
  assert.deepEqual(await readdir(home.staging), []);

  const own = await ensureGuestKernel(home, { file: first.vmlinuz, agent, kernelsDir });
  assert.equal(own.release, first.release);
  assert.equal(unpackNewc(await readFile(own.initrd)).get("modules/load")?.content.length, 0);
});

test("a file that is not a kernel, and a missing agent, are reported", async (t) => {
  const home = await tempHome(t);
  const dir = await tempDir(t);
  await writeFile(join(dir, "text"), "x".repeat(2000));
  await assert.rejects(ensureGuestKernel(home, { file: join(dir, "text"), agent: "/none", kernelsDir: dir }), {
    code: "GUEST_KERNEL_MISSING",
  });
  await assert.rejects(ensureGuestKernel(home, { file: join(dir, "none"), agent: "/none", kernelsDir: dir }), {
    code: "GUEST_KERNEL_MISSING",
  });
  assert.deepEqual(await readdir(home.staging), []);
});
