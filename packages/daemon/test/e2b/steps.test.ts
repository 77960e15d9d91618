// Steps of a template build: their effects and error messages.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Accounts } from "../../src/e2b/envd/accounts.ts";
import { changesGuest, doStep, placeAfter, type Place, type Step } from "../../src/e2b/templates/steps.ts";
import { fakeManager } from "../helpers/fake-manager.ts";
import { FakeWatched, output } from "../helpers/fake-watched.ts";
import type { ProcessExit, StartProcess } from "../../src/api/process.ts";

const PLACE: Place = { user: "user", workdir: "/home/user", env: { A: "b" } };
const DONE: ProcessExit = { exit_code: 0, signal: null, timed_out: false };

/** A guest with the users root and user, in which each program ends with the given exit */
function guest(exit: ProcessExit = DONE): { started: StartProcess[]; logged: string[]; run: (step: Step) => Promise<void> } {
  const started: StartProcess[] = [];
  const logged: string[] = [];
  const manager = fakeManager({
    files: {
      read: async () =>
        (async function* () {
          yield Buffer.from("root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/bash\n");
        })(),
    },
    processes: {
      startWatched: async (_id, request) => {
        started.push(request);
        const process = new FakeWatched();
        process.put(output("said\nhalf", 0), { type: "exit", exit });
        return process;
      },
    },
  });
  const work = {
    sandbox: "sb-a",
    template: "mine",
    services: { manager },
    accounts: new Accounts({ manager }),
    uploads: undefined as never,
    caller: { principal: "ci", project: "default", maxSandboxes: null, requestId: "r", signal: new AbortController().signal },
    log: (message: string) => void logged.push(message),
  };
  return { started, logged, run: async (step) => doStep(step, PLACE, work) };
}

test("a command runs with the user, folder and environment of earlier steps", async () => {
  const { started, logged, run } = guest();
  await run({ type: "RUN", args: ["make"] });
  const [only] = started;
  assert.deepEqual([only?.args.at(-1), only?.user, only?.cwd, only?.env], ["make", "user", "/home/user", { A: "b" }]);
  assert.deepEqual(logged, ["said", "half"]);
});

test("failures have the wording of E2B's builder", async () => {
  const { started, run } = guest();
  await assert.rejects(run({ type: "RUN", args: ["whoami", "root123"] }), {
    code: "WARMUP_FAILED",
    message: "failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'",
  });
  assert.deepEqual(started, [], "nothing is run as another user");
  await assert.rejects(guest({ ...DONE, exit_code: 7 }).run({ type: "RUN", args: ["exit 7"] }), {
    message: "failed to run command 'exit 7': exit status 7",
  });
  await assert.rejects(guest({ ...DONE, exit_code: 137, signal: "SIGKILL" }).run({ type: "RUN", args: ["make"] }), {
    message: "failed to run command 'make': signal: killed",
  });
  await assert.rejects(guest({ ...DONE, exit_code: 1 }).run({ type: "WORKDIR", args: ["/proc/x"] }), {
    message: "failed to create workdir '/proc/x': exit status 1",
  });
});

test("USER creates a missing user", async () => {
  const { started, run } = guest();
  await run({ type: "USER", args: ["dev"] });
  assert.deepEqual([started[0]?.user, started[0]?.args.slice(-2)], ["root", ["dev", "no"]]);
  await run({ type: "USER", args: ["dev", "true"] });
  assert.deepEqual(started[1]?.args.slice(-2), ["dev", "yes"]);
});

test("later steps get the user, the folder and the environment of earlier ones", () => {
  const after = (type: string, ...args: string[]): Place => placeAfter({ type, args }, PLACE);
  assert.deepEqual(after("RUN", "make"), PLACE);
  assert.deepEqual(after("USER", "dev"), { ...PLACE, user: "dev" });
  assert.deepEqual(after("WORKDIR", "app"), { ...PLACE, workdir: "/home/user/app" });
  assert.deepEqual(after("ENV", "C", "d"), { ...PLACE, env: { A: "b", C: "d" } });
  assert.deepEqual(
    ["ENV", "env", "RUN", "COPY"].map((type) => changesGuest({ type, args: [] })),
    [false, false, true, true],
  );
});
