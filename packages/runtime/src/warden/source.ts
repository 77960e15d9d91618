// Sources of a warden: one that ends with this process, or one that outlives it and is restarted after its death.

import type { Warden } from "./warden.ts";

export type WardenSource = () => Promise<Warden>;

/** Reconnects after a loss; `onLost` is called once per loss, with the reason */
export function durableWarden(connect: () => Promise<Warden>, onLost: (why: string) => void): WardenSource {
  let current: Promise<Warden> | undefined;
  return async () => {
    current ??= connect().then(
      (warden) => {
        void warden.lost.then((why) => {
          current = undefined;
          onLost(why);
        });
        return warden;
      },
      (error: unknown) => {
        current = undefined;
        throw error;
      },
    );
    return current;
  };
}
