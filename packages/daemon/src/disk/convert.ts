// Runs qemu-img on layers that VMMs have written. Whatever they put into their headers, it sees nothing but these layers, where VMMs are confined.

import { open, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { ForkdError } from "../errors.ts";
import type { WardenSource } from "../memory/warden-source.ts";
import { findProgram } from "../util/find-program.ts";
import { tailOf } from "../util/tail.ts";
import { stackNode } from "../vmm/qemu/block-node.ts";
import type { Layer } from "./layer.ts";
import { diskFailure, runDiskTool } from "./run-tool.ts";

const TOOL = "qemu-img";
const MIB = 1024 * 1024;

/** Where it runs: by itself, or as a child of the warden that is confined */
export type ConvertHost = { warden: WardenSource; confinement: "namespaces" | "none" };

/** Writes what all layers together hold to a new file */
export async function convertLayers(layers: readonly Layer[], sizeMiB: number, to: string, host: ConvertHost): Promise<void> {
  {
    await using file = await open(to, "wx", 0o600);
    await file.truncate(sizeMiB * MIB);
  }
  const source = `json:${JSON.stringify(stackNode(layers, "read"))}`;
  const args = ["convert", "-n", "--target-is-zero", "-O", "raw", source, to];
  if (host.confinement === "none") return runDiskTool([TOOL, ...args]);
  const program = await findProgram(TOOL);
  if (program === null) return runDiskTool([TOOL, ...args]); // which says how to install it
  const log = `${to}.log`;
  try {
    const readable = [program, ...layers.map(({ path }) => path)];
    const confinement = { writable: [to], readable, devices: [], maxFileBytes: sizeMiB * MIB };
    const warden = await host.warden();
    const process = await warden.spawn({ argv: [program, ...args], env: { LC_ALL: "C" }, cwd: dirname(to), log, confinement });
    const { code, signal } = await process.exited;
    if (code !== 0)
      throw diskFailure(new ForkdError("HOST_COMMAND_FAILED", `${TOOL} failed: ${signal ?? `exit status ${code}`}.\n${await tailOf(log)}`));
  } finally {
    await rm(log, { force: true });
  }
}
