// Draws the tree of a demo run as SVG, from the output of `./forkd demo --json`.

type Machine = { id: string; value: unknown };
type Demo = {
  accelerator: string;
  parent: { boot_ms: number; warm_up_ms: number; memory_mib: number };
  children: Machine[];
  children_ms: number;
  branch: { source: string; pause_ms: number; delta_bytes: number };
  grandchildren: Machine[];
};
type Box = { x: number; y: number; width: number; lines: string[]; kind: "snapshot" | "machine" };

const ROW = 32;
const TOP = 48;
const STYLE = `
  text { font: 12px ui-monospace, monospace; fill: #1f2328; }
  .title { font-weight: bold; }
  .machine { fill: #ddf4ff; stroke: #0969da; }
  .snapshot { fill: #fff8c5; stroke: #9a6700; }
  .edge { fill: none; stroke: #818b98; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .machine { fill: #0c2d6b; stroke: #4493f8; }
    .snapshot { fill: #3b2300; stroke: #d29922; }
  }`;

export function drawTree(json: string): string {
  const { accelerator, parent, children, children_ms, branch, grandchildren } = JSON.parse(json) as Demo;
  const middle = TOP + ((children.length - 1) * ROW) / 2;
  const root: Box = {
    x: 10,
    y: middle,
    width: 190,
    kind: "snapshot",
    lines: [
      "frozen parent",
      `${parent.memory_mib} MiB, booted in ${seconds(parent.boot_ms)}`,
      `numpy loaded in ${seconds(parent.warm_up_ms)}`,
    ],
  };
  const machines = children.map<Box>(({ value }, at) => ({
    x: 270,
    y: TOP + at * ROW,
    width: 130,
    kind: "machine",
    lines: [`answered ${String(value)}`],
  }));
  const source = machines[children.findIndex(({ id }) => id === branch.source)] ?? machines[0]!;
  const tip: Box = {
    x: 470,
    y: source.y + ROW,
    width: 200,
    kind: "snapshot",
    lines: [
      "branch of a running child",
      `child paused for ${branch.pause_ms} ms`,
      `${(branch.delta_bytes / 2 ** 20).toFixed(1)} MiB stored`,
    ],
  };
  const tips = grandchildren.map<Box>(({ value }, at) => ({
    x: 740,
    y: tip.y + (at - (grandchildren.length - 1) / 2) * ROW,
    width: 130,
    kind: "machine",
    lines: [String(Array.isArray(value) ? value.at(-1) : value)],
  }));
  const edges = [
    ...machines.map((child) => [root, child] as const),
    [source, tip] as const,
    ...tips.map((grandchild) => [tip, grandchild] as const),
  ];
  const height = TOP + children.length * ROW + 16;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 ${height}" role="img" aria-label="A frozen parent, its children, and a branch of one of them">`,
    `<style>${STYLE}\n</style>`,
    `<text class="title" x="10" y="20">forkd demo, one run (${accelerator === "kvm" ? "KVM" : "no KVM"}):</text>`,
    `<text x="270" y="20">${children.length} children, all answered after ${seconds(children_ms)}</text>`,
    ...edges.map(([from, to]) => edge(from, to)),
    ...[root, ...machines, tip, ...tips].map(box),
    "</svg>\n",
  ].join("\n");
}

function box({ x, y, width, lines, kind }: Box): string {
  const height = 12 + lines.length * 15;
  const first = y - height / 2 + 18;
  const rows = lines.map((line, at) => `<text x="${x + 10}" y="${first + at * 15}">${escape(line)}</text>`);
  return [`<rect class="${kind}" x="${x}" y="${y - height / 2}" width="${width}" height="${height}" rx="6"/>`, ...rows].join("\n");
}

function edge(from: Box, to: Box): string {
  const [start, end] = [from.x + from.width, to.x];
  const bend = (start + end) / 2;
  return `<path class="edge" d="M${start} ${from.y} C${bend} ${from.y} ${bend} ${to.y} ${end} ${to.y}"/>`;
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}

function escape(line: string): string {
  return line.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}
