// Statistics of a distribution.

export type Percentiles = { p50: number; p90: number; p99: number };

export function percentiles(values: readonly number[]): Percentiles {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (part: number): number => round(sorted[Math.min(sorted.length - 1, Math.ceil(part * sorted.length) - 1)] ?? Number.NaN);
  return { p50: at(0.5), p90: at(0.9), p99: at(0.99) };
}

export function median(values: readonly number[]): number {
  return percentiles(values).p50;
}

export function round(value: number): number {
  return Math.round(value * 100) / 100;
}
