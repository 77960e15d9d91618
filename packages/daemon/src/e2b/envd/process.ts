// envd: process service.

import * as z from "zod";
import { env } from "../../api/common.ts";
import { ForkdError } from "@forkd/runtime/errors";
import { e2bId } from "../../dispatch/e2b-id.ts";
import { WORKDIR_KEY } from "../lifecycle.ts";
import { accountOf, pathFor, type Account } from "./accounts.ts";
import { messageOf, streamAnswer, timeoutMsOf } from "./connect.ts";
import { processMessages } from "./process-events.ts";
import type { ProcessInfo, SignalProcess } from "../../api/process.ts";
import type { Answer } from "../../dispatch/answer.ts";
import type { WatchedProcess } from "../../service/processes.ts";
import type { SandboxWork } from "../work.ts";

/** Interpreter processes belong to forkd and are hidden from clients */
const OWN_TAG = /^kernel\//;
const SIGNALS: Record<string, SignalProcess["signal"]> = {
  SIGNAL_SIGKILL: "SIGKILL",
  SIGNAL_SIGTERM: "SIGTERM",
  9: "SIGKILL",
  15: "SIGTERM",
};

const side = z.coerce.number().int().min(1).max(65_535);
const pty = z.object({ size: z.object({ cols: side, rows: side }) });
const selector = z.object({ pid: z.coerce.number().int().optional(), tag: z.string().optional() });
const base64 = z.base64().transform((text) => Buffer.from(text, "base64"));

const startRequest = z.object({
  process: z.object({
    cmd: z.string().min(1),
    args: z.array(z.string()).max(4096).default([]),
    envs: env.default({}),
    cwd: z.string().max(4096).optional(),
  }),
  pty: pty.optional(),
  tag: z.string().max(256).optional(),
  stdin: z.boolean().optional(),
});
const selected = z.object({ process: selector });
const inputRequest = selected.extend({ input: z.object({ stdin: base64.optional(), pty: base64.optional() }) });
const signalRequest = selected.extend({ signal: z.union([z.string(), z.number()]) });
const updateRequest = selected.extend({ pty: pty.optional() });

export async function startProcess(work: SandboxWork): Promise<Answer> {
  const request = await messageOf(work, startRequest);
  const account = await accountOf(work);
  const process = await start(work, request, account);
  return watched(work, process);
}

export async function connectProcess(work: SandboxWork): Promise<Answer> {
  const { process } = await messageOf(work, selected);
  const { id } = await find(work, process);
  const now = { stdout_from: "now", stderr_from: "now" } as const;
  return watched(work, await work.services.manager.processes.watch(work.sandbox.id, String(id), now, work.caller));
}

export async function listProcesses({ sandbox, services, caller }: SandboxWork): Promise<Answer> {
  const all = await services.manager.processes.list(sandbox.id, caller);
  const processes = all.filter((info) => info.state === "running" && !isOwn(info)).map(listed);
  return { status: 200, body: { processes } };
}

export async function sendInput(work: SandboxWork): Promise<Answer> {
  const { process, input } = await messageOf(work, inputRequest);
  const { id } = await find(work, process);
  const bytes = input.stdin ?? input.pty ?? Buffer.alloc(0);
  await work.services.manager.processes.write(work.sandbox.id, String(id), only(bytes), { close: false }, work.caller);
  return { status: 200, body: {} };
}

export async function closeStdin(work: SandboxWork): Promise<Answer> {
  const { process } = await messageOf(work, selected);
  const { id } = await find(work, process);
  await work.services.manager.processes.write(work.sandbox.id, String(id), only(), { close: true }, work.caller);
  return { status: 200, body: {} };
}

