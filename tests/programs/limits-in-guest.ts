// Runs as root in a guest with cgroup v2: applies limits to processes as the daemon does, and prints the kernel's
// settings.
// Usage: node limits-in-guest.ts WARDEN

import { once } from "node:events";
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ControlGroups, NO_LIMITS } from "../../packages/runtime/src/host/control-groups.ts";
import { Warden } from "../../packages/runtime/src/warden/warden.ts";

const [wardenBinary = ""] = process.argv.slice(2);

// like a service manager: an own group with controllers
const ROOT = "/sys/fs/cgroup";
const UNIT = join(ROOT, "unit");
for (const controller of ["memory", "cpu", "pids", "io"]) writeFileSync(join(ROOT, "cgroup.subtree_control"), `+${controller}`);
mkdirSync(UNIT);
const facts: Record<string, unknown> = {};

const outside = new ControlGroups({ home: "/tmp", parents: async () => [] });
facts["strangers"] = (await outside.applicable()).reason;
writeFileSync(join(UNIT, "cgroup.procs"), String(process.pid));
const warden = await Warden.start({ binary: wardenBinary });
const groups = new ControlGroups({ home: "/tmp", parents: async () => [(await warden.info()).pid] });
facts["applicable"] = await groups.applicable();

const own = "/tmp/own";
mkdirSync(own);
const limits = { memoryMiB: 64, cpus: 0.5, cpuWeight: 50, pids: 20, ioMBps: null };
const group = await groups.make("sb-one", limits);
if (!group) throw new Error("no group was made");
const confinement = { writable: [own], readable: [], devices: [], maxFileBytes: 1e6 };
const vmm = await warden.spawn({ argv: ["/usr/bin/sleep", "1000"], env: {}, cwd: own, log: "/tmp/log", group: group.dir, confinement });
const read = (file: string): string => readFileSync(file, "utf8").trim();
facts["limits"] = ["memory.max", "cpu.max", "cpu.weight", "pids.max"].map((file) => read(join(group.dir, file)));
facts["inGroup"] = read(join(group.dir, "cgroup.procs")) === String(vmm.pid);
facts["daemonIn"] = read("/proc/self/cgroup").slice(3);

// a second daemon finds the group
const again = new ControlGroups({ home: "/tmp", parents: async () => [(await warden.info()).pid] });
writeFileSync(join(group.dir, "memory.max"), "max");
const found = await again.found("sb-one", vmm.pid, limits);
facts["found"] = [found?.dir === group.dir, read(join(group.dir, "memory.max"))];
await vmm.kill("SIGKILL");
await vmm.exited;
await group.remove();
facts["removed"] = !existsSync(group.dir);

const small = await groups.make("sb-two", { ...NO_LIMITS, memoryMiB: 48 });
if (!small) throw new Error("no group was made");
const hungry = spawn(process.execPath, ["-e", "const all = []; for (;;) all.push(Buffer.alloc(1 << 20, 1))"], { stdio: "ignore" });
writeFileSync(join(small.dir, "cgroup.procs"), String(hungry.pid));
const [, signal] = (await once(hungry, "exit")) as [number | null, string | null];
facts["hungry"] = [signal, await small.isOutOfMemory()];

const idle = spawn("/usr/bin/sleep", ["1000"]);
writeFileSync(join(small.dir, "cgroup.procs"), String(idle.pid));
const ended = once(idle, "exit");
await groups.sweep(new Set());
await ended;
facts["swept"] = !existsSync(small.dir);
await warden.close();
process.stdout.write(JSON.stringify(facts));
