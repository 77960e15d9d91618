// Starts a program in the place of a VMM, confined as the VMM of a fork of this snapshot is, or free, and prints what it could do.
// Usage, as the user whose daemon runs: node break-in.ts confined|free TAG VICTIM OTHER_TAG

import { readdirSync } from "node:fs";
import { mkdir, readFile, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { Controller } from "forkd";
import { findQemu, ImageStore, installation, prepareHome, resolveHome } from "@forkd/daemon";
import { makeRunDir } from "../../packages/daemon/src/host/run-dir.ts";
import { Warden } from "../../packages/daemon/src/memory/warden.ts";
import { SnapshotStore } from "../../packages/daemon/src/snapshot/store.ts";
import { restoreConfinement } from "../../packages/daemon/src/vmm/qemu/confinement.ts";
import { ownDir } from "../../packages/daemon/src/vmm/qemu/own-dir.ts";

const PYTHON = "/usr/bin/python3";
const [mode, tag = "", victimId = "", otherTag = ""] = process.argv.slice(2);

await using cleanup = new AsyncDisposableStack();
const home = await prepareHome(resolveHome());
const daemonSocket = join(home.run, "forkd.sock");
const controller = new Controller({ socket: daemonSocket });
const victim = await controller.getSandbox(victimId);
const status = await controller.status();
const snapshots = new SnapshotStore(home);
const [snapshot, other] = await Promise.all([snapshots.get(tag), snapshots.get(otherTag)]);
const { rootfsPath: rootfs } = await new ImageStore(home).get(snapshot.manifest.imageId);
const { memory, deviceState } = snapshot;

const dir = await makeRunDir(home.run);
cleanup.defer(async () => rm(dir, { recursive: true, force: true }));
await mkdir(ownDir(dir));
const abstract = `forkd-test-${process.pid}`;
const port = await listen({ host: "127.0.0.1", port: 0 });
await listen({ path: `\0${abstract}` });

const vmFolder = join(home.run, "daemon", victim.id);
const targets = {
  confined: mode === "confined",
  memory,
  rootfs,
  preload: installation.readOnlyPreload,
  shared: [memory, rootfs, deviceState],
  folders: [home.root, home.run, home.snapshots, snapshot.dir, other.dir, vmFolder, dir, "/tmp", "/etc"],
  secrets: [join(home.root, "state.db"), join(home.root, "audit.log"), other.memory, join(vmFolder, "vmm.log"), "/etc/passwd"],
  daemon: daemonSocket,
  sockets: [join(home.run, "daemon", "warden.sock"), ...["qmp", "agent"].flatMap((name) => [join(vmFolder, name), join(dir, name)])],
  pids: [victim.pid, status.pid],
  devices: readdirSync("/dev").filter((name) => !["null", "zero", "urandom"].includes(name)),
  abstract,
  port,
};
const warden = cleanup.use(await Warden.start({ binary: installation.warden }));
const log = join(dir, "vmm.log");
const code = await readFile(join(import.meta.dirname, "broken-vmm.py"), "utf8");
const spec = { dir, rootfs, disk: null, memory, deviceState, shape: snapshot.manifest.shape };
const vmm = await warden.spawn({
  argv: [PYTHON, "-I", "-c", code, JSON.stringify(targets)],
  env: {},
  cwd: ownDir(dir),
  log,
  files: [
    { fd: 3, path: join(dir, "qmp"), mode: "listen" },
    { fd: 4, path: join(dir, "agent"), mode: "listen" },
    { fd: 5, path: deviceState, mode: "read" },
  ],
  confinement: mode === "confined" ? restoreConfinement(spec, await findQemu()) : undefined,
});
const exit = await vmm.exited;
process.stdout.write(`${JSON.stringify({ exit, log: await readFile(log, "utf8") })}\n`);

async function listen(where: { path: string } | { host: string; port: number }): Promise<number> {
  const server = createServer((client) => client.destroy());
  await new Promise<void>((resolve) => void server.listen(where, resolve));
  cleanup.defer(() => void server.close());
  const address = server.address();
  return typeof address === "object" && address ? address.port : 0;
}
