// Bidirectional relay between two connections; each direction ends independently.

import { once } from "node:events";
import { Socket } from "node:net";
import { TLSSocket } from "node:tls";
import type { Duplex } from "node:stream";

/** How long both sides may take to end when the daemon stops */
const END_MS = 1000;

/** Resolves when both are closed. `cut` resets immediately, `stopping` ends cleanly */
export async function relay(a: Duplex, b: Duplex, signals: { cut: AbortSignal; stopping: AbortSignal }): Promise<void> {
  const { cut, stopping } = signals;
  const closed = Promise.all([a, b].map(async (side) => side.destroyed || once(side, "close").catch(() => undefined)));
  const breakOff = (): void => {
    reset(a);
    reset(b);
  };
  let timer: NodeJS.Timeout | undefined;
  const end = (): void => {
    a.end();
    b.end();
    timer = setTimeout(breakOff, END_MS);
  };
  join(a, b, breakOff);
  join(b, a, breakOff);
  cut.addEventListener("abort", breakOff);
  stopping.addEventListener("abort", end);
  // a side that was destroyed before the listeners were added emits no event
  if (cut.aborted || a.destroyed || b.destroyed) breakOff();
  else if (stopping.aborted) end();
  await closed;
  clearTimeout(timer);
  cut.removeEventListener("abort", breakOff);
  stopping.removeEventListener("abort", end);
}

function join(from: Duplex, to: Duplex, breakOff: () => void): void {
  from.on("error", breakOff);
  from.once("close", () => {
    if (!from.readableEnded) breakOff();
  });
  from.pipe(to);
}

/** Resets a TCP connection, so that a truncated stream does not look complete */
function reset(side: Duplex): void {
  if (side instanceof Socket && !(side instanceof TLSSocket) && side.remoteAddress !== undefined && !side.destroyed) side.resetAndDestroy();
  else side.destroy();
}
