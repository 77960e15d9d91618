// An isolated test network: two network namespaces joined by a veth pair, with no route to the host.

import assert from "node:assert/strict";
import { execFile, fork, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { promisify } from "node:util";
import { until } from "./until.ts";

import type { FromServer, Records, ToServer } from "./net-server.ts";

const run = promisify(execFile);
const SERVER = join(import.meta.dirname, "net-server.ts");
/** Addresses in the daemon's namespace, and addresses of the servers */
const DAEMON_SIDE = ["198.51.100.1/24", "10.55.0.1/24", "2001:db8:1::1/64"];
export const OUTSIDE = {
  public: "203.0.113.10",
  otherPublic: "203.0.113.11",
  gateway: "198.51.100.7",
  private: "10.9.8.7",
  otherPrivate: "192.168.77.1",
  metadata: "169.254.169.254",
  carrier: "100.64.0.1",
  benchmarking: "198.18.0.1",
  public6: "2001:db8::10",
  unique6: "fd00:77::7",
  translated6: "64:ff9b::a09:807",
} as const;
const GATEWAY6 = "2001:db8:1::7";

/** A connection that a server accepted */
export type Hit = Extract<FromServer, { kind: "hit" }>;

export class NetWorld implements AsyncDisposable {
  /** command prefix that runs a program in the daemon's namespace */
  readonly inside: string[];
  /** all connections and all DNS queries, in order */
  readonly hits: Hit[] = [];
  readonly asked: string[] = [];
  readonly #questions = new Map<string, number>();
  readonly #children: ChildProcess[];
  readonly #names: ChildProcess;

  private constructor(inside: string[], children: ChildProcess[], servers: { outside: ChildProcess; own: ChildProcess }) {
    this.inside = inside;
    this.#children = children;
    this.#names = servers.own;
    for (const server of Object.values(servers)) {
      server.on("message", (message: FromServer) => {
        if (message.kind === "hit") this.hits.push(message);
        if (message.kind === "asked") {
          this.asked.push(message.name);
          const question = `${message.type} ${message.name}`;
          this.#questions.set(question, (this.#questions.get(question) ?? 0) + 1);
        }
      });
    }
  }

  /** Returns the reason if this machine cannot create the namespaces */
  static async missing(): Promise<string | undefined> {
    try {
      await run("unshare", [...unshareFlags(), "ip", "link", "add", "va", "type", "veth", "peer", "name", "vb"]);
      return undefined;
    } catch (error) {
      return `no network namespaces with a cable between them: ${(error as Error).message}`;
    }
  }

  /** @param files folder that the web servers serve */
  static async make(files: string): Promise<NetWorld> {
    const children: ChildProcess[] = [];
    try {
      const inside = await namespace([], unshareFlags(), children);
      const outside = await namespace(inside.enter, ["--net"], children);
      const ip = async (enter: string[], ...words: string[]): Promise<void> => command([...enter, "ip", ...words]);
      await ip(inside.enter, "link", "add", "inner", "type", "veth", "peer", "name", "outer");
      await ip(inside.enter, "link", "set", "outer", "netns", String(outside.pid));
      for (const [enter, device] of [
        [inside.enter, "inner"],
        [outside.enter, "outer"],
      ] as const) {
        await ip(enter, "link", "set", "lo", "up");
        await ip(enter, "link", "set", device, "up");
      }
      for (const address of DAEMON_SIDE) await ip(inside.enter, "addr", "add", address, "dev", "inner", ...nodad(address));
      for (const address of [...Object.values(OUTSIDE), GATEWAY6]) {
        const prefix = address === OUTSIDE.gateway ? 24 : address === GATEWAY6 ? 64 : address.includes(":") ? 128 : 32;
        await ip(outside.enter, "addr", "add", `${address}/${prefix}`, "dev", "outer", ...nodad(address));
      }
      await ip(inside.enter, "route", "add", "default", "via", OUTSIDE.gateway);
      await ip(inside.enter, "-6", "route", "add", "default", "via", GATEWAY6);
      // The servers answer from any of their addresses, so they need a route back
      for (const address of DAEMON_SIDE.slice(1, 2))
        await ip(outside.enter, "route", "add", address.replace("1/24", "0/24"), "dev", "outer");
      const servers = {
        outside: await server(outside.enter, ["web", files], children),
        own: await server(inside.enter, ["web,names", files], children),
      };
      return new NetWorld(inside.enter, children, servers);
    } catch (error) {
      for (const child of children) child.kill("SIGKILL");
      throw error;
    }
  }

  /** Sets the DNS records. Each query gets the next list of addresses; the last list repeats */
  async name(records: Records): Promise<void> {
    const done = once(this.#names, "message");
    this.#names.send({ kind: "records", records } satisfies ToServer);
    await done;
  }

  /** Waits until a server has accepted a connection to this address */
  async hit(address: string): Promise<void> {
    await until(() => this.hits.some((hit) => hit.address === address));
  }

  /** Number of A queries for a name */
  timesAsked(name: string): number {
    return this.#questions.get(`1 ${name}`) ?? 0;
  }

  forget(): void {
    this.hits.splice(0);
    this.asked.splice(0);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ends = this.#children.map(async (child) =>
      child.exitCode === null && child.signalCode === null ? once(child, "exit") : undefined,
    );
    for (const child of this.#children) child.kill("SIGKILL");
    await Promise.all(ends);
  }
}

function unshareFlags(): string[] {
  return process.getuid?.() === 0 ? ["--net"] : ["--user", "--map-root-user", "--net"];
}

function nodad(address: string): string[] {
  return address.includes(":") ? ["nodad"] : [];
}

/** A namespace lives as long as a process in it: `cat` ends when this process closes its input */
async function namespace(enter: string[], flags: string[], children: ChildProcess[]): Promise<{ pid: number; enter: string[] }> {
  const [program, ...args] = [...enter, "unshare", ...flags, "sh", "-c", "echo $$; exec cat"];
  const child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
  children.push(child);
  const [line] = (await once(child.stdout, "data")) as [Buffer];
  const pid = Number(line.toString().trim());
  assert.ok(pid > 1);
  const user = process.getuid?.() === 0 ? [] : ["--user", "--preserve-credentials"];
  return { pid, enter: ["nsenter", "--target", String(pid), ...user, "--net"] };
}

async function server(enter: string[], args: string[], children: ChildProcess[]): Promise<ChildProcess> {
  const [program = "", ...before] = enter;
  const child = fork(SERVER, args, { execPath: program, execArgv: [...before, process.execPath, "--disable-warning=ExperimentalWarning"] });
  children.push(child);
  await once(child, "message");
  return child;
}

async function command([program = "", ...args]: string[]): Promise<void> {
  await run(program, args);
}
