// A small Internet of the test's own: two network namespaces and a cable between them. No packet can leave it.

import assert from "node:assert/strict";
import { execFile, fork, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { promisify } from "node:util";
import { until } from "./until.ts";

import type { FromServer, Records, ToServer } from "./net-server.ts";

const run = promisify(execFile);
const SERVER = join(import.meta.dirname, "net-server.ts");
/** Where the daemon is, and where everybody else is */
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

/** A connection that a server saw */
export type Hit = Extract<FromServer, { kind: "hit" }>;

export class NetWorld implements AsyncDisposable {
  /** what stands in front of a program that is to run where the daemon is */
  readonly inside: string[];
  /** every connection and every name that was asked for, in order */
  readonly hits: Hit[] = [];
  readonly asked: string[] = [];
  readonly #children: ChildProcess[];
  readonly #names: ChildProcess;

  private constructor(inside: string[], children: ChildProcess[], servers: { outside: ChildProcess; own: ChildProcess }) {
    this.inside = inside;
    this.#children = children;
    this.#names = servers.own;
    for (const server of Object.values(servers)) {
      server.on("message", (message: FromServer) => {
        if (message.kind === "hit") this.hits.push(message);
        if (message.kind === "asked") this.asked.push(message.name);
      });
    }
  }

  /** Why there can be none on this machine; undefined: there can */
  static async missing(): Promise<string | undefined> {
    try {
      await run("unshare", [...unshareFlags(), "ip", "link", "add", "va", "type", "veth", "peer", "name", "vb"]);
      return undefined;
    } catch (error) {
      return `no network namespaces with a cable between them: ${(error as Error).message}`;
    }
  }

  /** @param files folder that the web servers show */
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
      // what the outside answers comes from any of its addresses
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

  /** From now on names lead there; each list of addresses is given once, the last one for ever */
  async name(records: Records): Promise<void> {
    const done = once(this.#names, "message");
    this.#names.send({ kind: "records", records } satisfies ToServer);
    await done;
  }

  /** Waits until a server saw a connection to this address */
  async hit(address: string): Promise<void> {
    await until(() => this.hits.some((hit) => hit.address === address));
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

/** A namespace lives as long as somebody is in it: a program that reads until its input ends, as it does with this process */
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
