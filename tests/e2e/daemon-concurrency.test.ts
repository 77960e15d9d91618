// Concurrent requests: no double assignment, no hang, no leftovers.

import assert from "node:assert/strict";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, afterEach, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ERROR_CODES } from "@forkd/runtime";
import { Controller, ForkdError } from "forkd";
import { rounds } from "../helpers/all.ts";
import { TestDaemon } from "../helpers/daemon.ts";
import { isRunning, namesIn, waitUntilGone } from "../helpers/host.ts";
import { patience } from "../helpers/patience.ts";
import { until } from "../helpers/until.ts";
import { SpecClient } from "../helpers/spec-client.ts";

const ALL = ["running", "paused", "ended", "lost"] as const;
/** Valid outcomes of two requests for the same object; any other outcome is a defect */
const GONE = ["NOT_FOUND", "VMM_EXITED"];

describe("many at once", () => {
  let daemon: TestDaemon;
  let rest: SpecClient;
  let forkd: Controller;

  before(async () => {
    daemon = await TestDaemon.start();
    await daemon.makePython();
    rest = new SpecClient({ socketPath: daemon.socket });
    // Without retries, because the tests check the refusals
    forkd = new Controller({ socket: daemon.socket, timeoutMs: patience(), retries: 0 });
  });

  after(async () => daemon[Symbol.asyncDispose]());

  afterEach(async () => {
    await forkd.killSandboxes({ all: true });
    assert.deepEqual(await forkd.listSandboxes({ state: [...ALL] }), []);
    assert.deepEqual(vmms(), []);
    assert.deepEqual(await daemon.vmFolders(), []);
    const extra = (await forkd.listSnapshots()).filter(({ tag }) => tag !== "python");
    for (const { tag } of extra) await forkd.deleteSnapshot(tag, { force: true });
    await until(async () => (await namesIn(daemon.home.snapshots)).filter((name) => name.startsWith("sn-")).length === 1);
  });

  it("a request that is sent ten times at once is executed once", async () => {
    const sent = { json: { snapshot_tag: "python" }, headers: { "idempotency-key": "ten" } };
    const replies = await Promise.all(Array.from({ length: 10 }, async () => rest.send("POST", "/v1/sandboxes", sent)));
    assert.deepEqual(new Set(replies.map(({ status }) => status)), new Set([201]));
    assert.equal(new Set(replies.map(({ bytes }) => bytes.toString())).size, 1, "the answers differ");
    assert.equal(replies.filter(({ headers }) => headers["idempotent-replayed"] === "true").length, 9);
    assert.equal((await forkd.listSandboxes()).length, 1);
  });

  it("and once even when the daemon is killed meanwhile", async () => {
    const sent = { json: { snapshot_tag: "python" }, headers: { "idempotency-key": "crash" } };
    const first = await rest.send("POST", "/v1/sandboxes", sent);
    await daemon.kill9();
    await daemon.up();
    const second = await rest.send("POST", "/v1/sandboxes", sent);
    assert.deepEqual([second.status, second.body], [201, first.body]);
    assert.equal(second.headers["idempotent-replayed"], "true");
    assert.equal((await forkd.listSandboxes()).length, 1);
    // A kill during the request: the fork was either completed and recorded, or the retry makes it
    const cut = { json: { snapshot_tag: "python", n: 2 }, headers: { "idempotency-key": "cut" } };
    const lost = rest.send("POST", "/v1/sandboxes", cut);
    lost.catch(() => undefined); // the daemon is killed
    await until(() => vmms().length > 1);
    await daemon.kill9();
    await assert.rejects(lost);
    await daemon.up();
    assert.equal((await rest.send("POST", "/v1/sandboxes", cut)).status, 201);
    const live = await forkd.listSandboxes();
    assert.equal(live.length, 3);
    assert.deepEqual(new Set(vmms()), new Set(live.map(({ pid }) => pid)));
  });

  it("a name is given to one of the requests for it", async () => {
    const forks = await outcomesOf(Array.from({ length: 6 }, async () => forkd.spawnSandboxes("python", { name: "wanted" })));
    assert.deepEqual(forks.toSorted(), ["EXISTS", "EXISTS", "EXISTS", "EXISTS", "EXISTS", "ok"]);
    const [one, two] = await forkd.spawnSandboxes("python", { n: 2 });
    assert.ok(one && two);
    const names = await outcomesOf([one, two].map(async ({ id }) => forkd.updateSandbox(id, { name: "other" })));
    assert.deepEqual(names.toSorted(), ["EXISTS", "ok"]);
    assert.equal(vmms().length, 3);
  });

  it("branching and ending the same sandbox, in any order, leaves a consistent state", async () => {
    const tags: string[] = [];
    const turns = rounds(12, 20);
    let wholeMs = 0;
    for (let round = 0; round < turns; round++) {
      const [sandbox] = await forkd.spawnSandboxes("python", { name: "contested" });
      assert.ok(sandbox);
      const tag = `race-${round}`;
      const from = performance.now();
      const branch = forkd.branchSandbox(sandbox.id, { tag, wait: round % 3 !== 1 });
      // The first branch is not interrupted: its duration spreads the interruptions of the others from start to end.
      if (round === 0) {
        await branch;
        wholeMs = performance.now() - from;
      } else await sleep((wholeMs * (round - 1)) / (turns - 2));
      const [branched, ended] = await outcomesOf([branch, forkd.killSandbox(sandbox.id)]);
      assert.ok(branched === "ok" || GONE.includes(branched ?? ""), `branch: ${branched}`);
      assert.equal(ended, "ok");
      if (branched === "ok") tags.push(tag);
      await assert.rejects(forkd.getSandbox("contested"), { code: "NOT_FOUND" });
    }
    await until(async () => (await forkd.listSnapshots({ status: "writing" })).length === 0);
    const known = (await forkd.listSnapshots()).filter(({ tag }) => tag !== "python");
    for (const { tag, status } of known) {
      assert.ok(tags.includes(tag), `${tag} was not acknowledged`);
      // a branch that was acknowledged before it was written may have failed; its status says so
      if (status === "failed") continue;
      const [fork] = await forkd.spawnSandboxes(tag);
      assert.equal((await forkd.evalCode(fork?.id ?? "", "6 * 7")).value, 42, tag);
      await forkd.killSandbox(fork?.id ?? "");
    }
    const ready = known.filter(({ status }) => status === "ready").length;
    assert.ok(ready > 0, "no branch succeeded");
  });

  it("a sandbox that ends before its branch is complete releases its name", async () => {
    for (let round = 0; round < 3; round++) {
      const [sandbox] = await forkd.spawnSandboxes("python", { name: "left" });
      await forkd.branchSandbox(sandbox?.id ?? "", { tag: `left-${round}`, wait: false });
      await forkd.killSandbox("left");
      await until(async () => (await forkd.getSnapshot(`left-${round}`)).status !== "writing");
      await assert.rejects(forkd.getSandbox("left"), { code: "NOT_FOUND" });
    }
  });

  it("each of several requests that end the same sandbox gets success or NOT_FOUND", async () => {
    for (let round = 0; round < 5; round++) {
      const [sandbox] = await forkd.spawnSandboxes("python");
      assert.ok(sandbox?.pid);
      const ends = await outcomesOf([forkd.killSandbox(sandbox.id), forkd.killSandbox(sandbox.id), forkd.killSandboxes({ tag: "python" })]);
      assert.ok(
        ends.every((end) => end === "ok" || end === "NOT_FOUND"),
        ends.join(),
      );
      assert.equal(isRunning(sandbox.pid), false);
    }
  });

  it("a snapshot that is removed while it is forked: exactly one of both succeeds", async () => {
    const [source] = await forkd.spawnSandboxes("python");
    assert.ok(source);
    let wholeMs = 0;
    for (let round = 0; round < 8; round++) {
      const tag = `gone-${round}`;
      await forkd.branchSandbox(source.id, { tag });
      const from = performance.now();
      const fork = forkd.spawnSandboxes(tag, { n: 2 });
      // The first fork is not interrupted: its duration spreads the interruptions of the others.
      if (round === 0) {
        await fork;
        wholeMs = performance.now() - from;
      } else await sleep((wholeMs * (round - 1)) / 6);
      const force = round % 2 === 1;
      const [forked, removed] = await outcomesOf([fork, forkd.deleteSnapshot(tag, { force })]);
      assert.ok(["ok", "NOT_FOUND"].includes(forked ?? ""), `fork: ${forked}`);
      assert.ok(["ok", "IN_USE"].includes(removed ?? ""), `removal: ${removed}`);
      assert.ok(forked === "ok" || removed === "ok", "both were refused");
      if (forked === "ok") for (const { id } of await fork) assert.equal((await forkd.evalCode(id, "2 ** 10")).value, 1024);
      if (!force && forked === "ok") assert.equal(removed, "IN_USE");
      await forkd.killSandboxes({ tag });
    }
  });

  it("a snapshot that several requests rename ends with one name", async () => {
    const [source] = await forkd.spawnSandboxes("python");
    assert.ok(source);
    for (let round = 0; round < 5; round++) {
      await forkd.branchSandbox(source.id, { tag: `old-${round}` });
      const wanted = Array.from({ length: 4 }, (_, i) => `new-${round}-${i}`);
      const renamed = await outcomesOf(wanted.map(async (tag) => forkd.updateSnapshot(`old-${round}`, { tag })));
      assert.deepEqual(renamed.toSorted(), ["NOT_FOUND", "NOT_FOUND", "NOT_FOUND", "ok"], `round ${round}`);
      const tags = (await forkd.listSnapshots()).map(({ tag }) => tag).filter((tag) => tag.includes(`-${round}`));
      assert.deepEqual(tags, [wanted[renamed.indexOf("ok")]]);
      const [fork] = await forkd.spawnSandboxes(tags[0] ?? "");
      assert.equal(fork?.snapshot_tag, tags[0]);
    }
    // A rename and a removal: either may be first, but neither may fail with an I/O error
    for (let round = 0; round < 5; round++) {
      await forkd.branchSandbox(source.id, { tag: `leaving-${round}` });
      const works = [forkd.deleteSnapshot(`leaving-${round}`), forkd.updateSnapshot(`leaving-${round}`, { tag: `staying-${round}` })];
      const outcomes = await outcomesOf(round % 2 === 0 ? works : works.toReversed());
      assert.deepEqual(outcomes.toSorted(), ["NOT_FOUND", "ok"], `round ${round}`);
    }
    // one tag for two snapshots
    await Promise.all(["a", "b"].map(async (tag) => forkd.branchSandbox(source.id, { tag })));
    const both = await outcomesOf(["a", "b"].map(async (tag) => forkd.updateSnapshot(tag, { tag: "same" })));
    assert.deepEqual(both.toSorted(), ["EXISTS", "ok"]);
  });

  it("a snapshot that is renamed by its id keeps one name", async () => {
    const [source] = await forkd.spawnSandboxes("python");
    const { id } = await forkd.branchSandbox(source?.id ?? "", { tag: "by-id" });
    const renamed = await outcomesOf([forkd.updateSnapshot(id, { tag: "by-id-2" })]);
    assert.ok(["ok", "NOT_FOUND"].includes(renamed[0] ?? ""), renamed[0]);
    const tags = (await forkd.listSnapshots()).filter((snapshot) => snapshot.id === id).map(({ tag }) => tag);
    assert.deepEqual(tags, [renamed[0] === "ok" ? "by-id-2" : "by-id"]);
  });

  it("one tag for two branches is one snapshot", async () => {
    const sources = await forkd.spawnSandboxes("python", { n: 3 });
    const branches = await outcomesOf(sources.map(async ({ id }) => forkd.branchSandbox(id, { tag: "single" })));
    assert.deepEqual(branches.toSorted(), ["EXISTS", "EXISTS", "ok"]);
    const [fork] = await forkd.spawnSandboxes("single");
    assert.ok(fork);
  });

  it("a workspace is changed by one request at a time", async () => {
    await forkd.createWorkspace("desk", "python");
    for (const change of ["suspendWorkspace", "resumeWorkspace"] as const) {
      const outcomes = await outcomesOf(Array.from({ length: 3 }, async () => forkd[change]("desk")));
      assert.equal(outcomes.filter((outcome) => outcome === "ok").length, 1, outcomes.join());
      // BAD_REQUEST: it arrived after the first was done
      assert.ok(
        outcomes.every((outcome) => ["ok", "IN_USE", "BAD_REQUEST"].includes(outcome)),
        outcomes.join(),
      );
    }
    assert.equal(vmms().length, 1);
    await forkd.deleteWorkspace("desk");
  });

  it("sandboxes end at their time-out, and a sandbox in use does not", async () => {
    const [brief] = await forkd.spawnSandboxes("python", { ttlSecs: 1 });
    const [idle] = await forkd.spawnSandboxes("python", { idleTimeoutSecs: 1 });
    const [busy] = await forkd.spawnSandboxes("python");
    const [extended] = await forkd.spawnSandboxes("python", { ttlSecs: Math.ceil(patience(0.5) / 1000) });
    assert.ok(brief && idle && busy && extended);
    await forkd.updateSandbox(extended.id, { ttlSecs: null });
    const work = forkd.execCommand(busy.id, ["sh", "-c", "touch /tmp/begun; sleep 4"]);
    await until(async () => (await outcomesOf([forkd.statFile(busy.id, "/tmp/begun")]))[0] === "ok");
    await forkd.updateSandbox(busy.id, { idleTimeoutSecs: 1 });
    const ended = async (id: string): Promise<string | null> => {
      for await (const event of forkd.events({ since: 0, types: ["sandbox.deleted"], sandbox: id })) return event.reason;
      return null;
    };
    assert.deepEqual(await Promise.all([ended(brief.id), ended(idle.id)]), ["its time to live is over", "its idle time-out is over"]);
    assert.equal((await work).exit_code, 0, "it was ended while it was used");
    assert.equal(await ended(busy.id), "its idle time-out is over");
    // past the original expiry and two rounds of the expiry check
    await until(() => Date.now() / 1000 > (extended.expires_at_unix ?? 0) + 2);
    assert.deepEqual(
      (await forkd.listSandboxes()).map(({ id }) => id),
      [extended.id],
    );
  });

  it("limits of sandboxes and of a token hold for concurrent requests", async () => {
    await restart(["--bind", "127.0.0.1:0", "--max-sandboxes", "6"]);
    const { token } = await forkd.createToken("small", { maxSandboxes: 2 });
    const small = new Controller({ url: `http://${daemon.bind}`, token, retries: 0 });
    const own = await outcomesOf(Array.from({ length: 5 }, async () => small.spawnSandboxes("python")));
    assert.deepEqual(own.toSorted(), ["LIMIT_REACHED", "LIMIT_REACHED", "LIMIT_REACHED", "ok", "ok"]);
    await assertLimit(small.spawnSandboxes("python"), { resource: "sandboxes of token small", needed: 1, free: 0 });
    await assertLimit(small.forkSandbox((await forkd.listSandboxes())[0]?.id ?? ""), { resource: "sandboxes of token small" });
    const others = await outcomesOf(Array.from({ length: 8 }, async () => forkd.spawnSandboxes("python")));
    assert.equal(others.filter((outcome) => outcome === "ok").length, 4, others.join());
    assert.equal(others.filter((outcome) => outcome === "LIMIT_REACHED").length, 4, others.join());
    await assertLimit(forkd.spawnSandboxes("python", { n: 3 }), { resource: "sandboxes", needed: 3, free: 0 });
    await assertLimit(forkd.createWorkspace("desk", "python"), { resource: "sandboxes" });
    assert.deepEqual(await forkd.listWorkspaces(), []);
    assert.equal(vmms().length, 6);
    assert.deepEqual(
      (await forkd.listSnapshots()).map(({ tag }) => tag),
      ["python"],
    );
    await forkd.deleteToken("small");
    await forkd.killSandboxes({ all: true });
    assert.equal((await forkd.spawnSandboxes("python", { n: 6 })).length, 6);
  });

  it("suspended sandboxes have a limit, and one that resumes automatically counts for its token", async () => {
    await restart(["--bind", "127.0.0.1:0", "--max-suspended", "2"]);
    const { token } = await forkd.createToken("small", { maxSandboxes: 1 });
    const small = new Controller({ url: `http://${daemon.bind}`, token, retries: 0 });
    const [first] = await small.spawnSandboxes("python", { autoResume: true });
    assert.ok(first);
    await forkd.suspendSandbox(first.id);
    const [second] = await small.spawnSandboxes("python");
    assert.ok(second);
    await assertLimit(forkd.evalCode(first.id, "1"), { resource: "sandboxes of token small", needed: 1, free: 0 });
    await forkd.killSandbox(second.id);
    assert.equal((await forkd.evalCode(first.id, "6 * 7")).result, "42");
    await forkd.suspendSandbox(first.id);
    const [third, fourth] = await forkd.spawnSandboxes("python", { n: 2 });
    assert.ok(third && fourth);
    await forkd.suspendSandbox(third.id);
    await assertLimit(forkd.suspendSandbox(fourth.id), { resource: "suspended sandboxes", needed: 1, free: 0 });
    await forkd.killSandbox(third.id);
    await forkd.suspendSandbox(fourth.id);
    await forkd.deleteToken("small");
    await forkd.killSandboxes({ all: true });
    await restart([]);
  });

  it("memory limits hold, and branches beyond the concurrency limit are BUSY", async () => {
    await restart(["--max-memory-mib", "512", "--branch-concurrency", "1"]);
    const sandboxes = await forkd.spawnSandboxes("python", { n: 2 });
    await assertLimit(forkd.spawnSandboxes("python"), { resource: "MiB of guest memory", needed: 256, free: 0 });
    assert.equal((await forkd.status()).memory.committed_mib, 512);
    const branches = await outcomesOf(sandboxes.flatMap(({ id }) => [forkd.branchSandbox(id), forkd.branchSandbox(id)]));
    assert.deepEqual(new Set(branches), new Set(["ok", "BUSY"]));
    await until(async () => (await forkd.listSnapshots({ status: "writing" })).length === 0);
    await restart(["--min-free-mib", "1000000"]);
    await assertLimit(forkd.spawnSandboxes("python"), { resource: "MiB of the host's memory", free: 0 });
    assert.equal(vmms().length, 2);
    await restart([]);
  });

  it("after a reboot of the host all sandboxes are lost, and all snapshots usable", async () => {
    const sandboxes = await forkd.spawnSandboxes("python", { n: 2 });
    await forkd.branchSandbox(sandboxes[0]?.id ?? "", { tag: "survives" });
    await forkd.createWorkspace("desk", "python");
    await forkd.suspendWorkspace("desk");
    await forkd.createWorkspace("lamp", "python");
    await daemon.down();
    const pids = daemon.processes();
    for (const pid of pids) process.kill(pid, "SIGKILL");
    assert.deepEqual(await waitUntilGone(pids), []);
    const db = new DatabaseSync(join(daemon.home.root, "state.db"));
    db.exec("UPDATE sandboxes SET boot_id = 'another-boot'");
    db.close();
    await daemon.up();
    const lost = await forkd.listSandboxes({ state: ["lost"] });
    assert.deepEqual(
      lost.map(({ reason, pid }) => [reason, pid]),
      Array.from({ length: 3 }, () => ["the host was restarted", null]),
    );
    await assert.rejects(forkd.evalCode(sandboxes[0]?.id ?? "", "1"), { code: "SANDBOX_LOST", status: 410 });
    assert.deepEqual(await forkd.listSandboxes(), []);
    for (const tag of ["python", "survives"]) {
      const [fork] = await forkd.spawnSandboxes(tag);
      assert.equal((await forkd.evalCode(fork?.id ?? "", "1 + 1")).value, 2);
    }
    const workspaces = new Map((await forkd.listWorkspaces()).map(({ name, status }) => [name, status]));
    assert.deepEqual([workspaces.get("desk"), workspaces.get("lamp")], ["suspended", "stale"]);
    assert.equal((await forkd.resumeWorkspace("desk")).status, "running");
    await assert.rejects(forkd.resumeWorkspace("lamp"), { code: "NOT_FOUND" });
    for (const name of ["desk", "lamp"]) await forkd.deleteWorkspace(name);
  });

  async function restart(options: string[]): Promise<void> {
    await daemon.down();
    await daemon.up(options);
  }

  async function assertLimit(work: Promise<unknown>, details: Record<string, unknown>): Promise<void> {
    const error = await work.then(
      () => assert.fail("it was not refused"),
      (reason: unknown) => reason as ForkdError,
    );
    assert.deepEqual([error.code, error.status], ["LIMIT_REACHED", 503], error.message);
    for (const [key, value] of Object.entries(details))
      assert.equal(error.details?.[key], value, `${key}: ${JSON.stringify(error.details)}`);
    assert.equal(typeof error.details?.["free"], "number");
  }

  function vmms(): number[] {
    return daemon.vmms();
  }
});

/** "ok" or the error code of each; an undocumented code fails */
async function outcomesOf(works: readonly Promise<unknown>[]): Promise<string[]> {
  const settled = await Promise.allSettled(works);
  return settled.map((outcome) => {
    if (outcome.status === "fulfilled") return "ok";
    assert.ok(outcome.reason instanceof ForkdError, String(outcome.reason));
    const { code, message } = outcome.reason;
    assert.ok(code in ERROR_CODES && code !== "INTERNAL", `${code}: ${message}`);
    return code;
  });
}
