// Constraints of the package: Node imports only in some files, no handle that keeps the process alive, options that match the wire.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { patience } from "../../../tests/helpers/patience.ts";
import { FakeDaemon } from "./helpers/fake-daemon.ts";
import type * as forkd from "../src/index.ts";
import type * as wire from "../src/schema.gen.ts";
import type { Wire } from "../src/wire.ts";

const run = promisify(execFile);
const root = resolve(import.meta.dirname, "..");
const src = join(root, "src");

/** Compiles only when both types are equal */
type Same<A, B> = [A] extends [B] ? ([B] extends [A] ? true : never) : never;
type Mentions<T, N> = T extends N ? (N extends T ? true : false) : false;
type Result<F> = F extends (...args: never[]) => infer R ? R : never;
/** An option type in wire form, without the options of the call */
type Said<T> = keyof Wire<Omit<T, keyof forkd.ProgressOptions>>;
/** The variant of a union that has this field */
type With<T, K extends string> = T extends { [key in K]?: unknown } ? (K extends keyof T ? T : never) : never;

test("options have exactly the wire's fields", () => {
  const proofs: [
    Same<Said<forkd.CreateSnapshotOptions>, Exclude<keyof wire.CreateSnapshot, "tag">>,
    Same<Said<forkd.SpawnOptions>, Exclude<keyof wire.CreateSandboxes, "snapshot_tag" | "per_item">>,
    Same<Said<forkd.ForkOptions & { n: number }>, keyof wire.ForkSandbox>,
    Same<Said<forkd.UpdateSandboxOptions>, keyof wire.UpdateSandbox>,
    Same<Said<forkd.UpdateSnapshotOptions>, keyof wire.UpdateSnapshot>,
    Same<Said<forkd.BranchOptions>, keyof wire.Branch>,
    Same<Said<forkd.ExecOptions>, Exclude<keyof wire.Exec, "args">>,
    Same<Said<forkd.StartProcessOptions>, Exclude<keyof wire.StartProcess, "args">>,
    Same<Said<forkd.EvalOptions>, Exclude<keyof wire.Eval, "code">>,
    Same<Said<forkd.WarmUpOptions>, keyof wire.WarmUp>,
    Same<Said<forkd.NetworkOptions>, keyof wire.SetNetwork>,
    Same<Said<forkd.CreateTokenOptions>, Exclude<keyof wire.CreateToken, "name">>,
    Same<Said<forkd.PreviewOptions>, keyof wire.CreatePreview>,
    Same<Said<forkd.CreateWorkspaceOptions>, Exclude<keyof wire.CreateWorkspace, "name" | "snapshot_tag">>,
    Same<Said<forkd.PackagesSource>, keyof With<wire.CreateImage, "packages">>,
    Same<Said<forkd.RegistrySource>, keyof With<wire.CreateImage, "reference">>,
    Same<Said<forkd.FileSource>, keyof With<wire.CreateImage, "file">>,
    Same<Said<forkd.MakeDirectoryOptions>, Exclude<keyof wire.MakeDirectory, "path">>,
    Same<Said<forkd.MoveFileOptions>, Exclude<keyof wire.MoveFile, "from" | "to">>,
    Same<Said<forkd.CopyFileOptions>, Exclude<keyof wire.CopyFile, "from" | "to">>,
    Same<Said<forkd.ChmodOptions>, Exclude<keyof wire.ChmodFile, "path" | "mode">>,
    Same<Said<forkd.ChownOptions>, Exclude<keyof wire.ChownFile, "path">>,
    Same<Said<forkd.FileOnceOptions>, Exclude<keyof wire.MakeSymlink, "path" | "target">>,
  ] = [
    true,
    true,
    true,
    true,
    true,
    true,
    true,
    true,
    true,
    true,
    true,
    true,
    true,
    true,
    true,
    true,
    true,
    true,
    true,
    true,
    true,
    true,
    true,
  ];
  assert.ok(proofs.every(Boolean));
});

