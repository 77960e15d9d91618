// Host limits, tested on a folder with the layout of a cgroup tree.

import assert from "node:assert/strict";
import { mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ControlGroups, NO_LIMITS, type HostLimits } from "../../src/host/control-groups.ts";
import { lookAtOwnGroup, type GroupPlaces } from "../../src/host/own-group.ts";

const ALL = "cpuset cpu io memory hugetlb pids";
const WARDEN = 4242;
const VMM = 4243;
const STRANGER = 77;

type Host = AsyncDisposable & {
  places: GroupPlaces;
  group: string;
  groups: ControlGroups;
  home: string;
  remove: (dir: string) => Promise<void>;
};

/** A host whose own group is /unit, with these controllers and processes in it */
async function makeHost(opts: { controllers?: string; procs?: number[]; own?: string; disk?: boolean } = {}): Promise<Host> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-groups-"));
  const places = { root: join(dir, "cgroup"), proc: join(dir, "proc"), blocks: join(dir, "blocks") };
  const group = join(places.root, "unit");
  const home = join(dir, "home");
  for (const folder of [group, home, join(places.proc, "self"), places.blocks]) await mkdir(folder, { recursive: true });
  await writeFile(join(places.root, "cgroup.controllers"), ALL);
  await writeFile(join(group, "cgroup.controllers"), `${opts.controllers ?? ALL}\n`);
  await writeFile(join(group, "cgroup.procs"), (opts.procs ?? [process.pid, WARDEN, VMM]).join("\n"));
  await writeFile(join(group, "cgroup.subtree_control"), "");
  await writeFile(join(places.proc, "self", "cgroup"), opts.own ?? "0::/unit\n");
  const parents = { [process.pid]: 1, [WARDEN]: 1, [VMM]: WARDEN, [STRANGER]: 1 };
  for (const [pid, parent] of Object.entries(parents)) {
    await mkdir(join(places.proc, pid));
    await writeFile(join(places.proc, pid, "stat"), `${pid} (a) b) S ${parent} 1 1`);
  }
  if (opts.disk !== false) await makeDisk(places.blocks, home);
  // rmdir of a plain folder fails while it has files; that of a control group does not
  const remove = async (path: string): Promise<void> => rm(path, { recursive: true });
  const groups = new ControlGroups({ home, parents: async () => [WARDEN], places, removeGroup: remove });
  return { places, group, groups, home, remove, [Symbol.asyncDispose]: async () => rm(dir, { recursive: true }) };
}

/** A partition of disk 8:0, which holds the store */
async function makeDisk(blocks: string, home: string): Promise<void> {
  const { dev } = await stat(home, { bigint: true });
  const number = `${(dev >> 8n) & 0xfffn}:${(dev & 0xffn) | ((dev >> 12n) & ~0xffn)}`;
  await mkdir(join(blocks, "sda", "sda1"), { recursive: true });
  await writeFile(join(blocks, "sda", "dev"), "8:0\n");
  await writeFile(join(blocks, "sda", "sda1", "dev"), `${number}\n`);
  await writeFile(join(blocks, "sda", "sda1", "partition"), "1\n");
  await symlink(join(blocks, "sda", "sda1"), join(blocks, number));
}

const limits = (some: Partial<HostLimits>): HostLimits => ({ ...NO_LIMITS, ...some });

test("all limits are written where the kernel reads them", async () => {
  await using host = await makeHost();
  const all = { memoryMiB: 64, cpus: 0.5, cpuWeight: 50, pids: 100, ioMBps: 12.5 };
  const made = await host.groups.make("sb-1", all);
  assert.ok(made);
  assert.match(made.dir, /\/unit\/forkd-[0-9a-f]{12}\/sb-1$/);
  const read = async (file: string): Promise<string> => readFile(join(made.dir, file), "utf8");
  assert.equal(await read("memory.max"), String(64 * 1024 * 1024));
  assert.equal(await read("cpu.max"), "50000 100000");
  assert.equal(await read("cpu.weight"), "50");
  assert.equal(await read("pids.max"), "100");
  assert.equal(await read("io.max"), "8:0 rbps=12500000 wbps=12500000");
  await made.remove();
  assert.deepEqual(await readdir(join(made.dir, "..")), ["cgroup.subtree_control"]);
});

test("the daemon's processes move into a leaf group before controllers are delegated", async () => {
  await using host = await makeHost();
  await host.groups.make("sb-1", limits({ pids: 10 }));
  // the kernel takes one pid per write; in a plain file the last one remains
  assert.equal(await readFile(join(host.group, "forkd-daemon", "cgroup.procs"), "utf8"), String(VMM));
  assert.match(await readFile(join(host.group, "cgroup.subtree_control"), "utf8"), /^\+/);
});

test("a daemon that is already in its leaf group uses the parent", async () => {
  await using host = await makeHost({ own: "0::/unit/forkd-daemon\n", procs: [] });
  const made = await host.groups.make("sb-1", limits({ pids: 10 }));
  assert.match(made?.dir ?? "", /\/unit\/forkd-[0-9a-f]{12}\/sb-1$/);
});

