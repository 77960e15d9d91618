// The package as it is published: plain JavaScript that an older Node runs, with types.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";

const run = promisify(execFile);
const ROOT = resolve(import.meta.dirname, "..", "..", "..");
/** the node of the machine, not the project's */
const OTHER_NODE = "/usr/bin/node";

describe("the published package", () => {
  let dir: string;
  const server = createServer((request, response) => {
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ version: request.url, api: "v1" }));
  });

  before(async () => {
    dir = await mkdtemp(join(tmpdir(), "forkd-sdk-"));
    await run(process.execPath, ["--disable-warning=ExperimentalWarning", join(ROOT, "scripts", "build-npm.ts"), join(dir, "packages")]);
    await writeFile(join(dir, "package.json"), "{}");
    // as docs/sdk-ts.md says
    const install = ["install", "--offline", "--no-audit", "--no-fund", `forkd@file:${join(dir, "packages", "sdk")}`];
    await run("npm", install, { cwd: dir });
    server.listen(join(dir, "api.sock"));
    await once(server, "listening");
  });

  after(async () => {
    server.close();
    await rm(dir, { recursive: true, force: true });
  });

  it("has no dependencies, types, and no TypeScript", async () => {
    const manifest = JSON.parse(await readFile(join(dir, "node_modules", "forkd", "package.json"), "utf8")) as Record<string, unknown>;
    assert.equal(manifest["name"], "forkd-vm");
    assert.equal(manifest["dependencies"], undefined);
    const index = await readFile(join(dir, "node_modules", "forkd", "index.js"), "utf8");
    assert.doesNotMatch(index, /\.ts"/);
    assert.match(await readFile(join(dir, "node_modules", "forkd", "index.d.ts"), "utf8"), /Controller/);
  });

  it("works in the Node of the machine, over a Unix socket", async (context) => {
    const major = await nodeMajor();
    if (major === undefined || major < 20) {
      context.skip(`${OTHER_NODE} is ${major === undefined ? "not there" : `version ${major}`}`);
      return;
    }
    context.diagnostic(`Node ${major}`);
    const program = join(dir, "program.mjs");
    await writeFile(
      program,
      `import { Controller, Sandbox, ForkdError } from "forkd";
       const controller = new Controller({ socket: ${JSON.stringify(join(dir, "api.sock"))} });
       const { version } = await controller.version();
       console.log(version, typeof Sandbox.create, typeof ForkdError, typeof Sandbox.prototype[Symbol.asyncDispose]);`,
    );
    const { stdout } = await run(OTHER_NODE, [program]);
    assert.equal(stdout.trim(), "/version function function function");
  });
});

async function nodeMajor(): Promise<number | undefined> {
  try {
    const { stdout } = await run(OTHER_NODE, ["--version"]);
    return Number(/^v(\d+)/.exec(stdout)?.[1]);
  } catch {
    return undefined;
  }
}
