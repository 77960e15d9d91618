// The floor: forks by a minimal driver that only starts QEMU and sends one eval. No identity, no reseeding, no checks, no clean-up beyond the kill.

import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtemp, open, rm } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { wire, type Runtime, type Snapshot } from "@forkd/runtime";
import { restoreArgs } from "@forkd/runtime/vmm/qemu/args";
import { findQemu, type QemuBinary } from "@forkd/runtime/vmm/qemu/binary";

const CONNECT_POLL_MS = 2;

/** Time until all have answered, in ms */
export async function measureFloor(
  runtime: Runtime,
  snapshot: Snapshot,
  opts: { n: number; parallelism: number; code: string },
): Promise<number> {
  const qemu = await findQemu();
  const rootfs = (await runtime.images.get(snapshot.manifest.imageId)).rootfsPath;
  const dir = await mkdtemp(join(runtime.runDir, "floor-"));
  const kills: (() => Promise<void>)[] = [];
  try {
    const began = performance.now();
    let next = 0;
    const worker = async (): Promise<void> => {
      while (next < opts.n) {
        const child = await forkRaw({ qemu, snapshot, rootfs, dir, name: String(next++), code: opts.code });
        kills.push(child);
      }
    };
    await Promise.all(Array.from({ length: opts.parallelism }, worker));
    return performance.now() - began;
  } finally {
    await Promise.all(kills.map(async (kill) => kill()));
    await rm(dir, { recursive: true, force: true });
  }
}

type RawFork = { qemu: QemuBinary; snapshot: Snapshot; rootfs: string; dir: string; name: string; code: string };

/** Starts one QEMU, asks one question, returns how to end it */
async function forkRaw(raw: RawFork): Promise<() => Promise<void>> {
  const { manifest } = raw.snapshot;
  const agentSocket = join(raw.dir, `${raw.name}.a`);
  await using state = await open(raw.snapshot.deviceState, "r");
  const spec = {
    shape: manifest.shape,
    dir: raw.dir,
    rootfs: raw.rootfs,
    memory: raw.snapshot.memory,
    disk: null,
    deviceState: raw.snapshot.deviceState,
    start: "run",
  } as const;
  const args = restoreArgs(spec, raw.qemu.version).map((arg) =>
    arg
      .replace(/^socket,id=agent,fd=\d+/, `socket,id=agent,path=${agentSocket}`)
      .replace(/^socket,id=qmp,fd=\d+/, `socket,id=qmp,path=${join(raw.dir, `${raw.name}.q`)}`),
  );
  const child = spawn(raw.qemu.path, args, { stdio: ["ignore", "ignore", "inherit", "ignore", "ignore", state.fd] });
  const exited = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const socket = await connectWhenThere(agentSocket);
  await answer(socket, manifest.agentKey, raw.code);
  return async () => {
    socket.destroy();
    child.kill("SIGKILL");
    await exited;
  };
}

async function connectWhenThere(path: string): Promise<Socket> {
  while (true) {
    const socket = connect(path);
    const error = await new Promise<NodeJS.ErrnoException | undefined>((resolve) => {
      socket.once("connect", () => resolve(undefined));
      socket.once("error", resolve);
    });
    if (!error) return socket;
    if (error.code !== "ENOENT" && error.code !== "ECONNREFUSED") throw error;
    await new Promise((resolve) => setTimeout(resolve, CONNECT_POLL_MS));
  }
}

async function answer(socket: Socket, agentKey: string, code: string): Promise<void> {
  const attach = new wire.Writer()
    .u64(0n)
    .str("kernel/python")
    .u64(2n ** 64n - 1n)
    .u64(2n ** 64n - 1n)
    .done();
  const request = Buffer.concat([Buffer.of(wire.CHANNEL.control), Buffer.from(`\n${JSON.stringify({ op: "eval", id: 1, code })}\n`)]);
  socket.write(
    Buffer.concat([
      wire.attachRecord(Buffer.from(agentKey, "hex"), randomBytes(16)),
      // Without RESYNC, which this driver leaves out, the interpreter would stay frozen.
      wire.encodeFrame(wire.T.HOLD, 2, Buffer.of(wire.GO_ON)),
      wire.encodeFrame(wire.T.ATTACH, 1, attach),
      wire.encodeFrame(wire.T.DATA, 1, request),
    ]),
  );
  let seen = "";
  await new Promise<void>((resolve, reject) => {
    socket.once("close", () => reject(new Error("a VM of the floor measurement ended before it answered")));
    socket.on("data", (chunk: Buffer) => {
      seen = (seen + chunk.toString("latin1")).slice(-4096);
      if (seen.includes('"result"')) resolve();
    });
  });
}