test("without limits no control group is changed", async () => {
  await using host = await makeHost();
  assert.equal(await host.groups.make("sb-1", NO_LIMITS), undefined);
  assert.deepEqual((await readdir(host.group)).toSorted(), ["cgroup.controllers", "cgroup.procs", "cgroup.subtree_control"]);
});

const REFUSALS: [what: string, opts: Parameters<typeof makeHost>[0], wanted: Partial<HostLimits>, message: RegExp][] = [
  ["no cgroup v2", { own: "4:memory:/x\n1:cpu:/\n" }, { memoryMiB: 10 }, /memoryMiB: .*does not use cgroup v2/],
  ["no such group", { own: "0::/other\n" }, { cpus: 1 }, /cpus: .*not delegated/],
  ["no cpu controller", { controllers: "memory pids" }, { cpus: 1, pids: 5 }, /^Cannot apply cpus: .*lacks cpu, io/],
  ["none of the controllers", { controllers: "hugetlb" }, { pids: 1 }, /none of the controllers/],
  ["other processes in the group", { procs: [process.pid, STRANGER] }, { pids: 1 }, /other processes \(77\)/],
  ["no disk of its own", { disk: false }, { ioMBps: 1 }, /lies on no single disk/],
];

for (const [what, opts, wanted, message] of REFUSALS) {
  test(`${what}: refused with the reason, and nothing is changed`, async () => {
    await using host = await makeHost(opts);
    const before = await readdir(host.places.root, { recursive: true });
    const refused = { code: "LIMIT_UNAVAILABLE", message, hint: /Delegate=yes/ };
    await assert.rejects(host.groups.check(limits(wanted)), refused);
    await assert.rejects(host.groups.make("sb-1", limits(wanted)), refused);
    assert.deepEqual(await readdir(host.places.root, { recursive: true }), before);
  });
}

test("a refusal calls limits by the caller's names", async () => {
  await using host = await makeHost({ controllers: "memory" });
  const refused = { message: /^Cannot apply CPUS, PIDS: /, details: { limits: ["CPUS", "PIDS"], controllers: ["cpu", "pids"] } };
  await assert.rejects(
    host.groups.check(limits({ memoryMiB: 5, cpus: 1, pids: 5 }), (name) => name.toUpperCase()),
    refused,
  );
});

test("the report lists the limits that can be applied, and the reason for the others", async () => {
  await using host = await makeHost({ controllers: "memory pids" });
  assert.deepEqual(await host.groups.applicable(), {
    limits: ["memoryMiB", "pids"],
    reason: `the control group ${host.group} lacks cpu, io`,
  });
  await using full = await makeHost();
  assert.deepEqual(await full.groups.applicable(), { limits: ["memoryMiB", "cpus", "cpuWeight", "pids", "ioMBps"], reason: null });
  assert.equal((await lookAtOwnGroup(full.places, async () => [WARDEN])).reason, null);
});

test("an adopted VM gets its limits again, and its group is removed with it", async () => {
  await using host = await makeHost();
  const made = await host.groups.make("sb-1", limits({ memoryMiB: 10 }));
  assert.ok(made);
  await rm(join(made.dir, "memory.max"));
  await writeFile(join(host.places.proc, String(VMM), "cgroup"), `0::${made.dir.slice(host.places.root.length)}\n`);
  const found = await host.groups.found("sb-1", VMM, limits({ memoryMiB: 10 }));
  assert.equal(found?.dir, made.dir);
  assert.equal(await readFile(join(made.dir, "memory.max"), "utf8"), String(10 * 1024 * 1024));
  await writeFile(join(made.dir, "memory.events"), "low 0\noom 1\noom_kill 0\n");
  assert.equal(await found?.isOutOfMemory(), false);
  await writeFile(join(made.dir, "memory.events"), "low 0\noom 1\noom_kill 1\n");
  assert.equal(await found?.isOutOfMemory(), true);
  await assert.rejects(host.groups.found("sb-2", VMM, limits({ memoryMiB: 10 })), { code: "LIMIT_UNAVAILABLE" });
});

test("the sweep removes groups of ended VMs, but none of another store", async () => {
  await using host = await makeHost();
  for (const id of ["sb-1", "sb-2"]) await host.groups.make(id, limits({ pids: 5 }));
  const other = new ControlGroups({
    home: host.places.blocks,
    parents: async () => [WARDEN],
    places: host.places,
    removeGroup: host.remove,
  });
  const others = await other.make("sb-3", limits({ pids: 5 }));
  await host.groups.sweep(new Set(["sb-2"]));
  const names = await readdir(host.group, { recursive: true });
  assert.deepEqual(
    names
      .filter((name) => /sb-\d$/.test(name))
      .map((name) => name.slice(-4))
      .toSorted(),
    ["sb-2", "sb-3"],
  );
  await others?.remove();
});
