// The rails of one row: lines of its ancestors, the curve from its parent, and its dot.

import type { JSX } from "preact";
import type { Row } from "./rows.ts";

const LANE = 16;
/** Rails beyond this column are drawn on it: a deep tree keeps room for the names */
const MAX_LANES = 14;
const COLORS = 8;

export function Rails({ row, height }: { row: Row; height: number }): JSX.Element {
  const middle = height / 2;
  const own = x(row.lane);
  const isSandbox = row.entry.kind === "sandbox";
  const state = row.entry.kind === "sandbox" ? row.entry.sandbox.state : row.entry.node.status;
  return (
    <svg class="rails" width={x(row.lane) + LANE / 2 + 2} height={height} aria-hidden="true">
      {row.through.map((lane) => (
        <path key={lane} class={color(lane)} d={`M${x(lane)} 0V${height}`} />
      ))}
      {row.from !== null && <path class={color(row.lane)} d={joint(x(row.from), own, middle)} />}
      {row.continues && <path class={color(row.lane)} d={`M${own} ${middle}V${height}`} />}
      {isSandbox ? (
        <circle class={`dot ${color(row.lane)} is-${state}`} cx={own} cy={middle} r={4.5} />
      ) : (
        <rect class={`dot is-snapshot ${color(row.lane)} is-${state}`} x={own - 4.5} y={middle - 4.5} width={9} height={9} rx={2} />
      )}
    </svg>
  );
}

function joint(from: number, to: number, middle: number): string {
  if (from === to) return `M${to} 0V${middle}`;
  return `M${from} 0C${from} ${middle} ${from} ${middle} ${to} ${middle}`;
}

function x(lane: number): number {
  return Math.min(lane, MAX_LANES) * LANE + LANE / 2 + 2;
}

function color(lane: number): string {
  return `rail-${lane % COLORS}`;
}
