// Runs one program together with the scripted model, in a network namespace that has nothing but loopback.
// Usage, inside that namespace: offline.ts PROGRAM [ARGUMENT...]

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { constants } from "node:os";
import { promisify } from "node:util";
import { startModel } from "../model/server.ts";

const [program = "", ...args] = process.argv.slice(2);
await promisify(execFile)("ip", ["link", "set", "lo", "up"]);
await using model = await startModel();
console.log(`scripted model at ${model.url}: its answers were written beforehand, no language model is involved`);
// Ctrl-C goes to the program as well, which cleans up and may still ask the model meanwhile.
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => undefined);
const child = spawn(program, args, {
  stdio: ["ignore", "inherit", "inherit"],
  env: { ...process.env, OPENAI_BASE_URL: model.url, OPENAI_API_KEY: "scripted" },
});
const [code, signal] = (await once(child, "close")) as [number | null, NodeJS.Signals | null];
const attempts = await attemptsToLeave();
console.log(
  attempts === 0 ? "offline: nothing tried to reach another machine" : `offline: failed attempts to reach another machine: ${attempts}`,
);
process.exitCode = code ?? 128 + constants.signals[signal ?? "SIGKILL"];

/** Packets of this namespace that had nowhere to go, as its kernel counts them */
async function attemptsToLeave(): Promise<number> {
  const [names = [], values = []] = (await readFile("/proc/net/snmp", "utf8"))
    .split("\n")
    .filter((line) => line.startsWith("Ip:"))
    .map((line) => line.split(" "));
  const six = /^Ip6OutNoRoutes\s+(\d+)$/m.exec(await readFile("/proc/net/snmp6", "utf8"));
  return Number(values[names.indexOf("OutNoRoutes")]) + Number(six?.[1] ?? 0);
}
