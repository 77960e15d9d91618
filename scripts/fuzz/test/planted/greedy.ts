// A parser that hangs, waits or leaks memory on some inputs.

import type { Target } from "../../target.ts";

const hoard: unknown[] = [];

export const target: Target = {
  sources: [],
  tokens: [],
  maxBytes: 8,
  run: (input) => {
    switch (input.toString()) {
      case "hangs":
        for (;;);
      case "is slow":
        spin(400);
        break;
      case "takes":
        hoard.push(Buffer.alloc(200 * 1024 * 1024));
        break;
      case "hoards":
        for (let last: unknown = null; ; last = { last }) hoard[0] = last;
      case "rejects":
        void Promise.reject(new Error("rejected elsewhere"));
        spin(1);
    }
    return "";
  },
};

/** Uses this much CPU time */
function spin(ms: number): void {
  for (const from = process.threadCpuUsage(); process.threadCpuUsage(from).user < ms * 1000;);
}
