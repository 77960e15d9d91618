// Two connections joined: what one side sends the other gets, and the end of each direction by itself.

import { once } from "node:events";
import type { Duplex } from "node:stream";

/** How long both sides have to end when the daemon stops */
const END_MS = 1000;

/** Resolves when both are closed. `cut` ends it at once, `stopping` in order */
export async function relay(a: Duplex, b: Duplex, signals: { cut: AbortSignal; stopping: AbortSignal }): Promise<void> {
  const closed = Promise.all([a, b].map(async (side) => side.destroyed || (await once(side, "close").catch(() => undefined))));
  const destroy = (): void => {
    a.destroy();
    b.destroy();
  };
  let timer: NodeJS.Timeout | undefined;
  const end = (): void => {
    a.end();
    b.end();
    timer = setTimeout(destroy, END_MS);
  };
  for (const [from, to] of [
    [a, b],
    [b, a],
  ] as const) {
    from.on("error", destroy);
    from.once("close", () => {
      if (!from.readableEnded) to.destroy();
    });
    from.pipe(to);
  }
  const { cut, stopping } = signals;
  cut.addEventListener("abort", destroy);
  stopping.addEventListener("abort", end);
  if (cut.aborted) destroy();
  else if (stopping.aborted) end();
  await closed;
  clearTimeout(timer);
  cut.removeEventListener("abort", destroy);
  stopping.removeEventListener("abort", end);
}
