import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { promisify } from "node:util";
import { CONTROLLERS } from "@forkd/runtime/host/own-group";
import { findProgram } from "@forkd/runtime/util/find-program";
import { ABORT_SECS, readRepo, root, settingsOf, unknownVariables } from "./files.ts";

const UNITS = ["forkd.service", "forkd-user.service"];

describe("systemd units", () => {
  for (const name of UNITS) {
    it(`${name} passes systemd-analyze verify`, async (t) => {
      const analyze = await findProgram("systemd-analyze");
      if (!analyze) {
        t.skip("systemd-analyze is not installed");
        return;
      }
      const dir = await mkdtemp(join(tmpdir(), "forkd-unit-"));
      t.after(async () => rm(dir, { recursive: true, force: true }));
      // systemd-analyze also checks that the program exists, and it is not installed here
      const unit = (await readRepo(`deploy/systemd/${name}`)).replace(/^ExecStart=\S+/m, `ExecStart="${join(root, "forkd")}"`);
      await writeFile(join(dir, name), unit);
      const manager = name === "forkd-user.service" ? "--user" : "--system";
      const env = { ...process.env, XDG_RUNTIME_DIR: dir, HOME: dir };
      const { stderr } = await promisify(execFile)(analyze, ["verify", "--man=no", manager, join(dir, name)], { env });
      // unknown settings are only warnings, so check the output too
      assert.doesNotMatch(stderr, new RegExp(`${name}:`));
    });

    it(`${name} waits longer than the daemon drains requests`, async () => {
      const unit = await readUnit(name);
      const { drainSecs } = await settingsOf(unit.environment);
      const [stop = ""] = unit.get("TimeoutStopSec");
      assert.match(stop, /^\d+s$/);
      assert.ok(Number.parseInt(stop, 10) > drainSecs + ABORT_SECS, `${stop} is not more than ${drainSecs} + ${ABORT_SECS} s`);
    });

    it(`${name} keeps the VMs and their sockets when the daemon stops`, async () => {
      const unit = await readUnit(name);
      assert.deepEqual(unit.get("KillMode"), ["process"]);
      assert.deepEqual(unit.get("RuntimeDirectoryPreserve"), ["yes"]);
      assert.deepEqual(unit.get("OOMPolicy"), ["continue"]);
      assert.deepEqual(unit.get("ExecReload"), ["/bin/kill -HUP $MAINPID"]);
    });

    it(`${name} sets only known variables`, async () => {
      const { environment } = await readUnit(name);
      assert.deepEqual(await unknownVariables(Object.keys(environment)), []);
    });
  }

  it("the system unit runs without root and without capabilities", async () => {
    const unit = await readUnit("forkd.service");
    assert.deepEqual(unit.get("User"), ["forkd"]);
    assert.deepEqual(unit.get("NoNewPrivileges"), ["yes"]);
    assert.deepEqual(unit.get("CapabilityBoundingSet"), [""]);
    assert.deepEqual(unit.get("AmbientCapabilities"), [""]);
  });

  it("the units allow forkd to limit single sandboxes, and to confine their VMMs", async () => {
    for (const name of UNITS) {
      const unit = await readUnit(name);
      const [delegated = ""] = unit.get("Delegate");
      for (const controller of CONTROLLERS)
        assert.ok(delegated === "yes" || delegated.split(" ").includes(controller), `${name}: ${controller}`);
      assert.ok(!unit.get("ProtectControlGroups").includes("yes"), name);
      const [allowed = "user mnt pid net ipc uts"] = unit.get("RestrictNamespaces");
      for (const namespace of ["user", "mnt", "pid", "net", "ipc", "uts"])
        assert.ok(allowed.split(" ").includes(namespace), `${name}: ${namespace}`);
      assert.doesNotMatch(unit.get("SystemCallFilter").join(" "), /@mount|@privileged|@sandbox/);
    }
  });

  it("the system unit hides nothing that forkd needs", async () => {
    const unit = await readUnit("forkd.service");
    assert.deepEqual(unit.get("DeviceAllow"), ["/dev/kvm rw"]);
    assert.match(unit.get("RestrictNamespaces")[0] ?? "", /\buser\b/);
    for (const hiding of ["PrivateDevices", "ProcSubset", "MemoryDenyWriteExecute", "InaccessiblePaths", "PrivateNetwork", "PrivateUsers"])
      assert.deepEqual(unit.get(hiding), [], hiding);
    const writable = ["StateDirectory", "RuntimeDirectory", "LogsDirectory"].flatMap((key) => unit.get(key));
    assert.deepEqual(writable, ["forkd", "forkd", "forkd"]);
    const { FORKD_HOME, FORKD_RUN, FORKD_AUDIT_LOG } = unit.environment;
    assert.deepEqual([FORKD_HOME, FORKD_RUN, FORKD_AUDIT_LOG], ["/var/lib/forkd", "/run/forkd", "/var/log/forkd/audit.log"]);
  });
});

type Unit = { get: (key: string) => string[]; environment: Record<string, string> };

async function readUnit(name: string): Promise<Unit> {
  const lines = (await readRepo(`deploy/systemd/${name}`)).split("\n").filter((line) => /^[A-Z]\w*=/.test(line));
  const entries = lines.map((line): [string, string] => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)]);
  const get = (key: string): string[] => entries.filter(([name]) => name === key).map(([, value]) => value);
  const environment = get("Environment").map((text): [string, string] => [
    text.slice(0, text.indexOf("=")),
    text.slice(text.indexOf("=") + 1),
  ]);
  return { get, environment: Object.fromEntries(environment) };
}