test("bytes are Uint8Array, not Buffer", async () => {
  const isBytes: Same<Result<forkd.Controller["readFile"]>, Promise<Uint8Array>> = true;
  const isBuffer: Mentions<Awaited<Result<forkd.Controller["readFile"]>>, Buffer> = false;
  assert.deepEqual([isBytes, isBuffer], [true, false]);
  for (const file of await sources()) {
    if (!file.endsWith("-node.ts")) assert.doesNotMatch(await readFile(join(src, file), "utf8"), /\bBuffer\b|NodeJS\./, file);
  }
});

test("only the code for Unix sockets and TCP connections uses Node, by a dynamic import", async () => {
  for (const file of await sources()) {
    if (file.endsWith("-node.ts")) continue;
    const text = await readFile(join(src, file), "utf8");
    assert.doesNotMatch(text, /["']node:/, file);
    assert.doesNotMatch(text, /^import (?!type )[^;]* from "\.\/[\w-]+-node\.ts"/m, file);
    for (const [, name = ""] of text.matchAll(/(?:from|import\() ?"([^"]+)"/g)) assert.match(name, /^\.\//, `${file}: ${name}`);
  }
});

test("no dependencies", async () => {
  const manifest = JSON.parse(await readFile(join(root, "package.json"), "utf8")) as object;
  assert.equal("dependencies" in manifest, false);
});

test("every public method has a comment", async () => {
  const method = /^ {2}(static |override |async |get |\*)*(\w+|\[Symbol\.\w+\])(<.+>)?\(/;
  // Overloads share one comment, and a class documents its constructor.
  const exempt = /^ {2}(private|constructor|(static |override )?async \w+\(first:)/;
  for (const file of (await sources()).filter((name) => /controller|sandbox/.test(name))) {
    const lines = (await readFile(join(src, file), "utf8")).split("\n");
    const bare = lines.filter((line, i) => method.test(line) && !exempt.test(line) && lines[i - 1]?.endsWith("*/") !== true);
    assert.deepEqual(bare, [], file);
  }
});

for (const way of ["socket", "url"] as const) {
  test(`an idle connection over ${way} does not keep the process alive`, async () => {
    await using daemon = await FakeDaemon.start();
    const program = `
      import { Controller, Sandbox } from ${JSON.stringify(join(src, "index.ts"))};
      const controller = new Controller({ ${way}: ${JSON.stringify(daemon[way])} });
      await Promise.all(Array.from({ length: 5 }, () => controller.health()));
      await using sb = await Sandbox.create("py", { controller });
      await sb.eval("1");
      console.log("done");`;
    const args = ["--disable-warning=ExperimentalWarning", "--input-type=module", "-e", program];
    const { stdout } = await run(process.execPath, args, { timeout: patience() });
    assert.equal(stdout, "done\n");
    assert.equal(daemon.names.at(-1), "deleteSandbox");
  });
}

test("works in a browser, without process", async () => {
  await using daemon = await FakeDaemon.start();
  const program = `
    const url = ${JSON.stringify(daemon.url)};
    const print = console.log;
    delete globalThis.process;
    globalThis.document = {};
    const { Controller } = await import(${JSON.stringify(join(src, "index.ts"))});
    const seen = [];
    const fetch = (target, init) => (seen.push(target), globalThis.fetch(target.replace("http://127.0.0.1:8889", url), init));
    const controller = new Controller({ fetch });
    const result = await controller.evalCode("sb-1", "1");
    print(controller.url, seen.length, result.value);`;
  const { stdout } = await run(process.execPath, ["--disable-warning=ExperimentalWarning", "--input-type=module", "-e", program], {
    timeout: patience(),
  });
  assert.equal(stdout, "http://127.0.0.1:8889 1 10\n");
});

async function sources(): Promise<string[]> {
  return (await readdir(src)).filter((file) => file.endsWith(".ts"));
}
