// Bar charts as SVG text.

export type Bar = { label: string; value: number; note: string; highlight?: boolean };

const WIDTH = 760;
const LABEL_WIDTH = 230;
const NOTE_WIDTH = 130;
const ROW = 30;
const TOP = 64;

/** Horizontal bars, one scale */
export function barChart(title: string, subtitle: string, bars: readonly Bar[]): string {
  const largest = Math.max(...bars.map((bar) => bar.value), Number.MIN_VALUE);
  const height = TOP + bars.length * ROW + 16;
  const rows = bars.map((bar, i) => {
    const y = TOP + i * ROW;
    const width = Math.max(1, (bar.value / largest) * (WIDTH - LABEL_WIDTH - NOTE_WIDTH));
    return [
      `<text x="${LABEL_WIDTH - 10}" y="${y + 15}" text-anchor="end">${escape(bar.label)}</text>`,
      `<rect x="${LABEL_WIDTH}" y="${y}" width="${width.toFixed(1)}" height="20" rx="3" fill="${bar.highlight ? "#2563eb" : "#94a3b8"}"/>`,
      `<text x="${(LABEL_WIDTH + width + 8).toFixed(1)}" y="${y + 15}" fill="#475569">${escape(bar.note)}</text>`,
    ].join("\n");
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="system-ui, sans-serif" font-size="13" fill="#0f172a">`,
    `<rect width="${WIDTH}" height="${height}" fill="#ffffff"/>`,
    `<text x="16" y="26" font-size="17" font-weight="600">${escape(title)}</text>`,
    `<text x="16" y="46" font-size="11" fill="#475569">${escape(subtitle)}</text>`,
    ...rows,
    "</svg>",
    "",
  ].join("\n");
}

function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
