// Runs broken-vmm.py in place of a VMM, confined like the VMM of a fork of this snapshot or unconfined, and prints the
// outcomes.
// Usage, as the user of the daemon: node break-in.ts listed|denied|free|listed-clone|denied-clone|listed-frozen|denied-frozen TAG VICTIM OTHER_TAG
// listed: seccomp filter with an allow list; denied: filter with a deny list; clone: as a clone of a held process;
// frozen: as one of which frozen copies are made

import { readdirSync } from "node:fs";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { connect, createServer } from "node:net";
import { userInfo } from "node:os";
import { join } from "node:path";
import { Controller } from "forkd";
import { ImageStore, installation, prepareHome, resolveHome } from "@forkd/runtime";
import { makeRunDir } from "@forkd/runtime/host/run-dirs";
import { Warden, type ChildFile, type VmmProcess } from "@forkd/runtime/warden/warden";
import { SnapshotStore } from "@forkd/runtime/snapshot/store";
import { tailOf } from "@forkd/runtime/util/tail";
import { findQemu } from "@forkd/runtime/vmm/qemu/binary";
import { restoreConfinement } from "@forkd/runtime/vmm/qemu/confinement";
import { ownDir } from "@forkd/runtime/vmm/qemu/own-dir";
import { patience } from "../helpers/patience.ts";

const PYTHON = "/usr/bin/python3";
/** Disk layer of a zygote, and of each clone */
const LAYER = "layer.qcow2";
const [mode = "", tag = "", victimId = "", otherTag = ""] = process.argv.slice(2);
const isClone = mode.endsWith("-clone");
const isFrozen = mode.endsWith("-frozen");

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

const abstract = `forkd-test-${process.pid}`;
const port = await listen({ host: "127.0.0.1", port: 0 });
await listen({ path: `\0${abstract}` });

type Attempt = { at: number; what: string; who: string; outcome: string };
const vmFolder = join(home.run, "daemon", victim.id);
const targets = {
  confined: mode !== "free",
  clone: isClone,
  frozen: isFrozen,
  // by their numbers in its pid namespace, in which it is the second
  relatives: isFrozen ? { "the first process": 1, "a frozen copy": 3 } : {},
  layers: {},
  patience_secs: patience() / 1000,
  memory,
  rootfs,
  preload: mode === "free" ? installation.readOnlyPreload : "/forkd/read-only.so",
  shared: { "the memory image": memory, "the root file system": rootfs, "the device state": deviceState },
  folders: {
    "the store": home.root,
    "the run folder": home.run,
    "all snapshots": home.snapshots,
    "its snapshot": snapshot.dir,
    "another snapshot": other.dir,
    "the victim's folder": vmFolder,
    "/tmp": "/tmp",
    "/etc": "/etc",
  },
  home: userInfo().homedir,
  secrets: {
    "the database": join(home.root, "state.db"),
    "the audit log": join(home.root, "audit.log"),
    "the memory of another snapshot": other.memory,
    "the victim's log": join(vmFolder, "vmm.log"),
    "/etc/passwd": "/etc/passwd",
  },
  sockets: {
    "the daemon": daemonSocket,
    "the warden": join(home.run, "daemon", "warden.sock"),
    "the victim's control channel": join(vmFolder, "qmp"),
    "the victim's agent": join(vmFolder, "agent"),
  },
  processes: { "the victim's VMM": victim.pid, "the daemon": status.pid },
  devices: readdirSync("/dev").filter((name) => !["null", "zero", "urandom"].includes(name)),
  abstract,
  port,
};
const warden = cleanup.use(await Warden.start({ binary: installation.warden }));
const code = await readFile(join(import.meta.dirname, "broken-vmm.py"), "utf8");
const attempts: Attempt[] = [];
let descriptors: number[] | null = null;
// An attempt may end the program; a new one then continues after that attempt
const family = isClone ? await holdOne() : undefined;
while (descriptors === null) {
  const from = attempts.at(-1)?.at ?? 0;
  descriptors = family ? await breakIntoClone(family, from) : await breakIn(from);
}
if (family) await assertUnharmed(family);
process.stdout.write(`${JSON.stringify({ attempts, descriptors })}\n`);

