// Fuzz target: messages of a VMM on its control channel. A compromised VMM may send anything.

import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { networkPolicy } from "@forkd/runtime/egress/policy";
import { Qmp } from "@forkd/runtime/vmm/qemu/qmp";
import { mutateJson } from "../mutate-json.ts";
import { declared, piecesOf, type Target } from "../target.ts";

const CODES = ["VMM_EXITED", "VMM_FAILED", "NO_SPACE"] as const;
const GREETING = '{"QMP":{"version":{},"capabilities":[]}}\n';
/** Lines that are sent one by one, each after the client had time for its next request */
const SLOW_LINES = 3;
/** Timeout of requests, which end with the channel at the latest */
const WITHIN_MS = 600_000;
let path = "";
let server: Server;
let accepted: PromiseWithResolvers<Socket>;

export const target: Target = {
  sources: ["packages/runtime/src/vmm/qemu/qmp.ts"],
  tokens: [
    GREETING,
    '{"return":{},"id":1}\n',
    '{"return":{},"id":2}\n',
    '{"error":{"desc":"No space left on device"},"id":2}\n',
    '{"event":"STOP","data":{}}\n',
    "\n",
    "{",
    "}",
    "[",
    '"',
    '"id":',
    '"event":',
    '"QMP":',
    "null",
    "1e999",
    "ÿ",
    "é",
    "\\ud800",
    "[".repeat(5e3),
  ],
  maxBytes: 20_000,
  mutate: (input, random) => {
    const lines = input.toString("utf8").split("\n");
    const at = random.below(lines.length);
    lines[at] = mutateJson(lines[at] ?? "", random);
    return Buffer.from(lines.join("\n"));
  },
  open: async () => {
    const folder = await mkdtemp(join(tmpdir(), "forkd-fuzz-"));
    path = join(folder, "qmp");
    server = createServer((socket) => accepted.resolve(socket.on("error", () => undefined)));
    await new Promise<void>((resolve) => server.listen(path, resolve));
    return {
      [Symbol.asyncDispose]: async () => {
        server.close();
        await rm(folder, { recursive: true });
      },
    };
  },
  run: async (input) => {
    const whole = await talk(input, (rest) => [rest]);
    const pieces = await talk(input, (rest) =>
      piecesOf(rest)
        .slice(0, 100)
        .concat(rest.subarray(sum(piecesOf(rest).slice(0, 100)))),
    );
    assert.deepEqual(pieces.events, whole.events, "the same bytes in pieces are other events");
    return `${whole.outcomes.join(" | ")} ${whole.events.length > 0}`;
  },
};

const sum = (pieces: readonly Buffer[]): number => pieces.reduce((total, { length }) => total + length, 0);

async function talk(input: Buffer, cut: (rest: Buffer) => Buffer[]): Promise<{ outcomes: string[]; events: string[] }> {
  accepted = Promise.withResolvers();
  const events: string[] = [];
  const qmp = new Qmp(path, { withinMs: WITHIN_MS, onEvent: (name) => events.push(name) });
  const asked = [qmp.ready(), qmp.execute("query-a", networkPolicy), qmp.execute("query-b", networkPolicy.partial())];
  const outcomes = asked.map(async (one) =>
    one.then(
      () => "answered",
      (error: unknown) => declared(error, CODES),
    ),
  );
  const socket = await accepted.promise;
  // Read the socket: otherwise the server does not see the client's close, and the connection stays open
  socket.resume();
  let from = 0;
  for (let line = 0; line < SLOW_LINES && from < input.length; line++) {
    const end = input.indexOf(10, from);
    const to = end < 0 ? input.length : end + 1;
    socket.write(input.subarray(from, to));
    from = to;
    await turn();
    await turn();
  }
  for (const piece of cut(input.subarray(from))) {
    if (socket.destroyed) break;
    socket.write(piece);
    await turn();
  }
  socket.end();
  await qmp.closed;
  const settled = await Promise.all(outcomes);
  qmp.close();
  socket.destroy();
  return { outcomes: settled, events };
}
