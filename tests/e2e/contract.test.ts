// One contract, five ways to it: what REST, both SDKs, the command line and MCP do is the same, and nothing is missing from any of them.

import assert from "node:assert/strict";
import { chmod, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Controller } from "forkd";
import { routes, type RouteName } from "../../packages/daemon/src/api/routes.ts";
import { buildOpenapi } from "../../packages/daemon/src/api/openapi.ts";
import { Context, reasonAgainst, type Driver } from "../contract/case.ts";
import { GROUPS } from "../contract/cases.ts";
import { cliDriver, WITHOUT_VERB } from "../contract/cli-driver.ts";
import { mcpDriver, USED_BY_TOOL, WITHOUT_TOOL } from "../contract/mcp-driver.ts";
import { pythonDriver, withoutPython } from "../contract/python-driver.ts";
import { restDriver } from "../contract/rest-driver.ts";
import { runCase } from "../contract/run.ts";
import { sdkDriver } from "../contract/sdk-driver.ts";
import { TestDaemon } from "../helpers/daemon.ts";
import { linesOf, openapi, SpecClient } from "../helpers/spec-client.ts";
import { PYTHON_IMAGE } from "../helpers/vm.ts";

const OPTIONS = ["--bind", "127.0.0.1:0"];
const noPython = withoutPython();
const DRIVERS = [restDriver, sdkDriver, ...(noPython === false ? [pythonDriver] : []), cliDriver, mcpDriver];

