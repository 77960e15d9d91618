// forkd top at a terminal, with a daemon that answers from a table.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { describe, it } from "node:test";
import { screenOf, type Shown } from "../../../../tests/helpers/screen.ts";
import { Terminal } from "../../../../tests/helpers/terminal.ts";
import { until } from "../../../../tests/helpers/until.ts";
import { fakeDaemon, problem, type Answer, type FakeDaemon } from "../fake-daemon.ts";
import { FORKD } from "../helpers.ts";
import * as samples from "../samples.ts";
import { node, running, TREE } from "./samples.ts";

import type { ServerResponse } from "node:http";
import type { Tree } from "forkd";

const CTRL_C = "\u0003";
const ENV = { NO_COLOR: "1", FORKD_NO_AUTOSTART: "1", LANG: "C.UTF-8", LC_ALL: "C.UTF-8" };

type World = AsyncDisposable & {
  daemon: FakeDaemon;
  terminal: Terminal;
  shown: () => Shown;
  /** waits until a line matches */
  sees: (what: RegExp) => Promise<void>;
  /** replaces the tree and sends an event */
  change: (tree: Tree) => void;
};

async function world(answers: Record<string, Answer> = {}): Promise<World> {
  const streams: ServerResponse[] = [];
  let events = 0;
  const table: Record<string, Answer> = {
    "GET /v1/tree": { json: TREE },
    "GET /v1/sandboxes": { json: [samples.sandbox("sb-1"), samples.sandbox("sb-2")] },
    "GET /v1/stats": {
      json: ["sb-1", "sb-2"].map((id) => ({
        id,
        name: null,
        state: "running",
        cpu_ms: 1,
        private_guest_bytes: 2 ** 20,
        pss_bytes: 2 ** 21,
        disk_bytes: null,
      })),
    },
    "GET /v1/events": (_asked, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(": open\n\n");
      streams.push(response);
    },
    ...answers,
  };
  const daemon = await fakeDaemon(table);
  const terminal = new Terminal([FORKD, "top"], { ...process.env, ...ENV, ...daemon.env, FORKD_URL: undefined, COLUMNS: undefined });
  const shown = (): Shown => screenOf(terminal.screen);
  return {
    daemon,
    terminal,
    shown,
    sees: async (what) => {
      try {
        await until(() => shown().lines.some((line) => what.test(line)));
      } catch (error) {
        throw new Error(`${String(what)} is not shown:\n${shown().lines.join("\n")}`, { cause: error });
      }
    },
    change: (tree) => {
      daemon.answers["GET /v1/tree"] = { json: tree };
      const event = { id: ++events, time: "", type: "sandbox.created", sandbox: "sb-9", snapshot: null, principal: null, reason: null };
      for (const stream of streams) stream.write(`id: ${events}\ndata: ${JSON.stringify({ ...event, metadata: null })}\n\n`);
    },
    [Symbol.asyncDispose]: async () => {
      await terminal[Symbol.asyncDispose]();
      await daemon[Symbol.asyncDispose]();
    },
  };
}

/** The terminal is as before: its modes, the shell's screen, the cursor */
async function assertRestored({ terminal, shown }: World, before: string): Promise<void> {
  assert.equal(await terminal.modes(), before);
  const { isAlternate, hasCursor, wraps } = shown();
  assert.deepEqual({ isAlternate, hasCursor, wraps }, { isAlternate: false, hasCursor: true, wraps: true });
}