type Held = { dir: string; zygote: VmmProcess; sibling: VmmProcess; siblingDir: string };

/** Starts a waiting program as a zygote and returns it with a clone */
async function holdOne(): Promise<Held> {
  const dir = await makeRunDir(home.run);
  cleanup.defer(async () => rm(dir, { recursive: true, force: true }));
  await mkdir(ownDir(dir));
  const zygote = await start(dir, targets, { clonable: true });
  for (const until = Date.now() + patience(); ;) {
    try {
      await warden.hold(zygote.pid);
      break;
    } catch (error) {
      // the program has not reached its wait yet
      if (Date.now() > until) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  const { process: sibling, dir: siblingDir } = await cloneOf(zygote, "sibling");
  return { dir, zygote, sibling, siblingDir };
}

async function cloneOf(zygote: VmmProcess, name: string): Promise<{ process: VmmProcess; dir: string }> {
  const dir = await makeRunDir(home.run);
  cleanup.defer(async () => rm(dir, { recursive: true, force: true }));
  const files = [
    { fd: 3, path: join(dir, "qmp"), mode: "listen" },
    { fd: 4, path: join(dir, "agent"), mode: "listen" },
    { fd: 6, path: join(dir, name), mode: "create" },
    { fd: 7, path: join(dir, LAYER), mode: "copy" },
    { fd: 8, path: "/dev/null", mode: "read-write" },
  ] as const;
  return { process: await warden.clone(zygote.pid, { log: join(dir, "vmm.log"), files }), dir };
}

async function breakIntoClone({ dir: zygoteDir, zygote, sibling, siblingDir }: Held, from: number): Promise<number[] | null> {
  const { process: clone, dir } = await cloneOf(zygote, "state");
  const sockets = { "its own control channel": join(dir, "qmp"), "its own agent": join(dir, "agent") };
  const go = connect(sockets["its own control channel"]);
  const heard = async (): Promise<unknown> => new Promise((resolve) => go.once("data", resolve));
  // the clone has its own descriptors only when it runs
  await heard();
  // as a branch does it: the next layer, and the first one only for reading
  const next = join(dir, "next");
  await writeFile(next, "");
  await warden.give(clone.pid, { fd: 8, path: next, mode: "read-write" });
  await warden.seal(clone.pid, 7, next);
  const relatives = { "the zygote": await innerPid(zygote.pid), "a sibling": await innerPid(sibling.pid) };
  const layers = { "the zygote's layer": join(zygoteDir, LAYER), "a sibling's layer": join(siblingDir, LAYER), "its layer by path": next };
  go.write(`${JSON.stringify({ from, relatives, layers, sockets: { ...targets.sockets, ...sockets } })}\n`);
  await heard();
  go.destroy();
  return outcomes(clone, dir, from, Object.values(sockets));
}

/** Pid of a process in its own pid namespace */
async function innerPid(pid: number): Promise<number> {
  return Number(/^NSpid:.*\s(\d+)$/m.exec(await readFile(`/proc/${pid}/status`, "utf8"))?.[1]);
}

async function assertUnharmed({ dir, siblingDir, zygote, sibling }: Held): Promise<void> {
  for (const folder of [dir, siblingDir])
    if ((await readFile(join(folder, LAYER), "utf8")) !== "layer of the zygote") throw new Error("a relative's layer has changed");
  for (const { pid } of [zygote, sibling]) await readFile(`/proc/${pid}/status`);
  const running = (await warden.list()).filter((child) => child.running).map(({ pid }) => pid);
  if (![zygote, sibling].every(({ pid }) => running.includes(pid))) throw new Error("a relative of the clone has ended");
}

/** Runs the remaining attempts and adds their outcomes; null: the last attempt ended the program */
async function breakIn(from: number): Promise<number[] | null> {
  await using folders = new AsyncDisposableStack();
  const dir = await makeRunDir(home.run);
  folders.defer(async () => rm(dir, { recursive: true, force: true }));
  await mkdir(ownDir(dir));
  const own = { "its own folder": dir };
  const sockets = { "its own control channel": join(dir, "qmp"), "its own agent": join(dir, "agent") };
  const here = {
    ...targets,
    from,
    folders: { ...targets.folders, ...own },
    sockets: { ...targets.sockets, ...sockets },
  };
  return await outcomes(await start(dir, here, {}), dir, from, Object.values(sockets));
}

async function start(dir: string, here: object, { clonable }: { clonable?: boolean }): Promise<VmmProcess> {
  const active = { id: "dk-aaaaaaaaaaaaaaaa", format: "qcow2", path: join(dir, LAYER) } as const;
  const disk = clonable ? { sizeMiB: 1, below: [], active } : null;
  const spec = {
    dir,
    rootfs,
    disk,
    memory,
    deviceState,
    shape: snapshot.manifest.shape,
    clonable: clonable ? ("zygote" as const) : undefined,
  };
  const filter = mode.startsWith("listed") ? "listed" : "deny";
  const confinement = { ...restoreConfinement(spec, await findQemu()), filter } as const;
  return warden.spawn({
    argv: [PYTHON, "-I", "-c", code, JSON.stringify(here)],
    env: {},
    cwd: ownDir(dir),
    log: join(dir, "vmm.log"),
    files: [
      { fd: 3, path: join(dir, "qmp"), mode: "listen" },
      { fd: 4, path: join(dir, "agent"), mode: "listen" },
      { fd: 5, path: deviceState, mode: "read" },
      ...(clonable ? await zygoteFiles(dir) : []),
    ],
    confinement: mode === "free" ? undefined : confinement,
    copies: clonable ? "clones" : isFrozen ? "frozen" : "none",
  });
}

/** The files that a zygote with a disk writes */
async function zygoteFiles(dir: string): Promise<ChildFile[]> {
  await writeFile(join(dir, LAYER), "layer of the zygote");
  return [
    { fd: 6, path: join(dir, "state"), mode: "create" },
    { fd: 7, path: join(dir, LAYER), mode: "read-write" },
    { fd: 8, path: join(dir, "spare"), mode: "create" },
  ];
}

async function outcomes(vmm: VmmProcess, dir: string, from: number, sockets: readonly string[]): Promise<number[] | null> {
  using clients = new DisposableStack();
  const log = join(dir, "vmm.log");
  for (const path of sockets) {
    const client = connect(path, () => client.write("?"));
    client.on("error", () => undefined); // the program does not accept in every attempt
    clients.defer(() => void client.destroy());
  }
  const exit = await vmm.exited;
  const lines = (await readFile(log, "utf8")).trim().split("\n");
  let found: number[] | null = null;
  for (const line of lines.filter((text) => text.startsWith("{"))) {
    const said = JSON.parse(line) as Partial<Attempt> & { descriptors?: number[] };
    const last = attempts.at(-1);
    if (said.what !== undefined) attempts.push({ outcome: "unknown", ...(said as Omit<Attempt, "outcome">) });
    else if (said.outcome !== undefined && last) last.outcome = said.outcome;
    else found = said.descriptors ?? null;
  }
  if (found) return found;
  const last = attempts.at(-1);
  if ((last?.at ?? 0) === from) throw new Error(`it ended without an attempt: ${endOf(exit.signal, await tailOf(log))}`);
  // a program that was executed by the attempt has its own exit code
  if (last) last.outcome = exit.code === 0 ? "done" : endOf(exit.signal, await tailOf(log));
  return null;
}

/** The system call that the warden logged, or the signal with the end of the log */
function endOf(signal: string | null, log: string): string {
  const call = /^forkd: ended, because it made the system call (\w+) \(\d+\), which its filter does not allow$/m.exec(log)?.[1];
  return call === undefined ? `${signal}: ${log}` : `ended by ${call}`;
}

async function listen(where: { path: string } | { host: string; port: number }): Promise<number> {
  const server = createServer((client) => client.destroy());
  await new Promise<void>((resolve) => void server.listen(where, resolve));
  cleanup.defer(() => void server.close());
  const address = server.address();
  return typeof address === "object" && address ? address.port : 0;
}
