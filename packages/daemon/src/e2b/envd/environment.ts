// envd: environment variables and resource usage of a sandbox.

import { ForkdError } from "@forkd/runtime/errors";
import { outputOf } from "../guest-exec.ts";
import type { Answer } from "../../dispatch/answer.ts";
import type { SandboxWork } from "../work.ts";

const MIB = 1024 * 1024;
/** Variables set by the agent, not by the creator of the sandbox */
const OF_A_PROCESS = new Set(["PATH", "HOME", "USER", "LOGNAME", "PWD", "SHLVL", "_"]);

export async function getEnvironment({ sandbox, services, caller }: SandboxWork): Promise<Answer> {
  const output = await outputOf(["env", "-0"], { id: sandbox.id, services, caller });
  if (output === null) throw new ForkdError("EXEC_FAILED", "Cannot read the environment: the guest's env failed.");
  const pairs = output
    .split("\0")
    .filter(Boolean)
    .map((line): [string, string] => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)]);
  return { status: 200, body: Object.fromEntries(pairs.filter(([name]) => !OF_A_PROCESS.has(name))) };
}

export async function getMetrics({ sandbox, services, caller }: SandboxWork): Promise<Answer> {
  const metrics = await services.manager.execution.metrics(sandbox.id, caller);
  if (!metrics)
    throw new ForkdError("UNSUPPORTED", "Cannot measure this sandbox: its agent is of an earlier version.", {
      hint: "Make its snapshot again.",
    });
  return {
    status: 200,
    body: {
      ts: Math.floor(Date.now() / 1000),
      cpu_count: sandbox.vcpus,
      cpu_used_pct: metrics.cpuUsedPct,
      mem_total_mib: Math.floor(metrics.memTotal / MIB),
      mem_used_mib: Math.floor(metrics.memUsed / MIB),
      mem_total: metrics.memTotal,
      mem_used: metrics.memUsed,
      mem_cache: metrics.memCache,
      disk_used: metrics.diskUsed,
      disk_total: metrics.diskTotal,
    },
  };
}