describe("forkd top at a terminal", { skip: hasPython() ? false : "there is no python3, which makes terminals for this test" }, () => {
  it("shows the tree, follows events, and writes only lines that changed", async () => {
    await using at = await world();
    await at.sees(/├ sb-1 \(web\) +running/);
    await until(() => at.shown().lines.length === 33);
    await at.sees(/^3 sandboxes, 3 snapshots/);
    await at.sees(/ 0 % /);
    const from = at.terminal.screen.length;
    at.change({ roots: [...TREE.roots, node("zebra", [], [])] });
    await at.sees(/\[zebra\]/);
    const written = at.terminal.screen.slice(from);
    assert.doesNotMatch(written, /sb-1 \(web\)/);
    assert.ok(!written.includes("\u001b[2J"), "the screen is not cleared");
  });

  it("q and Ctrl-C give the terminal back, with the exit codes 0 and 130", async () => {
    for (const [key, code] of [
      ["q", 0],
      [CTRL_C, 130],
    ] as const) {
      await using at = await world();
      const before = await at.terminal.modes();
      await at.sees(/sb-2/);
      assert.notEqual(await at.terminal.modes(), before);
      at.terminal.type(key);
      assert.equal(await at.terminal.exit(), code);
      await assertRestored(at, before);
    }
  });

  it("a signal gives the terminal back", async () => {
    for (const [name, code] of [
      ["SIGTERM", 143],
      ["SIGINT", 130],
      ["SIGHUP", 129],
    ] as const) {
      await using at = await world();
      const before = await at.terminal.modes();
      await at.sees(/sb-2/);
      process.kill(at.terminal.pid, name);
      assert.equal(await at.terminal.exit(), code);
      await assertRestored(at, before);
    }
  });

  it("an error gives the terminal back and is printed", async () => {
    await using at = await world();
    const before = await at.terminal.modes();
    await at.sees(/sb-2/);
    at.daemon.answers["GET /v1/stats"] = problem(401, "UNAUTHORIZED", "The token was removed.");
    assert.equal(await at.terminal.exit(), 1);
    await assertRestored(at, before);
    const after = at.terminal.screen.split("\u001b[?1049l")[1] ?? "";
    assert.match(after, /forkd: The token was removed\..*\[UNAUTHORIZED\]/s);
  });

  it("a daemon that does not answer leaves the last tree, which is refreshed when it is back", async () => {
    await using at = await world();
    await at.sees(/sb-2/);
    at.daemon.answers["GET /v1/stats"] = problem(503, "STOPPING", "The daemon is stopping.");
    await at.sees(/The daemon does not answer; this tree is old/);
    await at.sees(/├ sb-1 \(web\)/);
    at.daemon.answers["GET /v1/tree"] = { json: { roots: [node("later", [running("sb-1"), running("sb-2")], [])] } };
    at.daemon.answers["GET /v1/stats"] = { json: [] };
    await at.sees(/\[later\]/);
    await at.sees(/^f fork {2}b branch/);
  });

  it("keys fork, branch and end, and the last line says what happened", async () => {
    await using at = await world({
      "POST /v1/sandboxes": { status: 201, json: [samples.sandbox("sb-7"), samples.sandbox("sb-8")] },
      "POST /v1/sandboxes/sb-1/branch": { status: 201, json: samples.snapshot("after", { pause_ms: 4.25 }) },
      "DELETE /v1/sandboxes/sb-1": problem(403, "FORBIDDEN", "This needs the scope exec.\u001b[2J", "Use another token."),
    });
    await at.sees(/sb-2/);
    at.terminal.type("jf2");
    await at.sees(/^Fork python; how many\? \[1\] 2_/);
    at.terminal.type("\r");
    await at.sees(/^Forked 2 sandboxes\./);
    at.terminal.type("jbafter\r");
    await at.sees(/^Branched sb-1 into after; it was stopped for 4\.3 ms\./);
    at.terminal.type("x");
    await at.sees(/^End sb-1\? Its state is lost\. \[y\/N\]/);
    at.terminal.type("y");
    await at.sees(/^This needs the scope exec\. +\[2J\. Use another token\. \[FORBIDDEN\]/);
    const bodies = at.daemon.asked.filter(({ method }) => method !== "GET").map(({ method, path, body }) => [method, path, body]);
    assert.deepEqual(bodies, [
      ["POST", "/v1/sandboxes", { snapshot_tag: "python", n: 2 }],
      ["POST", "/v1/sandboxes/sb-1/branch", { tag: "after" }],
      ["DELETE", "/v1/sandboxes/sb-1", undefined],
    ]);
  });

  it("a new size redraws everything in it", async () => {
    await using at = await world();
    await at.sees(/sb-2/);
    at.terminal.resize(4, 30);
    await until(() => at.shown().lines.length === 4);
    assert.ok(at.shown().lines.every((line) => line.length === 30));
    assert.equal(at.shown().selected.length, 1);
  });

  it("without snapshots it says how to make one; a refusal before the first tree leaves the terminal alone", async () => {
    await using empty = await world({ "GET /v1/tree": { json: { roots: [] } }, "GET /v1/stats": { json: [] } });
    await empty.sees(/There are no snapshots\. Make one with/);
    await using refused = await world({ "GET /v1/tree": problem(401, "UNAUTHORIZED", "The token is wrong.") });
    assert.equal(await refused.terminal.exit(), 1);
    assert.ok(!refused.terminal.screen.includes("\u001b[?1049h"));
  });
});

function hasPython(): boolean {
  try {
    execFileSync("python3", ["-c", "import pty"]);
    return true;
  } catch {
    return false;
  }
}
