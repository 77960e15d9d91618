import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { until } from "../../../../tests/helpers/until.ts";
import { run, startPiped } from "../../src/host/command.ts";

test("a command's output is returned, and its arguments are passed unchanged", async () => {
  assert.equal((await run(["printf", "%s|", "a b", "$HOME", "'"])).stdout, "a b|$HOME|'|");
});

test("a failure has the exit status and the end of stderr", async () => {
  await assert.rejects(
    run(["sh", "-c", "head -c 100000 /dev/zero | tr '\\0' x >&2; echo the end >&2; exit 3"]),
    (error: Error & { code?: string }) => {
      assert.equal(error.code, "HOST_COMMAND_FAILED");
      assert.match(error.message, /exit status 3/);
      assert.match(error.message, /the end$/);
      assert.ok(error.message.length < 10_000);
      return true;
    },
  );
});

test("a missing tool names the package to install", async () => {
  const path = process.env["PATH"];
  process.env["PATH"] = "/nowhere";
  try {
    await assert.rejects(run(["mmdebstrap"]), { code: "HOST_TOOL_MISSING", hint: "Install it: sudo apt-get install mmdebstrap" });
  } finally {
    process.env["PATH"] = path;
  }
});

test("cancelling ends the whole process group, also one that ignores SIGTERM", async () => {
  const stop = new AbortController();
  let pid = 0;
  const done = run(["sh", "-c", "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ >&2; while :; do sleep 1; done' & wait"], {
    signal: stop.signal,
    graceMs: 200,
    onStderr: (text) => {
      pid = Number(text);
      stop.abort();
    },
  });
  await assert.rejects(done, { code: "CANCELLED" });
  assert.ok(pid > 0);
  // ended, or a zombie that process 1 has not reaped
  const isDead = async (): Promise<boolean> => /\) [ZX]/.test(await readFile(`/proc/${pid}/stat`, "utf8").catch(() => ") Z"));
  await until(isDead);
});

test("a command that exceeds its time limit is ended, and the error gives the limit", async () => {
  await assert.rejects(run(["sleep", "30"], { timeoutMs: 50 }), (error: Error) => /within 50 ms/.test(error.message));
});

test("a command that stops reading its input does not crash the writer", async () => {
  const command = startPiped(["head", "-c", "1"]);
  command.stdout.resume();
  await until(() => {
    command.stdin.write(Buffer.alloc(65536));
    return !command.stdin.writable;
  });
  await command.done;
});
