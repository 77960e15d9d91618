// E2B's protocol: latency of E2B's SDK, compared with forkd's in the same run.

import { Runtime } from "@forkd/runtime";
import { Controller } from "forkd";
import { OwnDaemon } from "./daemon-process.ts";
import { compareCreates, compareForks, loadE2b, runSessions, timeEcho, timeKillSeen, type Compared, type Sessions } from "./e2b-load.ts";
import { atMost, type Goal } from "./goals.ts";
import { describeMachine, type Machine } from "./machine.ts";
import { IMAGE, type BenchOptions } from "./setup.ts";

import type { Percentiles } from "./stats.ts";

const TAG = "bench";
const MEMORY_MIB = 256;
const KILL_ROUNDS = 20;
const FORK_ROUNDS = 5;
const CALL_TIMEOUT_MS = 120_000;

export type E2bReport = {
  machine: Machine;
  method: string;
  create_ms: Compared;
  /** until all have answered */
  fork_ms: Compared;
  echo_ms: Percentiles;
  kill_seen_ms: Percentiles;
  sessions: Sessions;
  goals: Goal[];
};

export type E2bBenchOptions = BenchOptions & { rounds: number; forks: number; sessions: number };

export async function benchE2b(opts: E2bBenchOptions): Promise<E2bReport> {
  const { rounds, forks, signal, progress } = opts;
  const e2b = await loadE2b();
  const maxSandboxes = Math.max(opts.sessions, forks) + 10;
  await using own = await OwnDaemon.start({ signal, progress, maxSandboxes, bind: "127.0.0.1:0" });
  progress({ step: "Making the snapshot" });
  // the user that E2B's SDK acts as, and what a login shell reads in memory
  const exec = [
    ["useradd", "--create-home", "--shell", "/bin/bash", "user"],
    ["/bin/bash", "-l", "-c", "true"],
  ];
  await own.controller.createSnapshot(TAG, { image: IMAGE, memoryMib: MEMORY_MIB, warmUp: { exec }, signal });
  const { token } = await own.controller.createToken(TAG, { scope: "exec", signal });
  const connection = { apiKey: token.replace(/^fkd_/, "e2b_"), apiUrl: own.url, sandboxUrl: own.url };
  const controller = new Controller({ url: own.url, token, timeoutMs: CALL_TIMEOUT_MS });
  const clients = { e2b, connection, controller, tag: TAG, signal };
  progress({ step: `${rounds} sandboxes by each SDK` });
  const creates = await compareCreates(clients, rounds);
  progress({ step: `Forks of ${forks} by each SDK` });
  const forked = await compareForks(clients, forks, FORK_ROUNDS);
  progress({ step: `${rounds} lines to a command and back` });
  const echo = await timeEcho(clients, rounds);
  progress({ step: "Sandboxes killed under a command" });
  const killSeen = await timeKillSeen(clients, KILL_ROUNDS);
  progress({ step: `${opts.sessions} sessions at once` });
  const sessions = await runSessions(clients, opts.sessions);
  const measured = { create_ms: creates, fork_ms: forked, echo_ms: echo, kill_seen_ms: killSeen, sessions };
  await using runtime = await Runtime.start({ home: own.homeForRuntime, signal });
  return { machine: describeMachine(runtime), method: methodOf(opts), ...measured, goals: goalsOf(opts, measured) };
}

function methodOf({ rounds, forks, sessions }: E2bBenchOptions): string {
  return [
    `a daemon and a store of its own, a ${MEMORY_MIB} MiB snapshot, the npm package e2b and the SDK forkd over TCP at the same loopback address with the same token, in this process`,
    `medians of ${rounds} sandboxes made by each in turns, all of which may connect to the internet`,
    `medians of ${FORK_ROUNDS} forks of a running sandbox into ${forks} by each in turns, until all have run a login shell that says a word`,
    `${rounds} lines written to the stdin of cat by requests until they come back on the stream of its stdout, which is more than the way of a byte that the guest writes`,
    `${KILL_ROUNDS} sandboxes killed, from that request until the command that runs in each has failed with E2B's error for it`,
    `${sessions} sessions begun at once, each of which makes a sandbox, runs a command, writes and reads a file and kills it`,
  ].join("; ");
}

function goalsOf({ forks, sessions }: E2bBenchOptions, measured: Omit<E2bReport, "machine" | "method" | "goals">): Goal[] {
  return [
    atMost("a sandbox by E2B's SDK against ours", measured.create_ms.ratio, 1.2, "×"),
    atMost(`a fork of ${forks} by E2B's SDK against ours`, measured.fork_ms.ratio, 1.3, "×"),
    atMost("a line to a command and back, p99", measured.echo_ms.p99, 20, "ms"),
    atMost("a killed sandbox seen by its command, p99", measured.kill_seen_ms.p99, 100, "ms"),
    atMost(`of ${sessions} sessions failed`, measured.sessions.errors, 0, ""),
  ];
}
