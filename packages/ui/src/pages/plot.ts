// One line over time, drawn by uPlot.

import uPlot from "uplot";
import css from "uplot/dist/uPlot.min.css";
import { addStyle } from "../library-style.ts";

type Data = [number[], number[]];
type Drawn = { setData: (data: Data) => void; close: () => void };

export function draw(box: HTMLElement, opts: { unit: string; color: string; data: Data }): Drawn {
  addStyle(css);
  const style = getComputedStyle(document.documentElement);
  const line = resolved(opts.color);
  const axis = {
    stroke: resolved("--dim"),
    grid: { stroke: resolved("--line"), width: 1 },
    ticks: { show: false },
    font: `11px ${style.fontFamily}`,
  };
  const plot = new uPlot(
    {
      width: box.clientWidth,
      height: box.clientHeight,
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false } },
      scales: { y: { range: (_plot, _min, max) => [0, Math.max(1, max * 1.15)] } },
      axes: [axis, { ...axis, size: 68, values: (_plot, splits) => splits.map((split) => `${round(split)} ${opts.unit}`) }],
      series: [{}, { stroke: line, width: 2, fill: `color-mix(in srgb, ${line} 16%, transparent)`, points: { show: false } }],
    },
    opts.data,
    box,
  );
  const observer = new ResizeObserver(() => plot.setSize({ width: box.clientWidth, height: box.clientHeight }));
  observer.observe(box);
  return {
    setData: (data) => plot.setData(data),
    close: () => {
      observer.disconnect();
      plot.destroy();
    },
  };
}

/** A canvas needs the color itself: a variable may hold a pair of light and dark */
function resolved(variable: string): string {
  const probe = document.createElement("i");
  probe.style.color = `var(${variable})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

function round(value: number): string {
  return value >= 10 || value === 0 ? String(Math.round(value)) : value.toFixed(1);
}
