// Seeded random numbers and distributions: the same seed makes the same simulation.

import type { Random } from "@forkd/gateway/placement/facts";

/** Mulberry32: 32 bits of state are enough here, and it is fast */
export function seeded(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export function exponential(random: Random, mean: number): number {
  return -mean * Math.log(1 - random());
}

export function logNormal(random: Random, median: number, sigma: number): number {
  const normal = Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  return median * Math.exp(sigma * normal);
}

/** Draws ranks from 0 to n - 1; rank k is drawn in proportion to 1 / (k + 1)^s */
export function zipf(n: number, s: number): (random: Random) => number {
  const upTo = new Float64Array(n);
  let sum = 0;
  for (let rank = 0; rank < n; rank++) upTo[rank] = sum += (rank + 1) ** -s;
  return (random) => {
    const drawn = random() * sum;
    let [low, high] = [0, n - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((upTo[middle] ?? 0) > drawn) high = middle;
      else low = middle + 1;
    }
    return low;
  };
}

export function pick<T>(random: Random, members: readonly T[]): T | undefined {
  return members[Math.floor(random() * members.length)];
}

/** One of the values, by their shares */
export function weighted<T>(random: Random, shares: readonly (readonly [share: number, value: T])[]): T | undefined {
  let drawn = random() * shares.reduce((sum, [share]) => sum + share, 0);
  return shares.find(([share]) => (drawn -= share) < 0)?.[1] ?? shares.at(-1)?.[1];
}
