// Where the warden comes from: one that lives as long as this process, or one that outlives it and is started again when it died.

import type { Warden } from "./warden.ts";

export type WardenSource = () => Promise<Warden>;

/** Connects again after a loss; `onLost` hears why, once for each */
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