export async function sendSignal(work: SandboxWork): Promise<Answer> {
  const { process, signal: asked } = await messageOf(work, signalRequest);
  const signal = SIGNALS[asked];
  if (!signal) throw new ForkdError("BAD_REQUEST", "Cannot signal the process: signal: must be SIGNAL_SIGTERM or SIGNAL_SIGKILL.");
  const { id, state } = await find(work, process);
  if (state === "ended") throw new ForkdError("PROCESS_ENDED", `Cannot signal process ${process.pid ?? process.tag}: it has ended.`);
  await work.services.manager.processes.signal(work.sandbox.id, String(id), { signal, scope: "group" }, work.caller);
  return { status: 200, body: {} };
}

export async function updateProcess(work: SandboxWork): Promise<Answer> {
  const { process, pty: terminal } = await messageOf(work, updateRequest);
  const { id } = await find(work, process);
  if (terminal) await work.services.manager.processes.resize(work.sandbox.id, String(id), terminal.size, work.caller);
  return { status: 200, body: {} };
}

async function start(work: SandboxWork, request: z.infer<typeof startRequest>, account: Account): Promise<WatchedProcess> {
  const { sandbox, services, caller } = work;
  const { cmd, args, envs } = request.process;
  const { tag } = request;
  if (tag !== undefined && (/^\d*$/.test(tag) || OWN_TAG.test(tag)))
    throw new ForkdError("BAD_REQUEST", "Cannot start the process: tag: must not be a number.");
  const timeoutMs = timeoutMsOf(work);
  const own = { E2B_SANDBOX: "true", E2B_SANDBOX_ID: e2bId(sandbox.id), E2B_TEMPLATE_ID: sandbox.snapshot_tag };
  const facts = {
    args: [cmd, ...args],
    env: { ...own, ...envs },
    user: account.name,
    tag,
    stdin: request.stdin ?? true,
    terminal: request.pty?.size,
    timeout_secs: timeoutMs === undefined ? undefined : timeoutMs / 1000,
  };
  const given = request.process.cwd;
  const cwd = given ? pathFor(account, given) : (sandbox.metadata[WORKDIR_KEY] ?? account.home);
  try {
    return await services.manager.processes.startWatched(sandbox.id, { ...facts, cwd }, caller);
  } catch (error) {
    if (!(error instanceof ForkdError) || error.code !== "EXEC_FAILED" || (await exists(work, cwd))) throw error;
    if (given) throw new ForkdError("BAD_REQUEST", `cwd '${given}' does not exist`, { cause: error });
    // the user's home does not exist
    return services.manager.processes.startWatched(sandbox.id, { ...facts, cwd: "/" }, caller);
  }
}

function watched(work: SandboxWork, process: WatchedProcess): Answer {
  return streamAnswer(processMessages(process), {
    work,
    keepalive: { event: { keepalive: {} } },
    dropped: process.dropped,
    close: () => process.close(),
  });
}

/** Clients use guest pids, which can be reused: prefer a running process, then the newest */
async function find({ sandbox, services, caller }: SandboxWork, { pid, tag }: z.infer<typeof selector>): Promise<ProcessInfo> {
  const all = (await services.manager.processes.list(sandbox.id, caller)).filter((info) => !isOwn(info));
  const named = all.filter((info) => (pid === undefined ? tag !== undefined && info.tag === tag : info.pid === pid));
  const found = named.findLast(({ state }) => state === "running") ?? named.at(-1);
  if (found) return found;
  throw new ForkdError("NOT_FOUND", `process with ${pid === undefined ? `tag ${tag}` : `pid ${pid}`} not found`);
}

async function exists({ sandbox, services, caller }: SandboxWork, path: string): Promise<boolean> {
  try {
    return (await services.manager.files.stat(sandbox.id, { path, follow: true }, caller)).kind === "directory";
  } catch (error) {
    if (error instanceof ForkdError && error.code.startsWith("FILE_")) return false;
    throw error;
  }
}

function isOwn({ tag }: ProcessInfo): boolean {
  return tag !== null && OWN_TAG.test(tag);
}

function listed({ args: [cmd = "", ...args], cwd, pid, tag }: ProcessInfo): object {
  return { config: { cmd, args, envs: {}, cwd }, pid, ...(tag === null ? {} : { tag }) };
}

async function* only(...pieces: Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* pieces;
}
