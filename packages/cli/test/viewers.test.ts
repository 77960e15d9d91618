// Ctrl-C ends commands that only print, without an error.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { fakeDaemon } from "./fake-daemon.ts";
import { FORKD } from "./helpers.ts";

import type { Answer } from "./fake-daemon.ts";

const OPEN_STREAM: Answer = (_asked, response) => {
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.write(": open\n\n");
};

const VIEWERS: { args: string[]; request: string; answer: Answer; others?: string[] }[] = [
  { args: ["logs", "-f", "web"], request: "GET /v1/sandboxes/web/logs", answer: OPEN_STREAM },
  { args: ["events"], request: "GET /v1/events", answer: OPEN_STREAM },
  { args: ["files", "watch", "web:/tmp"], request: "GET /v1/sandboxes/web/files/watch", answer: OPEN_STREAM },
  { args: ["stats"], request: "GET /v1/stats", answer: () => {} },
  { args: ["top"], request: "GET /v1/tree", answer: () => {}, others: ["GET /v1/sandboxes", "GET /v1/stats"] },
];

for (const { args, request, answer, others = [] } of VIEWERS) {
  test(`Ctrl-C of ${args.join(" ")} prints nothing, and the exit code is 130`, async () => {
    await using daemon = await fakeDaemon(Object.fromEntries([request, ...others].map((each) => [each, answer])));
    const child = spawn(FORKD, args, { env: { ...process.env, ...daemon.env }, stdio: ["ignore", "pipe", "pipe"] });
    let stderr = "";
    child.stderr.on("data", (chunk) => (stderr += String(chunk)));
    child.stdout.resume();
    const closed = once(child, "close") as Promise<[number | null]>;
    while (daemon.asked.length === 0 && child.exitCode === null) await new Promise((done) => setTimeout(done, 20));
    // the first bytes of the answer are read before the signal
    await new Promise((done) => setTimeout(done, 300));
    child.kill("SIGINT");
    const [code] = await closed;
    assert.equal(code, 130, stderr);
    assert.doesNotMatch(stderr, /Interrupted|Incomplete|CANCELLED/);
  });
}
