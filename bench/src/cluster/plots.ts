// Plots of the simulation as SVG text. Colours suit light and dark pages; the background is the page's.

import type { PolicyFigures } from "./figures.ts";
import type { Scenario } from "./scenario.ts";

const WIDTH = 880;
/** Width of a letter in the legend, roughly */
const LETTER = 6.5;
/** Lines differ by the dash too, for readers who do not see the colours, and in print */
const LINES = ["", "7 3", "2 3", "10 3 2 3", "1 4"];
const STYLE = `<style>
  text { font: 12px system-ui, sans-serif; fill: #1f2328; }
  .title { font-size: 15px; font-weight: 600; }
  .small { font-size: 11px; fill: #59636e; }
  .grid { stroke: #818b98; stroke-opacity: 0.3; }
  .span { fill: #818b98; fill-opacity: 0.15; }
  .line { fill: none; stroke-width: 2; }
  .c0 { stroke: #0969da; } .c1 { stroke: #8250df; } .c2 { stroke: #bc4c00; } .c3 { stroke: #1a7f37; } .c4 { stroke: #cf222e; }
  .b0 { fill: #0969da; } .b1 { fill: #8250df; } .b2 { fill: #bc4c00; } .b3 { fill: #1a7f37; } .b4 { fill: #cf222e; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .small { fill: #9198a1; }
    .c0 { stroke: #4493f8; } .c1 { stroke: #ab7df8; } .c2 { stroke: #f0883e; } .c3 { stroke: #3fb950; } .c4 { stroke: #f85149; }
    .b0 { fill: #4493f8; } .b1 { fill: #ab7df8; } .b2 { fill: #f0883e; } .b3 { fill: #3fb950; } .b4 { fill: #f85149; }
  }
</style>`;

type Axis = { from: number; to: number; ticks: readonly number[]; isLog?: boolean; label: (tick: number) => string };

type Panel = { title: string; note: string; value: (figures: PolicyFigures) => number; label: (value: number) => string };

/** One panel of bars for each figure: the policies below each other */
export function comparisonPlot(policies: readonly PolicyFigures[], subtitle: string): string {
  const panels: readonly Panel[] = [
    {
      title: "Forks on a node with the snapshot",
      note: "more is better",
      value: ({ locality }) => locality * 100,
      label: (value) => `${value.toFixed(1)} %`,
    },
    { title: "Sent between nodes", note: "less is better", value: (one) => one.moved_gib, label: (value) => `${thousands(value)} GiB` },
    { title: "Wait for a fork, p99", note: "less is better", value: (one) => one.wait_ms.p99, label: duration },
    {
      title: "Fullest node against the mean",
      note: "less is better, 1 is even",
      value: (one) => one.load.max_to_mean,
      label: (value) => `${value.toFixed(2)} ×`,
    },
  ];
  const [row, top, left] = [22, 62, 150];
  const panelHeight = 38 + policies.length * row + 14;
  const half = WIDTH / 2;
  const height = top + 2 * panelHeight;
  const drawn = panels.flatMap(({ title, note, value, label }, at) => {
    const [x, y] = [(at % 2) * half, top + Math.floor(at / 2) * panelHeight];
    const largest = Math.max(...policies.map(value), Number.MIN_VALUE);
    const scale = (half - left - 100) / largest;
    return [
      `<text x="${x + 16}" y="${y + 14}" font-weight="600">${title} <tspan class="small">(${note})</tspan></text>`,
      ...policies.flatMap((one, policy) => {
        const barY = y + 26 + policy * row;
        const width = Math.max(1, value(one) * scale);
        return [
          `<text x="${x + left - 8}" y="${barY + 13}" text-anchor="end">${escape(one.policy)}</text>`,
          `<rect class="b${policy}" x="${x + left}" y="${barY}" width="${width.toFixed(1)}" height="16" rx="2"/>`,
          `<text x="${(x + left + width + 6).toFixed(1)}" y="${barY + 13}">${label(value(one))}</text>`,
        ];
      }),
    ];
  });
  return svg(height, "Placements compared", [...heading("Placements compared", subtitle), ...drawn]);
}

/** The 99th percentile of the wait over the time of the run */
export function waitPlot(policies: readonly PolicyFigures[], { warmUpSecs, secs, burstSecs }: Scenario, subtitle: string): string {
  const largest = Math.max(...policies.flatMap(({ curve }) => curve.map((point) => point.p99_wait_ms)));
  const decades = [10, 100, 1000, 10_000, 100_000, 1_000_000];
  const to = decades.find((decade) => decade >= largest) ?? largest;
  const end = warmUpSecs + secs;
  const x: Axis = { from: 0, to: end, ticks: steps(0, end, 20), label: (tick) => `${tick} s` };
  const y: Axis = { from: 10, to, ticks: decades.filter((tick) => tick <= to), isLog: true, label: duration };
  const burst = warmUpSecs + secs / 2;
  const spans = [
    { from: 0, to: warmUpSecs, label: "warm-up" },
    { from: burst - burstSecs / 2, to: burst + burstSecs / 2, label: "one new snapshot gets a tenth of the forks" },
  ];
  const lines = policies.map(({ policy, curve }) => ({
    label: policy,
    points: curve.map((point) => [point.secs, point.p99_wait_ms] as const),
  }));
  return linePlot("Wait for a fork over time, p99 of each 5 s", subtitle, { x, y, lines, spans });
}

