// What a command line becomes on the wire: method, path and body, exactly.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeDaemon } from "./fake-daemon.ts";
import { forkd } from "./helpers.ts";
import { ANSWERS, SB } from "./request-answers.ts";
import * as samples from "./samples.ts";

import type { Answer } from "./fake-daemon.ts";

type Case = {
  args: string[];
  requests: [line: string, body?: unknown][];
  answers?: Record<string, Answer>;
  stdin?: string;
  /** exit code, when it is not 0 */
  code?: number;
};

const MAX = 64 * 1024 * 1024;

const CASES: Case[] = [
  { args: ["ls"], requests: [["GET /v1/sandboxes"]] },
  { args: ["ls", "-a"], requests: [["GET /v1/sandboxes?state=running%2Cpaused%2Csuspended%2Cended%2Clost"]] },
  {
    args: ["ls", "--tag", "python", "--state", "paused", "--metadata", "a=1", "--metadata", "b=x=y"],
    requests: [["GET /v1/sandboxes?tag=python&state=paused&metadata=a%3D1&metadata=b%3Dx%3Dy"]],
  },
  { args: ["fork", "python"], requests: [["POST /v1/sandboxes", { snapshot_tag: "python", n: 1 }]] },
  {
    args: ["fork", "python", "--name", "one", "--env", "A=1", "--env", "B=", "--metadata", "k=v", "--ttl", "10m", "--idle-timeout", "90s"],
    requests: [
      [
        "POST /v1/sandboxes",
        { snapshot_tag: "python", n: 1, name: "one", env: { A: "1", B: "" }, metadata: { k: "v" }, ttl_secs: 600, idle_timeout_secs: 90 },
      ],
    ],
  },
  {
    args: [
      "spawn",
      "--tag",
      "python",
      "-n",
      "3",
      "--per-child-netns",
      "--memory-limit-mib",
      "512",
      "--prewarm",
      "--live-fork",
      "--hugepages",
    ],
    requests: [
      [
        "POST /v1/sandboxes",
        {
          snapshot_tag: "python",
          n: 3,
          memory_limit_mib: 512,
          per_child_netns: true,
          prewarm: true,
          live_fork: true,
          hugepages: true,
        },
      ],
    ],
  },
  {
    args: ["fork", "--tag", "python", "-n", "2", "--settle-secs", "0.1", "--keep-workdir"],
    requests: [["POST /v1/sandboxes", { snapshot_tag: "python", n: 2 }], ["DELETE /v1/sandboxes/sb-1"]],
  },
  {
    args: ["fork", "python", "-n", "2", "--per-item"],
    requests: [["POST /v1/sandboxes", { snapshot_tag: "python", n: 2, per_item: true }]],
    answers: { "POST /v1/sandboxes": { status: 207, json: { results: [{ sandbox: SB }] } } },
  },
  {
    args: ["fork", "python", "--cpu-limit", "0.5", "--cpu-weight", "50", "--pids-limit", "64", "--io-limit-mbps", "1.5"],
    requests: [
      ["POST /v1/sandboxes", { snapshot_tag: "python", n: 1, cpu_limit: 0.5, cpu_weight: 50, pids_limit: 64, io_limit_mbps: 1.5 }],
    ],
  },
  {
    args: ["fork", "python", "--share", "/srv/a:/a", "--share", "/srv/b:/b"],
    requests: [
      [
        "POST /v1/sandboxes",
        {
          snapshot_tag: "python",
          n: 1,
          shares: [
            { source: "/srv/a", target: "/a" },
            { source: "/srv/b", target: "/b" },
          ],
        },
      ],
    ],
  },
  {
    args: ["fork", "python", "--isolation", "any"],
    requests: [["POST /v1/sandboxes", { snapshot_tag: "python", n: 1, isolation: "any" }]],
  },
  { args: ["fork", "python", "--no-shares"], requests: [["POST /v1/sandboxes", { snapshot_tag: "python", n: 1, shares: [] }]] },
  { args: ["fork", "python", "--no-shares", "--share", "/srv/a:/a"], requests: [], code: 2 },
  {
    args: ["fork", "--from-sandbox", "sb-1", "-n", "2", "--tag", "kept", "--ttl", "1m", "--memory-limit-mib", "64"],
    requests: [["POST /v1/sandboxes/sb-1/fork", { n: 2, tag: "kept", ttl_secs: 60, memory_limit_mib: 64 }]],
    answers: { "POST /v1/sandboxes/sb-1/fork": { status: 201, json: { snapshot: samples.snapshot("kept"), sandboxes: [SB] } } },
  },
  { args: ["inspect", "sb-1"], requests: [["GET /v1/sandboxes/sb-1"]] },
  { args: ["tree"], requests: [["GET /v1/tree"]] },
  { args: ["branch", "sb-1"], requests: [["POST /v1/sandboxes/sb-1/branch", {}]] },
  {
    args: ["branch", "sb-1", "--tag", "b", "--no-wait", "--metadata", "k=v", "--mode", "live"],
    requests: [["POST /v1/sandboxes/sb-1/branch", { tag: "b", mode: "live", metadata: { k: "v" }, wait: false }]],
  },
  {
    args: ["exec", "sb-1", "--", "ls", "-l", "--json"],
    requests: [["POST /v1/sandboxes/sb-1/processes?encoding=base64", { args: ["ls", "-l", "--json"], stdin: false }]],
  },
  {
    args: ["exec", "sb-1", "--timeout-secs", "2.5", "--env", "A=b", "--cwd", "/tmp", "--user", "me", "--tag", "t", "-t", "--", "cat"],
    requests: [
      [
        "POST /v1/sandboxes/sb-1/processes?encoding=base64",
        {
          args: ["cat"],
          timeout_secs: 2.5,
          env: { A: "b" },
          cwd: "/tmp",
          user: "me",
          tag: "t",
          stdin: false,
          terminal: { rows: 24, cols: 80 },
        },
      ],
    ],
  },
  {
    args: ["exec", "-d", "-i", "--tag", "web", "sb-1", "--", "sleep", "9"],
    requests: [["POST /v1/sandboxes/sb-1/processes", { args: ["sleep", "9"], tag: "web", stdin: true }]],
  },
  {
    args: ["exec", "sb-1", "--json", "-i", "--timeout-secs", "2.5", "--", "cat"],
    stdin: "in\n",
    requests: [["POST /v1/sandboxes/sb-1/exec", { args: ["cat"], timeout_secs: 2.5, stdin: "in\n", max_output_bytes: MAX }]],
  },
  {
    args: ["exec", "sb-1", "--json", "--", "make"],
    requests: [["POST /v1/sandboxes/sb-1/exec", { args: ["make"], timeout_secs: 86_400, max_output_bytes: MAX }]],
  },
  { args: ["ps", "sb-1"], requests: [["GET /v1/sandboxes/sb-1/processes"]] },
  { args: ["attach", "sb-1", "web"], requests: [["GET /v1/sandboxes/sb-1/processes/web/output?encoding=base64"]] },
  {
    args: ["attach", "sb-1", "web", "--from", "12-34"],
    requests: [["GET /v1/sandboxes/sb-1/processes/web/output?stdout_from=12&stderr_from=34&encoding=base64"]],
  },
  {
    args: ["attach", "sb-1", "web", "--from", "now"],
    requests: [["GET /v1/sandboxes/sb-1/processes/web/output?stdout_from=now&stderr_from=now&encoding=base64"]],
  },
  {
    args: ["signal", "sb-1", "web"],
    requests: [["POST /v1/sandboxes/sb-1/processes/web/signal", { signal: "SIGTERM", scope: "group" }]],
  },
  {
    args: ["signal", "sb-1", "web", "hup", "--only"],
    requests: [["POST /v1/sandboxes/sb-1/processes/web/signal", { signal: "SIGHUP", scope: "process" }]],
  },
  {
    args: ["signal", "sb-1", "web", "2"],
    requests: [["POST /v1/sandboxes/sb-1/processes/web/signal", { signal: "SIGINT", scope: "group" }]],
  },
  { args: ["signal", "sb-1", "web", "SIGKILL"], requests: [["DELETE /v1/sandboxes/sb-1/processes/web"]] },
  {
    args: ["signal", "sb-1", "web", "9", "--only"],
    requests: [["POST /v1/sandboxes/sb-1/processes/web/signal", { signal: "SIGKILL", scope: "process" }]],
  },
  { args: ["eval", "sb-1", "--", "1 + 1"], requests: [["POST /v1/sandboxes/sb-1/eval", { code: "1 + 1", timeout_secs: 30 }]] },
  {
    args: ["eval", "sb-1", "--language", "node", "--timeout-secs", "5", "-"],
    stdin: "x = 1\n",
    requests: [["POST /v1/sandboxes/sb-1/eval", { code: "x = 1\n", language: "node", timeout_secs: 5 }]],
  },
  {
    args: ["eval", "sb-1", "--context", "bash-1", "--env", "A=b", "--", "ls"],
    requests: [["POST /v1/sandboxes/sb-1/eval", { code: "ls", context: "bash-1", env: { A: "b" }, timeout_secs: 30 }]],
  },
  { args: ["context", "ls", "sb-1"], requests: [["GET /v1/sandboxes/sb-1/contexts"]] },
  {
    args: ["context", "create", "sb-1", "--language", "bash", "--cwd", "/srv"],
    requests: [["POST /v1/sandboxes/sb-1/contexts", { language: "bash", cwd: "/srv" }]],
  },
  { args: ["context", "restart", "sb-1", "bash-1"], requests: [["POST /v1/sandboxes/sb-1/contexts/bash-1/restart"]] },
  { args: ["context", "interrupt", "sb-1", "bash-1"], requests: [["POST /v1/sandboxes/sb-1/contexts/bash-1/interrupt"]] },
  { args: ["context", "rm", "sb-1", "bash-1"], requests: [["DELETE /v1/sandboxes/sb-1/contexts/bash-1"]] },
  { args: ["ping", "sb-1"], requests: [["POST /v1/sandboxes/sb-1/ping"]] },
  { args: ["logs", "sb-1"], requests: [["GET /v1/sandboxes/sb-1/logs?source=console"]] },
  {
    args: ["logs", "sb-1", "--source", "vmm", "-f", "--tail", "5"],
    requests: [["GET /v1/sandboxes/sb-1/logs?source=vmm&follow=true&tail=5"]],
  },
  { args: ["stats"], requests: [["GET /v1/stats"]] },
  { args: ["suspend", "sb-1"], requests: [["POST /v1/sandboxes/sb-1/suspend"]] },
  { args: ["pause", "sb-1"], requests: [["POST /v1/sandboxes/sb-1/pause"]] },
  { args: ["resume", "sb-1"], requests: [["POST /v1/sandboxes/sb-1/resume"]] },
  { args: ["rename", "sb-1", "web"], requests: [["PATCH /v1/sandboxes/sb-1", { name: "web" }]] },
  { args: ["extend", "sb-1", "--rotate-access"], requests: [["PATCH /v1/sandboxes/sb-1", { rotate_access: true }]] },
  { args: ["extend", "sb-1", "--ttl", "2h"], requests: [["PATCH /v1/sandboxes/sb-1", { ttl_secs: 7200 }]] },
  {
    args: ["extend", "sb-1", "--ttl", "never", "--idle-timeout", "1d"],
    requests: [["PATCH /v1/sandboxes/sb-1", { ttl_secs: null, idle_timeout_secs: 86_400 }]],
  },
  { args: ["kill", "sb-1"], requests: [["DELETE /v1/sandboxes/sb-1"]] },
  { args: ["rm", "-f", "sb-1"], requests: [["DELETE /v1/sandboxes/sb-1"]] },
  { args: ["delete", "sb-1"], requests: [["DELETE /v1/sandboxes/sb-1"]] },
  { args: ["stop", "sb-1"], requests: [["POST /v1/sandboxes/sb-1/suspend"]] },
  { args: ["start", "sb-1"], requests: [["POST /v1/sandboxes/sb-1/resume"]] },
  { args: ["top"], requests: [["GET /v1/tree"], ["GET /v1/sandboxes"], ["GET /v1/stats"]] },
  { args: ["top", "sb-1"], requests: [["GET /v1/sandboxes/sb-1/processes"]] },
  { args: ["kill", "--all"], requests: [["DELETE /v1/sandboxes?all=true"]] },
  { args: ["kill", "--tag", "python"], requests: [["DELETE /v1/sandboxes?tag=python"]] },
  { args: ["snapshot", "ls"], requests: [["GET /v1/snapshots"]] },
  { args: ["images"], requests: [["GET /v1/snapshots"]] },
  { args: ["snapshot", "info", "t"], requests: [["GET /v1/snapshots/t"], ["GET /v1/snapshots/t/info"]] },
  { args: ["snapshot-info", "t"], requests: [["GET /v1/snapshots/t"], ["GET /v1/snapshots/t/info"]] },
  { args: ["snapshot", "create", "t"], requests: [["POST /v1/snapshots", { tag: "t" }]] },
  {
    args: [
      "snapshot",
      "create",
      "t",
      "--image",
      "i",
      "--memory-mib",
      "512",
      "--vcpus",
      "2",
      "--cpu",
      "baseline",
      "--hugepages",
      "--disk-mib",
      "1024",
      "-c",
      "import numpy",
      "--env",
      "A=1",
    ],
    requests: [
      [
        "POST /v1/snapshots",
        {
          tag: "t",
          image: "i",
          memory_mib: 512,
          vcpus: 2,
          cpu: "baseline",
          hugepages: true,
          disk_mib: 1024,
          warm_up: { exec: [], kernels: [{ language: "python", code: "import numpy" }] },
          env: { A: "1" },
        },
      ],
    ],
  },
  {
    args: [
      "snapshot",
      "create",
      "t",
      "--warm-node",
      "-",
      "--warm-exec",
      "echo 'a b'",
      "--warm-sh",
      "true && true",
      "--warm-timeout-secs",
      "9",
    ],
    stdin: "let x = 1\n",
    requests: [
      [
        "POST /v1/snapshots",
        {
          tag: "t",
          warm_up: {
            exec: [
              ["echo", "a b"],
              ["sh", "-c", "true && true"],
            ],
            kernels: [{ language: "node", code: "let x = 1\n" }],
            timeout_secs: 9,
          },
        },
      ],
    ],
  },
  { args: ["snapshot", "create", "t", "--warm-nothing"], requests: [["POST /v1/snapshots", { tag: "t", warm_up: { kernels: [] } }]] },
  {
    args: ["snapshot", "create", "t", "--warm-sh", "true", "--warm-nothing"],
    requests: [["POST /v1/snapshots", { tag: "t", warm_up: { exec: [["sh", "-c", "true"]], kernels: [] } }]],
  },
  { args: ["snapshot", "rm", "t"], requests: [["DELETE /v1/snapshots/t"]] },
  { args: ["snapshot", "rm", "t", "--cascade"], requests: [["DELETE /v1/snapshots/t?cascade=true"]] },
  {
    args: ["rmi", "t", "u", "--force"],
    requests: [["DELETE /v1/snapshots/t?force=true"], ["DELETE /v1/snapshots/u?force=true"]],
  },
  { args: ["snapshot", "compact", "t", "to"], requests: [["POST /v1/snapshots/t/compact", { to: "to" }]] },
  { args: ["snapshot", "compact", "--from", "t", "--to", "to"], requests: [["POST /v1/snapshots/t/compact", { to: "to" }]] },
  { args: ["snapshot-compact", "--from", "t", "--to", "to"], requests: [["POST /v1/snapshots/t/compact", { to: "to" }]] },
  { args: ["snapshot", "rename", "t", "new"], requests: [["PATCH /v1/snapshots/t", { tag: "new" }]] },
  { args: ["snapshot", "pool", "t", "0"], requests: [["PATCH /v1/snapshots/t", { pool: 0 }]] },
  {
    args: [
      "snapshot",
      "--tag",
      "t",
      "--kernel",
      "k",
      "--rootfs",
      "r",
      "--rw",
      "--tap",
      "x",
      "--boot-wait-secs",
      "3",
      "--mem-size-mib",
      "300",
    ],
    requests: [["POST /v1/snapshots", { tag: "t", memory_mib: 300, kernel: "k", rootfs: "r" }]],
  },
  {
    args: ["snapshot", "--tag", "b", "--from-sandbox", "sb-1", "--live", "--no-wait"],
    requests: [["POST /v1/sandboxes/sb-1/branch", { tag: "b", mode: "live", wait: false }]],
  },
  {
    args: ["snapshot", "--tag", "b", "--from-sandbox", "sb-1", "--diff"],
    requests: [["POST /v1/sandboxes/sb-1/branch", { tag: "b", mode: "diff" }]],
  },
  {
    args: ["from-image", "debian:13", "--tag", "t", "--mem-size-mib", "300", "--size-mib", "9"],
    requests: [["GET /v1/images/debian-13"], ["POST /v1/snapshots", { tag: "t", image: "debian-13", memory_mib: 300 }]],
  },
  {
    args: ["workspace", "create", "w", "--snapshot", "python", "--per-child-netns", "--cpu-limit", "2"],
    requests: [["POST /v1/workspaces", { name: "w", snapshot_tag: "python", per_child_netns: true, cpu_limit: 2 }]],
  },
  { args: ["ports", "sb-1"], requests: [["GET /v1/sandboxes/sb-1/ports"]] },
  { args: ["preview", "sb-1", "8000"], requests: [["POST /v1/sandboxes/sb-1/ports/8000/preview", { expires_in_secs: 3600 }]] },
  {
    args: ["preview", "sb-1", "8000", "--expires", "2d"],
    requests: [["POST /v1/sandboxes/sb-1/ports/8000/preview", { expires_in_secs: 172_800 }]],
  },
  { args: ["preview", "sb-1", "0"], requests: [], code: 2 },
  { args: ["port", "sb-1"], requests: [], code: 2 },
  { args: ["port", "sb-1", "8000:x"], requests: [], code: 2 },
  { args: ["port", "sb-1", "70000:80"], requests: [], code: 2 },
  { args: ["workspace", "suspend", "w", "--diff"], requests: [["POST /v1/workspaces/w/suspend", { diff: true }]] },
  { args: ["workspace", "resume", "w"], requests: [["POST /v1/workspaces/w/resume"]] },
  { args: ["workspace", "list"], requests: [["GET /v1/workspaces"]] },
  { args: ["workspace", "delete", "w"], requests: [["DELETE /v1/workspaces/w"]] },
  {
    args: ["token", "create", "ci", "--scope", "read", "--max-sandboxes", "5"],
    requests: [["POST /v1/tokens", { name: "ci", scope: "read", max_sandboxes: 5 }]],
  },
  { args: ["token", "create", "ci"], requests: [["POST /v1/tokens", { name: "ci", scope: "exec" }]] },
  { args: ["token", "ls"], requests: [["GET /v1/tokens"]] },
  { args: ["token", "rotate", "ci"], requests: [["POST /v1/tokens/ci/rotate"]] },
  { args: ["token", "rm", "ci"], requests: [["DELETE /v1/tokens/ci"]] },
  { args: ["gc", "--dry-run"], requests: [["POST /v1/gc", { dry_run: true }]] },
  { args: ["cleanup", "-y"], requests: [["POST /v1/gc", { dry_run: false }]] },
  { args: ["status"], requests: [["GET /v1/status"]] },
  { args: ["config"], requests: [["GET /v1/config"]] },
  { args: ["up"], requests: [["GET /v1/status"]] },
];

for (const { args, requests, answers, stdin, code } of CASES) {
  test(`forkd ${args.join(" ")}`, async () => {
    await using daemon = await fakeDaemon({ ...ANSWERS, ...answers });
    const result = await forkd(args, daemon.env, stdin);
    assert.equal(result.code, code ?? 0, result.stderr);
    assert.deepEqual(
      daemon.asked.map((asked) => [`${asked.method} ${asked.path}`, ...(asked.body === undefined ? [] : [asked.body])]),
      requests.map(([line, body]) => [line, ...(body === undefined ? [] : [body])]),
    );
  });
}
