// Answers of a daemon to any request of the command line.

import * as samples from "./samples.ts";

import type { Answer } from "./fake-daemon.ts";

export const SB = samples.sandbox("sb-1");
const SNAP = samples.snapshot("t");
const EXEC = { stdout: "", stderr: "", exit_code: 0, signal: null, timed_out: false, truncated: false };
const RAN = { result: "2", error: null, error_type: null, traceback: null, exit_code: 0, stdout: "", stderr: "", truncated: false };
const EVAL = { ...RAN, results: [], execution_count: 1 };
const CONTEXT = { id: "bash-1", language: "bash", cwd: "/", state: "running" };

/** All routes that a case may use, with a valid answer */
export const ANSWERS: Record<string, Answer> = {
  "GET /v1/sandboxes": { json: [SB] },
  "POST /v1/sandboxes": { status: 201, json: [SB] },
  "DELETE /v1/sandboxes": { json: ["sb-1", "sb-2"] },
  "GET /v1/sandboxes/sb-1": { json: SB },
  "PATCH /v1/sandboxes/sb-1": { json: SB },
  "DELETE /v1/sandboxes/sb-1": {},
  "DELETE /v1/sandboxes/sb-2": {},
  "POST /v1/sandboxes/sb-1/ping": { json: { pong: true, ms: 1.5, kernels: ["python"] } },
  "POST /v1/sandboxes/sb-1/exec": { json: EXEC },
  "POST /v1/sandboxes/sb-1/processes": ({ headers }, response) => {
    if (headers.accept === "text/event-stream") response.end(samples.processEvents({ exit: {} }));
    else response.writeHead(201).end(JSON.stringify(samples.processInfo(7)));
  },
  "GET /v1/sandboxes/sb-1/processes": { json: [samples.processInfo(7)] },
  "GET /v1/sandboxes/sb-1/processes/web/output": (_asked, response) => response.end(samples.processEvents({ exit: {} })),
  "POST /v1/sandboxes/sb-1/processes/web/signal": {},
  "DELETE /v1/sandboxes/sb-1/processes/web": {},
  "POST /v1/sandboxes/sb-1/eval": { json: EVAL },
  "GET /v1/sandboxes/sb-1/contexts": { json: [CONTEXT] },
  "POST /v1/sandboxes/sb-1/contexts": { status: 201, json: CONTEXT },
  "DELETE /v1/sandboxes/sb-1/contexts/bash-1": {},
  "POST /v1/sandboxes/sb-1/contexts/bash-1/restart": { json: CONTEXT },
  "POST /v1/sandboxes/sb-1/contexts/bash-1/interrupt": {},
  "POST /v1/sandboxes/sb-1/branch": {
    status: 201,
    json: samples.snapshot("b", { branched_from: "sb-1", pause_ms: 5, pause_us: 4200, delta_bytes: 4096 }),
  },
  "POST /v1/sandboxes/sb-1/pause": { json: SB },
  "POST /v1/sandboxes/sb-1/suspend": { json: SB },
  "POST /v1/sandboxes/sb-1/resume": { json: SB },
  "GET /v1/sandboxes/sb-1/logs": (_asked, response) => response.end("hello\n"),
  "GET /v1/sandboxes/sb-1/ports": { json: [] },
  "POST /v1/sandboxes/sb-1/ports/8000/preview": { status: 201, json: samples.preview() },
  "GET /v1/stats": { json: [] },
  "GET /v1/tree": { json: { roots: [] } },
  "GET /v1/snapshots": { json: [SNAP] },
  "POST /v1/snapshots": { status: 201, json: SNAP },
  "GET /v1/snapshots/t": { json: SNAP },
  "GET /v1/snapshots/t/info": { json: samples.details("t") },
  "PATCH /v1/snapshots/t": { json: SNAP },
  "DELETE /v1/snapshots/t": {},
  "DELETE /v1/snapshots/u": {},
  "POST /v1/snapshots/t/compact": { json: SNAP },
  "GET /v1/images/debian-13": { json: {} },
  "GET /v1/workspaces": { json: [] },
  "POST /v1/workspaces": { status: 201, json: samples.workspace("w") },
  "POST /v1/workspaces/w/suspend": { json: samples.workspace("w") },
  "POST /v1/workspaces/w/resume": { json: samples.workspace("w") },
  "DELETE /v1/workspaces/w": {},
  "GET /v1/tokens": { json: [] },
  "POST /v1/tokens": { status: 201, json: { ...samples.token("ci"), token: "secret-token-value" } },
  "POST /v1/tokens/ci/rotate": { json: { ...samples.token("ci"), token: "secret-token-value" } },
  "DELETE /v1/tokens/ci": {},
  "POST /v1/gc": { json: { removed: [], bytes: 0, dry_run: false } },
  "GET /v1/status": { json: samples.status() },
  "GET /v1/config": { json: { bind: { value: null, source: "option" } } },
};