/** The nodes by their load at the end */
export function loadPlot(policies: readonly PolicyFigures[], subtitle: string): string {
  const x: Axis = { from: 0, to: 100, ticks: steps(0, 100, 10), label: (tick) => `${tick} %` };
  const y: Axis = { from: 0, to: 1, ticks: [0, 0.2, 0.4, 0.6, 0.8, 1], label: (tick) => `${Math.round(tick * 100)} %` };
  const lines = policies.map(({ policy, loads }) => ({ label: policy, points: loads.map((load, percent) => [percent, load] as const) }));
  return linePlot("How full the nodes are at the end, from the emptiest to the fullest", subtitle, { x, y, lines, spans: [] });
}

type Lines = {
  x: Axis;
  y: Axis;
  lines: readonly { label: string; points: readonly (readonly [x: number, y: number])[] }[];
  spans: readonly { from: number; to: number; label: string }[];
};

function linePlot(title: string, subtitle: string, { x, y, lines, spans }: Lines): string {
  const [left, top, right, plotHeight] = [64, 62, WIDTH - 30, 260];
  const bottom = top + plotHeight;
  const atX = (value: number): number => left + ((value - x.from) / (x.to - x.from)) * (right - left);
  const share = (value: number): number =>
    y.isLog ? Math.log(Math.max(value, y.from) / y.from) / Math.log(y.to / y.from) : (value - y.from) / (y.to - y.from);
  const atY = (value: number): number => bottom - share(value) * plotHeight;
  let legendEnd: number = left;
  const legend = lines.map(({ label }, at) => {
    const legendX = legendEnd;
    legendEnd += 32 + LETTER * label.length + 20;
    return [
      `<line class="line c${at}" stroke-dasharray="${LINES[at]}" x1="${legendX}" x2="${legendX + 26}" y1="${bottom + 42}" y2="${bottom + 42}"/>`,
      `<text x="${legendX + 32}" y="${bottom + 46}">${escape(label)}</text>`,
    ].join("\n");
  });
  return svg(bottom + 60, title, [
    ...heading(title, subtitle),
    ...spans.flatMap(({ from, to, label }) => [
      `<rect class="span" x="${atX(from)}" y="${top}" width="${atX(to) - atX(from)}" height="${plotHeight}"/>`,
      `<text class="small" x="${(atX(from) + atX(to)) / 2}" y="${top + 14}" text-anchor="middle">${escape(label)}</text>`,
    ]),
    ...y.ticks.flatMap((tick) => [
      `<line class="grid" x1="${left}" x2="${right}" y1="${atY(tick).toFixed(1)}" y2="${atY(tick).toFixed(1)}"/>`,
      `<text class="small" x="${left - 8}" y="${(atY(tick) + 4).toFixed(1)}" text-anchor="end">${y.label(tick)}</text>`,
    ]),
    ...x.ticks.map(
      (tick) => `<text class="small" x="${atX(tick).toFixed(1)}" y="${bottom + 18}" text-anchor="middle">${x.label(tick)}</text>`,
    ),
    // forkd's own line is drawn last, above the others
    ...lines
      .map(({ points }, at) => {
        const drawn = points.map(([px, py]) => `${atX(px).toFixed(1)},${atY(py).toFixed(1)}`).join(" ");
        return `<polyline class="line c${at}" stroke-dasharray="${LINES[at]}" points="${drawn}"/>`;
      })
      .toReversed(),
    ...legend,
  ]);
}

function svg(height: number, label: string, parts: readonly string[]): string {
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="${escape(label)}">`,
    STYLE,
    ...parts,
    "</svg>",
    "",
  ].join("\n");
}

function heading(title: string, subtitle: string): string[] {
  return [`<text class="title" x="16" y="24">${escape(title)}</text>`, `<text class="small" x="16" y="44">${escape(subtitle)}</text>`];
}

function duration(ms: number): string {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
}

function thousands(value: number): string {
  return Math.round(value).toLocaleString("en-US");
}

function steps(from: number, to: number, by: number): number[] {
  return Array.from({ length: Math.floor((to - from) / by) + 1 }, (_, at) => from + at * by);
}

function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
