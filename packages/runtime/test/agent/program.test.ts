// Errors of programs that the guest could not start.

import assert from "node:assert/strict";
import { test } from "node:test";
import { awaitStart } from "../../src/agent/process/exec.ts";
import { AgentError, type AgentStream } from "../../src/agent/wire/stream.ts";

/** A stream on which the agent refuses */
function refusing(errno: string, message: string): AgentStream {
  const started = async (): Promise<never> => {
    throw new AgentError(errno, message);
  };
  return { started, signal: () => undefined, cancel: () => undefined } as unknown as AgentStream;
}

async function refused(errno: string, message: string, details: object): Promise<void> {
  await assert.rejects(awaitStart(refusing(errno, message), ["prog", "-x"], {}), { code: "EXEC_FAILED", details });
}

test("a program that does not exist has the exit code of a shell, 127", async () => {
  await refused("ENOENT", "prog: No such file or directory", { errno: "ENOENT", exit_code: 127 });
});

test("a program that cannot be run has 126, and so has one whose folder or user does not exist", async () => {
  await refused("EACCES", "prog: Permission denied", { errno: "EACCES", exit_code: 126 });
  await refused("ENOEXEC", "prog: Exec format error", { errno: "ENOEXEC", exit_code: 126 });
  await refused("ENOENT", "/no/such/folder: No such file or directory", { errno: "ENOENT", exit_code: 126 });
  await refused("ENOENT", "user: No such file or directory", { errno: "ENOENT", exit_code: 126 });
});
