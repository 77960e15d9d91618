// Parts of the API beside its routes: OpenAPI document, progress, metrics, audit log and token file. The routes are
// tested in contract-*.test.ts, one file for each of the six drivers.

import assert from "node:assert/strict";
import { chmod, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { Controller } from "forkd";
import { buildOpenapi } from "../../packages/daemon/src/api/openapi.ts";
import { metricsOf } from "../contract/metrics.ts";
import { TestDaemon } from "../helpers/daemon.ts";
import { linesOf, openapi, SpecClient } from "../helpers/spec-client.ts";
import { until } from "../helpers/until.ts";
import { PYTHON_IMAGE } from "../helpers/vm.ts";

const OPTIONS = ["--bind", "127.0.0.1:0"];

describe("the daemon", () => {
  let daemon: TestDaemon;
  let rest: SpecClient;

  before(async () => {
    daemon = await TestDaemon.start(OPTIONS);
    rest = new SpecClient({ socketPath: daemon.socket });
    await daemon.makePython();
  });

  after(async () => daemon[Symbol.asyncDispose]());

  it("spec/openapi.json matches the routes and the daemon's answer", async () => {
    assert.deepEqual(openapi, JSON.parse(JSON.stringify(buildOpenapi())));
    assert.deepEqual((await rest.send("GET", "/v1/openapi.json")).body, openapi);
  });

  it("long work reports its progress line by line, and its failure in the last line", async () => {
    const body = { tag: "never", image: PYTHON_IMAGE, memory_mib: 128, warm_up: { exec: [["false"]], kernels: [] } };
    const { status, bytes } = await rest.send("POST", "/v1/snapshots", { json: body, headers: { accept: "application/x-ndjson" } });
    const lines = linesOf(bytes) as { progress?: object; error?: { code: string } }[];
    assert.equal(status, 200);
    assert.equal(lines.at(-1)?.error?.code, "WARMUP_FAILED");
    assert.ok(lines.length > 1 && lines.slice(0, -1).every(({ progress }) => progress));
    assert.equal((await rest.problem("GET", "/v1/snapshots/never")).code, "NOT_FOUND");
  });

  it("counters increase", async () => {
    const before = await metricsOf(rest);
    const [sandbox] = await daemon.controller.spawnSandboxes("python");
    assert.ok(sandbox);
    await daemon.controller.evalCode(sandbox.id, "1");
    await daemon.controller.execCommand(sandbox.id, ["true"]);
    await daemon.controller.branchSandbox(sandbox.id, { tag: "counted" });
    await assert.rejects(daemon.controller.getSandbox("sb-nothing"));
    const during = await metricsOf(rest);
    const moved = (name: string): number => (during.get(name) ?? 0) - (before.get(name) ?? 0);
    for (const name of ["forks", "evals", "execs", "branches"]) assert.equal(moved(`forkd_${name}_total{result="ok"}`), 1, name);
    assert.equal(moved('forkd_errors_total{code="NOT_FOUND"}'), 1);
    assert.equal(moved("forkd_sandboxes_active"), 1);
    assert.equal(moved("forkd_snapshots_total"), 1);
    assert.ok(moved("forkd_delta_bytes_total") > 0);
    assert.ok((during.get(`forkd_sandbox_private_bytes{sandbox="${sandbox.id}"}`) ?? 0) > 0);
    await daemon.controller.killSandbox(sandbox.id);
    await daemon.controller.deleteSnapshot("counted");
    const end = await metricsOf(rest);
    assert.equal(end.get("forkd_sandboxes_active"), before.get("forkd_sandboxes_active"));
    assert.equal(end.get("forkd_snapshots_total"), before.get("forkd_snapshots_total"));
    assert.equal(end.has(`forkd_sandbox_private_bytes{sandbox="${sandbox.id}"}`), false);
  });

  it("every request is in the audit log, with its principal", async () => {
    const { headers } = await rest.send("GET", "/v1/sandboxes", { headers: { "x-request-id": "audited" } });
    assert.equal(headers["x-request-id"], "audited");
    const line = await auditLine("audited");
    assert.deepEqual([line["principal"], line["remote"], line["status"], line["path"]], ["local", "unix", 200, "/v1/sandboxes"]);
    assert.doesNotMatch(await readFile(join(daemon.home.root, "audit.log"), "utf8"), /fkd_/, "a token is in the log");
  });

  it("after ten wrong tokens the client's address is locked out", async () => {
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
      [["token-file", "operator", "file"]],
    );
  });

  /** Waits for the line: the daemon writes the audit log after the answer */
  async function auditLine(requestId: string): Promise<Record<string, unknown>> {
    let found: Record<string, unknown> | undefined;
    await until(async () => {
      const lines = (await readFile(join(daemon.home.root, "audit.log"), "utf8")).split("\n").slice(0, -1);
      found = lines.map((text) => JSON.parse(text) as Record<string, unknown>).findLast((entry) => entry["request_id"] === requestId);
      return found !== undefined;
    });
    return found ?? {};
  }
});
