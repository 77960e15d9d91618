import assert from "node:assert/strict";
import { mkdir, readFile, readdir, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { run } from "../../src/host/run.ts";
import { ensureGuestKernel, initramfsEntries } from "../../src/image/guest-kernel.ts";
import { packInitramfs } from "../../src/image/initramfs.ts";
import { compareReleases } from "../../src/image/kernel-package.ts";
import { decodeLz4Legacy, isLz4Legacy } from "../../src/image/lz4-legacy.ts";
import { tempDir, tempHome } from "./helpers/temp-home.ts";

async function noKernelPackage(): Promise<string | false> {
  const { stdout } = await run(["apt-cache", "pkgnames", "linux-image-"]).catch(() => ({ stdout: "" }));
  return /cloud-amd64|generic/.test(stdout) ? false : "apt knows no kernel package here";
}
const skip = await noKernelPackage();

/** Reads the archive back the way the kernel does */
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

test("a kernel comes from the distribution's package, once", { skip, timeout: 120_000 }, async (t) => {
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
  for (const name of load) assert.equal(entries.get(`modules/${name}`)?.content.subarray(1, 4).toString(), "ELF");
  assert.ok((await stat(first.vmlinuz)).size > 5_000_000);

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

test("a file that is no kernel, and a missing agent, are said", async (t) => {
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
