// Transfer of packs: packed here, unpacked in another user's store, forked there.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, copyFile, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { prepareHome, resolveHome } from "@forkd/runtime";
import { digestOf } from "@forkd/runtime/util/digest";
import { encodeHeader, paddingOf, rootHeader } from "@forkd/runtime/archive/tar-write";
import { TestDaemon } from "../helpers/daemon.ts";
import { entriesBelow, namesIn } from "../helpers/host.ts";
import { warmSnapshot } from "../helpers/shared-stores.ts";
import { until } from "../helpers/until.ts";
import { TestUser } from "../helpers/user.ts";
import { DISK_WARM } from "../helpers/vm.ts";

const root = resolve(import.meta.dirname, "../..");
const forkd = join(root, "forkd");
const CLI = join(root, "packages", "cli", "bin", "forkd.mjs");

describe("packs", () => {
  let daemon: TestDaemon;
  let dir: string;
  let file: string;

  before(async () => {
    daemon = await TestDaemon.start();
    dir = await mkdtemp(join(tmpdir(), "forkd-packs-"));
    await chmod(dir, 0o755);
    file = join(dir, "later.forkd");
    const { controller } = daemon;
    await warmSnapshot(daemon.home, "warm", DISK_WARM);
    const [sandbox] = await controller.spawnSandboxes("warm", { name: "source" });
    assert.ok(sandbox);
    await controller.evalCode("source", "kept += 1");
    await controller.execCommand("source", ["sh", "-c", "echo mine > /srv/file && sync"]);
    await controller.branchSandbox("source", { tag: "later" });
    await controller.killSandbox("source");
  });

  after(async () => {
    await daemon[Symbol.asyncDispose]();
    await rm(dir, { recursive: true, force: true });
  });

  const ok = async (...args: string[]): Promise<string> => {
    const { code, stdout, stderr } = await daemon.cli(args);
    assert.equal(code, 0, `forkd ${args.join(" ")}: ${stderr}`);
    return stdout;
  };

  it("are one file, signed, and reproducible", async () => {
    await ok("key", "new", "maker");
    const info = JSON.parse(await ok("pack", "later", "-o", file, "--sign", "maker", "--json")) as Record<string, unknown>;
    assert.deepEqual([(info["snapshots"] as string[]).length, (info["signed_by"] as string[]).length], [2, 1]);
    assert.equal((await stat(file)).size, info["bytes"]);
    assert.equal((await stat(file)).mode & 0o777, 0o600);
    await ok("pack", "later", "-o", join(dir, "plain.forkd"));
    await ok("pack", "later", "-o", join(dir, "again.forkd"));
    assert.ok((await readFile(join(dir, "plain.forkd"))).equals(await readFile(join(dir, "again.forkd"))));
    await rm(join(dir, "again.forkd"));
  });

  describe("for another user, with another store and no image", () => {
    let user: TestUser | undefined;
    let obstacle = "";

    before(async () => {
      const made = await TestUser.make();
      if (typeof made === "string") {
        obstacle = made;
        return;
      }
      user = made;
      await user.fill(await prepareHome(resolveHome()), { images: false });
      await copyFile(file, join(dir, "their.forkd"));
      await chmod(join(dir, "their.forkd"), 0o644);
      await writeFile(join(user.home.root, "config.json"), '{"pack_trust": "required"}');
      await chmod(join(user.home.root, "config.json"), 0o644);
    });
    after(async () => user?.remove());

    it("are refused until their signer is trusted, then fork with all state, and pack identically", async (t) => {
      if (!user) return t.skip(obstacle);
      const me = user;
      const as = async (...args: string[]): Promise<string> => me.as(forkd, args);
      await assert.rejects(as("unpack", join(dir, "their.forkd")), /PACK_UNTRUSTED/);
      assert.deepEqual(
        (await namesIn(me.home.snapshots)).filter((name) => name.startsWith("sn-")),
        [],
      );
      const key = (await ok("key", "show", "maker", "-q")).trim();
      await as("key", "trust", "friend", key);
      const unpacked = JSON.parse(await as("unpack", join(dir, "their.forkd"), "--tag", "theirs", "--json")) as Record<string, unknown>;
      assert.equal((unpacked["added"] as string[]).length, 2);
      assert.match(String(unpacked["signed_by"]), /^[0-9a-f]{64}$/);
      await as("fork", "theirs", "--name", "child");
      assert.equal(await as("eval", "child", "--", "kept, numpy.arange(3).sum()"), "(42, 3)\n");
      assert.equal(await as("exec", "child", "--", "cat", "/srv/file"), "mine\n");
      // a branch made there can be packed too
      await as("branch", "child", "--tag", "further");
      await as("pack", "theirs", "-o", join(me.folder, "back.forkd"));
      assert.ok((await readFile(join(me.folder, "back.forkd"))).equals(await readFile(join(dir, "plain.forkd"))));
      await as("pack", "further", "--without", "theirs", "-o", join(me.folder, "further.forkd"));
      assert.ok((await stat(join(me.folder, "further.forkd"))).size < (await stat(file)).size / 2);
      await copyFile(join(me.folder, "further.forkd"), join(dir, "further.forkd"));
      await as("down", "--kill-sandboxes");
      await ok("unpack", join(dir, "further.forkd"));
      await ok("fork", "further", "--name", "returned");
      assert.equal(await ok("eval", "returned", "--", "kept"), "42\n");
      await ok("kill", "returned");
    });
  });

  it("run with another CPU model that this machine has; else the error names what is missing", async () => {
    await ok("pack", "warm", "-o", join(dir, "warm.forkd"));
    const pack = await readFile(join(dir, "warm.forkd"));
    await writeFile(join(dir, "west.forkd"), withCpu(pack, "Westmere-v1"));
    await ok("unpack", join(dir, "west.forkd"), "--tag", "west");
    await ok("fork", "west", "--name", "west");
    assert.equal(await ok("eval", "west", "--", "kept"), "41\n");
    await ok("kill", "west");
    const { accelerator } = await daemon.controller.status();
    for (const [cpu, why] of [
      ["Nehalem-v99", /has no CPU model Nehalem-v99/],
      ["host", /host is another one on every machine|lacks/],
      ...(accelerator === "tcg" ? ([["Haswell-v4", /lacks what the model Haswell-v4 has: .*pcid/]] as const) : []),
    ] as const) {
      await writeFile(join(dir, "other.forkd"), withCpu(pack, cpu));
      const { code, stderr } = await daemon.cli(["unpack", join(dir, "other.forkd"), "--tag", "other"]);
      assert.equal(code, 1);
      assert.match(stderr, why);
      assert.match(stderr, /Make the snapshot again with --cpu baseline.*\[SNAPSHOT_INCOMPATIBLE\]/);
    }
  });

  it("build on nothing when compacted first", async () => {
    await ok("snapshot", "compact", "later", "flat");
    const { snapshots, bytes } = await daemon.controller.preparePack("flat", { level: 1 });
    assert.deepEqual([snapshots.length, bytes > 1e6], [1, true]);
  });

  it("leave nothing when interrupted", async () => {
    const staged = async (): Promise<string[]> => (await entriesBelow(daemon.home.staging)).map(({ name }) => name);
    const interrupt = async (args: string[], stdin: Buffer, isAtWork: (files: string[]) => boolean): Promise<void> => {
      const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", CLI, ...args], {
        env: { ...daemon.env, FORKD_NO_AUTOSTART: "1" },
        stdio: ["pipe", "ignore", "ignore"],
      });
      child.stdin.on("error", () => undefined); // the command is interrupted
      child.stdin.write(stdin);
      await until(async () => isAtWork(await staged()));
      child.kill("SIGINT");
      await once(child, "exit");
      assert.equal(child.exitCode, 130);
      await until(async () => (await staged()).length === 0);
    };
    await interrupt(["pack", "warm", "--level", "19", "-o", join(dir, "slow.forkd")], Buffer.alloc(0), (files) =>
      files.some((name) => name.includes("part-")),
    );
    assert.deepEqual(
      (await readdir(dir)).filter((name) => name.startsWith("slow")),
      [],
    );
    await ok("pack", "warm", "-o", join(dir, "warm.forkd"));
    const pack = withCpu(await readFile(join(dir, "warm.forkd")), "Nehalem-v1", "sn-bbbbbbbbbbbbbbbb");
    await interrupt(["unpack", "-", "--tag", "half"], pack.subarray(0, pack.length / 2), (files) =>
      files.some((name) => name.endsWith("memory.ram")),
    );
    await assert.rejects(daemon.controller.getSnapshot("half"), { code: "NOT_FOUND" });
  });

  it("are counted by gc", async () => {
    const { removed } = await daemon.controller.gc({ dryRun: true });
    assert.ok(removed.some(({ kind, bytes }) => kind === "pack" && bytes > 0));
  });
});

/** A copy of a pack of one snapshot, for another CPU and with another id */
function withCpu(pack: Buffer, cpu: string, id = "sn-aaaaaaaaaaaaaaaa"): Buffer {
  const size = Number.parseInt(pack.toString("latin1", 124, 135), 8);
  const rest = pack.subarray(512 + Math.ceil(size / 512) * 512);
  const text = pack.toString("utf8", 512, 512 + size);
  const [, own = ""] = /"head":"(sn-[a-z2-7]{16})"/.exec(text) ?? [];
  const manifest = Buffer.from(text.replaceAll('"cpu":"Nehalem-v1"', `"cpu":"${cpu}"`).replaceAll(own, id));
  const path = `manifest/sha256/${digestOf(manifest).slice("sha256:".length)}`;
  const header = encodeHeader(rootHeader({ path, type: "file", mode: 0o644, size: manifest.length }));
  return Buffer.concat([header, manifest, paddingOf(manifest.length), rest]);
}
