import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { test } from "node:test";
import { patience } from "../../../tests/helpers/patience.ts";

type Ended = { code: number; stdout: string; stderr: string };

async function interrupt(mode: "polite" | "deaf", signals: NodeJS.Signals[]): Promise<Ended> {
  const child = spawn(process.execPath, [join(import.meta.dirname, "fixtures", "waiting-command.ts"), mode], {
    stdio: ["ignore", "pipe", "pipe"],
    timeout: patience(),
  });
  const left = [...signals];
  let stdout = "";
  let stderr = "";
  child.stderr.on("data", (chunk) => (stderr += String(chunk)));
  child.stdout.on("data", (chunk) => {
    stdout += String(chunk);
    // One signal per line: two that are sent at once would be merged into one.
    if (/^(working|interrupted)\n$/.test(String(chunk)) && left.length > 0) child.kill(left.shift());
  });
  const [code] = (await once(child, "close")) as [number];
  return { code, stdout, stderr };
}

test("the first Ctrl-C lets the command clean up and ends with 130", async () => {
  const { code, stdout, stderr } = await interrupt("polite", ["SIGINT"]);
  assert.equal(code, 130);
  assert.equal(stdout, "working\ninterrupted\ncleaned up\n");
  assert.match(stderr, /^forkd: Interrupted\.\n.*\[CANCELLED\]\n$/);
});

test("SIGTERM ends with 143", async () => {
  assert.equal((await interrupt("polite", ["SIGTERM"])).code, 143);
});

test("the second Ctrl-C ends a command that does not react", async () => {
  const { code, stdout } = await interrupt("deaf", ["SIGINT", "SIGINT"]);
  assert.equal(code, 130);
  assert.equal(stdout, "working\ninterrupted\n");
});
