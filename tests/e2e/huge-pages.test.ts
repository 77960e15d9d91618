// Snapshots with huge pages: forks and branches map a copy of their memory in huge pages, and write small ones.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { prepareHome, resolveHome, Runtime } from "@forkd/runtime";
import { rejection, sh, value } from "../helpers/guest.ts";
import { until } from "../helpers/until.ts";
import { ensurePythonImage, PYTHON_WARM } from "../helpers/vm.ts";

import type { Sandbox } from "@forkd/runtime";

const run = promisify(execFile);
const MIB = 1024 * 1024;
const MEMORY_MIB = 256;
/** for two images, not for three */
const TMPFS_MIB = 2 * MEMORY_MIB + 64;

/** What the host's kernel says of a VMM's mapping of its memory, in MiB */
async function mapping(child: Sandbox): Promise<{ huge: number; own: number }> {
  const smaps = await readFile(`/proc/${child.vm.pid}/smaps`, "utf8");
  const entry = smaps.split(/\n(?=[0-9a-f]+-[0-9a-f]+ )/).find((text) => text.split("\n")[0]?.endsWith(child.memoryPath));
  assert.ok(entry, `${child.memoryPath} is mapped`);
  const mib = (name: string): number => Number(new RegExp(`^${name}: +(\\d+) kB`, "m").exec(entry)?.[1]) / 1024;
  return { huge: mib("ShmemPmdMapped"), own: mib("Anonymous") };
}

async function mountHuge(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-huge-"));
  await run("mount", ["-t", "tmpfs", "-o", `size=${TMPFS_MIB}M,huge=within_size,mode=700`, "tmpfs", dir]);
  return dir;
}

/** Only root may mount a tmpfs, and a kernel without huge pages refuses the option */
async function whyNot(): Promise<string | false> {
  try {
    const dir = await mountHuge();
    await run("umount", [dir]);
    await rm(dir, { recursive: true });
    return false;
  } catch (error) {
    return `no tmpfs with huge pages can be mounted here: ${(error as Error).message}`;
  }
}

describe("a snapshot with huge pages", { skip: await whyNot() }, () => {
  const tag = "huge";
  let dir: string;
  let runtime: Runtime;

  /** Ends the VMM that waits for further forks, too */
  async function releaseMemory(): Promise<void> {
    await runtime.zygotes.forget((await runtime.snapshots.get(tag)).manifest.id);
    await runtime.flats.evict();
  }

  before(async () => {
    dir = await mountHuge();
    const home = await prepareHome(resolveHome());
    await ensurePythonImage(home);
    runtime = await Runtime.start({ home, hugepagesDir: dir });
    const { diskMiB: _disk, ...spec } = PYTHON_WARM;
    await runtime.createSnapshot({ ...spec, tag, memoryMiB: MEMORY_MIB, hugepages: true });
  });
  after(async () => {
    try {
      await Promise.all(runtime.sandboxes.map(async (sandbox) => sandbox.kill()));
      await runtime.close();
      assert.deepEqual(await readdir(dir), [], "nothing is left on the tmpfs");
    } finally {
      // lazily: a VMM that a failed test left may still map a file
      await run("umount", ["--lazy", dir]);
      await rm(dir, { recursive: true });
    }
  });

  it("has forks that read huge pages, and copy a small page where they write", async () => {
    const children = [await runtime.forkOne(tag), await runtime.forkOne(tag)];
    const [one, other] = children as [Sandbox, Sandbox];
    assert.equal(one.memoryPath, other.memoryPath);
    assert.ok(one.memoryPath.startsWith(`${dir}/`));
    await value(one, "warmed.append(3) or warmed");
    assert.deepEqual(await value(other, "warmed"), [1, 2]);
    for (const child of children) {
      const { huge, own } = await mapping(child);
      assert.ok(huge >= 4, `${huge} MiB are mapped as huge pages`);
      // 2 MiB for each of its writes would be more than all that it has touched
      assert.ok(own < 64, `${own} MiB were copied`);
    }
    await Promise.all(children.map(async (child) => child.kill()));
  });

  it("has branches with huge pages, whose forks have the state of their source", async () => {
    const source = await runtime.forkOne(tag);
    await value(source, "kept = bytes(range(256)) * 4096");
    await sh(source, "echo written > /root/file");
    const { snapshot } = await runtime.branch(source, `${tag}-branch`);
    assert.equal(snapshot.manifest.shape.hugepages, true);
    await value(source, "kept = None");
    const tip = await runtime.forkOne(snapshot);
    assert.equal(await value(tip, "kept == bytes(range(256)) * 4096"), true);
    assert.equal(await sh(tip, "cat /root/file"), "written");
    assert.ok((await mapping(tip)).huge >= 4);
    assert.notEqual(tip.memoryPath, source.memoryPath);
    await tip.kill();
    await source.kill();
  });

  it("gives the memory back when no VMM uses it", async () => {
    const child = await runtime.forkOne(tag);
    const folder = join(dir, (await readdir(dir))[0] ?? "");
    assert.deepEqual((await readdir(folder)).length, 1);
    await child.kill();
    await releaseMemory();
    assert.deepEqual(await readdir(folder), []);
  });

  it("is refused in words where the tmpfs is full", async () => {
    await releaseMemory();
    const file = join(dir, "other");
    const fill = async (): Promise<boolean> =>
      run("fallocate", ["--length", String((TMPFS_MIB - MEMORY_MIB + 32) * MIB), file]).then(
        () => true,
        () => false,
      );
    // the host's kernel frees a removed image when it has removed the mounts of the VMM, some time after that has ended
    await until(fill);
    try {
      await rejection(runtime.forkOne(tag), "NO_SPACE");
    } finally {
      await rm(file);
    }
    const child = await runtime.forkOne(tag);
    await child.kill();
  });

  it("is refused by name on a host without huge pages, and when it is made there", async () => {
    const without = await Runtime.start({ home: runtime.home, hugepagesDir: "/proc" });
    try {
      const error = await rejection(without.forkOne(tag), "HUGEPAGES_UNAVAILABLE");
      assert.match(error.message, /\/proc: it is not on a tmpfs but on proc/);
      const { diskMiB: _disk, ...spec } = PYTHON_WARM;
      await rejection(without.createSnapshot({ ...spec, tag: "none", hugepages: true }), "HUGEPAGES_UNAVAILABLE");
    } finally {
      await without.close();
    }
  });
});
