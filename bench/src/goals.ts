// A goal for a figure, and whether it was reached.

export type Goal = { what: string; value: number; unit: string; atMost?: number; atLeast?: number; reached: boolean };

export function atMost(what: string, value: number, limit: number, unit: string): Goal {
  return { what, value, unit, atMost: limit, reached: value <= limit };
}

export function atLeast(what: string, value: number, limit: number, unit: string): Goal {
  return { what, value, unit, atLeast: limit, reached: value >= limit };
}