describe("the contract", () => {
  let daemon: TestDaemon;
  let rest: SpecClient;
  const used = new Map<string, Set<RouteName>>();

  before(async () => {
    daemon = await TestDaemon.start(OPTIONS);
    rest = new SpecClient({ socketPath: daemon.socket });
    await daemon.makePython();
  });

  after(async () => daemon[Symbol.asyncDispose]());

  it("spec/openapi.json is what the routes say, and what the daemon serves", async () => {
    assert.deepEqual(openapi, JSON.parse(JSON.stringify(buildOpenapi())));
    assert.deepEqual((await rest.send("GET", "/v1/openapi.json")).body, openapi);
  });

  if (noPython !== false) it("by python", { skip: noPython });

  for (const make of DRIVERS) {
    const name = make.name.replace("Driver", "");
    describe(`by ${name}`, () => {
      let driver: Driver;
      let c: Context;
      let start: Map<RouteName, number>;

      before(async () => {
        driver = make(daemon);
        c = new Context(driver.name);
        start = await requestCounts(rest);
      });

      after(async () => {
        const end = await requestCounts(rest);
        const more = [...end].filter(([route, count]) => count > (start.get(route) ?? 0) + (route === "getMetrics" ? 1 : 0));
        used.set(name, new Set(more.map(([route]) => route)));
        await driver.close?.();
      });

      for (const { title, cases } of GROUPS) {
        it(`${title}: ${cases.length} cases`, async () => {
          for (const item of cases) if (reasonAgainst(item, driver.name) === undefined) await runCase(driver, item, c);
        });
      }

      it("leaves nothing behind", async () => {
        assert.deepEqual(await daemon.controller.listSandboxes({ state: ["running", "paused", "ended", "lost"] }), []);
        assert.deepEqual(
          (await daemon.controller.listSnapshots()).map(({ tag }) => tag),
          ["python"],
        );
        assert.deepEqual(await daemon.controller.listWorkspaces(), []);
        assert.deepEqual(await daemon.controller.listTokens(), []);
      });
    });
  }

  it("stopping is the same by all, and sandboxes go on", async () => {
    const [sandbox] = await daemon.controller.spawnSandboxes("python");
    assert.ok(sandbox);
    for (const make of DRIVERS.filter((driver) => driver !== mcpDriver)) {
      const driver = make(daemon);
      await runCase(driver, { what: "stop", route: "stopDaemon", expect: { value: null } }, new Context(driver.name));
      await daemon.exited();
      used.get(driver.name)?.add("stopDaemon");
      await driver.close?.();
      await daemon.up(OPTIONS);
      assert.equal((await daemon.controller.getSandbox(sandbox.id)).state, "running");
    }
    await daemon.controller.stop({ killSandboxes: true });
    await daemon.exited();
    await daemon.up(OPTIONS);
    assert.deepEqual(await daemon.controller.listSandboxes({ state: ["running", "paused", "ended", "lost"] }), []);
  });

  it("every route is used by all, except what the command line and MCP leave out for a reason", () => {
    // a connection that is upgraded has tests of its own
    const all = (Object.keys(routes) as RouteName[]).filter((route) => !(101 in routes[route].responses));
    const missing = (name: string, exempt: object = {}): string[] =>
      all.filter((route) => !used.get(name)?.has(route) && !(route in exempt));
    assert.deepEqual(missing("rest"), [], "not exercised through REST");
    assert.deepEqual(missing("sdk"), [], "not reachable from the SDK");
    if (noPython === false) assert.deepEqual(missing("python"), [], "not reachable from the Python SDK");
    assert.deepEqual(missing("cli", WITHOUT_VERB), [], "not reachable from the command line");
    const idle = Object.keys(WITHOUT_VERB).filter((route) => used.get("cli")?.has(route as RouteName));
    assert.deepEqual(idle, [], "these have a verb: take them off the list");
    const untold = (Object.keys(routes) as RouteName[]).filter((route) => USED_BY_TOOL.has(route) === route in WITHOUT_TOOL);
    assert.deepEqual(untold, [], "no tool and no reason, or both");
  });

  it("long work tells its progress line by line, and its failure in the last line", async () => {
    const body = { tag: "never", image: PYTHON_IMAGE, memory_mib: 128, warm_up: { exec: [["false"]], kernels: [] } };
    const { status, bytes } = await rest.send("POST", "/v1/snapshots", { json: body, headers: { accept: "application/x-ndjson" } });
    const lines = linesOf(bytes) as { progress?: object; error?: { code: string } }[];
    assert.equal(status, 200);
    assert.equal(lines.at(-1)?.error?.code, "WARMUP_FAILED");
    assert.ok(lines.length > 1 && lines.slice(0, -1).every(({ progress }) => progress));
    assert.equal((await rest.problem("GET", "/v1/snapshots/never")).code, "NOT_FOUND");
  });

  it("counters move", async () => {
    const before = await metrics(rest);
    const [sandbox] = await daemon.controller.spawnSandboxes("python");
    assert.ok(sandbox);
    await daemon.controller.evalCode(sandbox.id, "1");
    await daemon.controller.execCommand(sandbox.id, ["true"]);
    await daemon.controller.branchSandbox(sandbox.id, { tag: "counted" });
    await assert.rejects(daemon.controller.getSandbox("sb-nothing"));
    const during = await metrics(rest);
    const moved = (name: string): number => (during.get(name) ?? 0) - (before.get(name) ?? 0);
    for (const name of ["forks", "evals", "execs", "branches"]) assert.equal(moved(`forkd_${name}_total{result="ok"}`), 1, name);
    assert.equal(moved('forkd_errors_total{code="NOT_FOUND"}'), 1);
    assert.equal(moved("forkd_sandboxes_active"), 1);
    assert.equal(moved("forkd_snapshots_total"), 1);
    assert.ok(moved("forkd_delta_bytes_total") > 0);
    assert.ok((during.get(`forkd_sandbox_private_bytes{sandbox="${sandbox.id}"}`) ?? 0) > 0);
    await daemon.controller.killSandbox(sandbox.id);
    await daemon.controller.deleteSnapshot("counted");
    const end = await metrics(rest);
    assert.equal(end.get("forkd_sandboxes_active"), before.get("forkd_sandboxes_active"));
    assert.equal(end.get("forkd_snapshots_total"), before.get("forkd_snapshots_total"));
    assert.equal(end.has(`forkd_sandbox_private_bytes{sandbox="${sandbox.id}"}`), false);
  });

  it("every request is in the audit log, with who asked", async () => {
    const { headers } = await rest.send("GET", "/v1/sandboxes", { headers: { "x-request-id": "audited" } });
    assert.equal(headers["x-request-id"], "audited");
    const line = await auditLine("audited");
    assert.deepEqual([line["principal"], line["remote"], line["status"], line["path"]], ["local", "unix", 200, "/v1/sandboxes"]);
    assert.doesNotMatch(await readFile(join(daemon.home.root, "audit.log"), "utf8"), /fkd_/, "a token is in the log");
  });

  it("after ten wrong tokens nobody from there is heard", async () => {
    const [host = "", port] = (daemon.bind ?? "").split(":");
    const stranger = new SpecClient({ host, port: Number(port) }, { token: "fkd_wrong-wrong-wrong-wrong" });
    const codes: string[] = [];
    for (let i = 0; i < 11; i++) codes.push((await stranger.problem("GET", "/v1/sandboxes")).code);
    assert.deepEqual([codes[0], codes.at(-1)], ["UNAUTHORIZED", "RATE_LIMITED"]);
    assert.equal((await stranger.send("GET", "/healthz")).status, 200);
    assert.equal((await rest.send("GET", "/v1/sandboxes")).status, 200);
  });

  it("a token file with a placeholder, a short token or open permissions is refused", async () => {
    const file = join(daemon.home.root, "token");
    await daemon.down();
    for (const [text, mode, code] of [
      ["CHANGE_ME_CHANGE_ME_CHANGE_ME", 0o600, "WEAK_TOKEN"],
      ["too-short", 0o600, "WEAK_TOKEN"],
      ["a-token-that-is-long-enough", 0o644, "BAD_CONFIG"],
    ] as const) {
      await writeFile(file, `${text}\n`);
      await chmod(file, mode);
      await assert.rejects(daemon.up([...OPTIONS, "--token-file", file]), { code });
    }
    await chmod(file, 0o600);
    await daemon.up([...OPTIONS, "--token-file", file]);
    const byFile = new Controller({ url: `http://${daemon.bind}`, token: "a-token-that-is-long-enough" });
    assert.deepEqual(
      (await byFile.listTokens()).map(({ name, scope, source }) => [name, scope, source]),
      [["token-file", "admin", "file"]],
    );
  });

  /** Requests do not wait for the log */
  async function auditLine(requestId: string): Promise<Record<string, unknown>> {
    for (;;) {
      const lines = (await readFile(join(daemon.home.root, "audit.log"), "utf8")).split("\n").slice(0, -1);
      const entries = lines.map((text) => JSON.parse(text) as Record<string, unknown>);
      const found = entries.findLast((entry) => entry["request_id"] === requestId);
      if (found) return found;
      await sleep(20);
    }
  }
});

/** How often each route was answered so far */
async function requestCounts(rest: SpecClient): Promise<Map<RouteName, number>> {
  const counts = new Map<RouteName, number>();
  for (const [name, value] of await metrics(rest)) {
    const [, path, method] = /^forkd_http_requests_total\{route="([^"]+)",method="(\w+)"/.exec(name) ?? [];
    const route = (Object.keys(routes) as RouteName[]).find(
      (key) => routes[key].path === path && ["ALL", method].includes(routes[key].method),
    );
    if (route) counts.set(route, (counts.get(route) ?? 0) + value);
  }
  return counts;
}

async function metrics(rest: SpecClient): Promise<Map<string, number>> {
  const { bytes } = await rest.send("GET", "/metrics");
  const lines = bytes.toString().split("\n");
  return new Map(
    lines.flatMap((line): [string, number][] => {
      const at = line.lastIndexOf(" ");
      return line.startsWith("#") || at < 0 ? [] : [[line.slice(0, at), Number(line.slice(at + 1))]];
    }),
  );
}
