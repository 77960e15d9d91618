// Common network clients inside a sandbox, without proxy settings: git, pip, apt and curl against local servers.

import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { prepareHome, resolveHome } from "@forkd/runtime";
import { Sandbox } from "forkd";
import { CLIENTS_IMAGE, ensureClientsImage } from "../helpers/clients-image.ts";
import { NetDaemon } from "../helpers/net-daemon.ts";
import { makeSites } from "../helpers/net-sites.ts";
import { NetWorld, OUTSIDE } from "../helpers/net-world.ts";
import { patience } from "../helpers/patience.ts";
import { warmSnapshot } from "../helpers/shared-stores.ts";

const APT = "-o Dir::Etc::sourcelist=/tmp/sources.list -o Dir::Etc::sourceparts=/none -o APT::Sandbox::User=_apt";
/** curl's message depends on whether it checks before or after the reset */
const REFUSED = /reset by peer|getpeername\(\) failed with errno 107|Failed to connect|Couldn't connect|Could not connect/;

const missing = await NetWorld.missing();

describe("ordinary programs", { skip: missing ?? false }, () => {
  let dir: string;
  let net: NetDaemon;
  let sandbox: Sandbox;

  before(async () => {
    await ensureClientsImage(await prepareHome(resolveHome()));
    dir = await mkdtemp(join(tmpdir(), "forkd-test-sites-"));
    await makeSites(dir);
    net = await NetDaemon.start(dir);
    await net.world.name({
      "git.test": { A: [[OUTSIDE.public]] },
      "pypi.test": { A: [[OUTSIDE.otherPublic]], AAAA: [[OUTSIDE.public6]] },
      "apt.test": { A: [[OUTSIDE.public]] },
      "other.test": { A: [[OUTSIDE.public]] },
    });
    const { controller } = net.daemon;
    await warmSnapshot(net.daemon.home, "clients", { image: CLIENTS_IMAGE, memoryMiB: 384, warmUp: { kernels: [] } });
    sandbox = await Sandbox.create("clients", { controller, network: { mode: "allow", allow: ["git.test", "*.test:80"] } });
  });

  after(async () => {
    await net?.[Symbol.asyncDispose]();
    if (dir) await rm(dir, { recursive: true, force: true });
  });

  /** Standard output of a shell command that must succeed */
  async function sh(script: string): Promise<string> {
    const { stdout, stderr, exit_code: code } = await sandbox.exec(script, { timeoutSecs: patience(40) / 1000 });
    assert.equal(code, 0, `${script}\n${stdout}${stderr}`);
    return stdout;
  }

  it("curl", async () => {
    assert.equal(await sh("curl -sS http://git.test/hello"), "hello\n");
    assert.equal(await sh("curl -sS -6 http://pypi.test/hello"), "hello\n");
    assert.equal(await sh("curl -sS -T /etc/passwd http://git.test/upload"), await sh("printf %s $(wc -c < /etc/passwd)"));
  });

  it("git clone", async () => {
    await sh("git clone --quiet http://git.test/git/tool.git /tmp/tool");
    assert.equal(await sh("cat /tmp/tool/README"), "from git\n");
  });

  it("pip install", async () => {
    await sh(
      "pip install --quiet --break-system-packages --root-user-action=ignore --index-url http://pypi.test/simple/ --trusted-host pypi.test tiny",
    );
    assert.equal(await sh("python3 -c 'import tiny; print(tiny.WORD)'"), "from a wheel\n");
  });

  it("apt-get update and install", async () => {
    await sh("echo 'deb [trusted=yes] http://apt.test/apt ./' > /tmp/sources.list");
    await sh(`apt-get ${APT} update`);
    await sh(`DEBIAN_FRONTEND=noninteractive apt-get ${APT} install --yes tiny-tool`);
    assert.equal(await sh("cat /usr/share/tiny-tool"), "from a package\n");
  });

  it("fail soon with the reason when they are not allowed", async () => {
    await sandbox.network.set({ mode: "allow", allow: ["git.test"] });
    const failed = async (script: string): Promise<string> => {
      const { stdout, stderr, exit_code: code } = await sandbox.exec(script, { timeoutSecs: patience(40) / 1000 });
      assert.notEqual(code, 0, script);
      return stdout + stderr;
    };
    assert.match(await failed("curl -sS http://other.test/hello"), /Could not resolve host: other\.test/);
    assert.match(await failed("git clone --quiet http://other.test/git/tool.git /tmp/other"), /Could not resolve host: other\.test/);
    assert.match(await failed(`curl -sS http://${OUTSIDE.otherPublic}/hello`), REFUSED);
    assert.match(
      await failed(`apt-get ${APT} update -o Acquire::Retries=0 -o APT::Update::Error-Mode=any`),
      /Could not resolve 'apt\.test'/,
    );
    await sandbox.network.set({ mode: "none" });
    assert.match(await failed("curl -sS http://git.test/hello"), /Could not resolve host: git\.test/);
    assert.match(await failed(`curl -sS http://${OUTSIDE.public}/hello`), REFUSED);
  });
});
