// Two alternatives, measured side by side.

const WARM_UP_ROUNDS = 5;

/** Alternates between both, with the order changed each time, so that other load of the machine affects both */
export async function inTurns<K extends string, T>(
  sides: Record<K, () => Promise<T>>,
  opts: { rounds: number; warmUp?: number; signal: AbortSignal },
): Promise<Record<K, T[]>> {
  const names = Object.keys(sides) as K[];
  const results = Object.fromEntries(names.map((name): [K, T[]] => [name, []])) as Record<K, T[]>;
  for (let i = -(opts.warmUp ?? WARM_UP_ROUNDS); i < opts.rounds; i++) {
    for (const name of i % 2 === 0 ? names : names.toReversed()) {
      opts.signal.throwIfAborted();
      const result = await sides[name]();
      if (i >= 0) results[name].push(result);
    }
  }
  return results;
}
