// What a build tells while it works, and at its end.

import { printJson, printLine, printNote, writeGuestText } from "../output.ts";
import { working } from "../progress.ts";

import type { Controller } from "forkd";
import type { Cli } from "../cli.ts";
import type { Built, Work } from "./build.ts";

const LAST_LINES = 40;

type Timed = { title: string; ms: number; cached: boolean };

export function buildReport(
  cli: Cli,
  forkd: Controller,
  opts: { quiet?: boolean | undefined },
): { work: Work; print: (built: Built) => void } {
  const steps: Timed[] = [];
  const began = performance.now();
  const isSilent = cli.json || opts.quiet === true;
  const note = (step: Timed): void => {
    steps.push(step);
    if (!isSilent) printNote(`${step.title}: ${step.cached ? "done before" : seconds(step.ms)}`);
  };
  const work: Work = {
    cli,
    forkd,
    during: async (title, part) => {
      const from = performance.now();
      const result = await working(title, async (onProgress) => part(({ step }) => onProgress({ step: `${title}: ${step}` })));
      note({ title, ms: Math.round(performance.now() - from), cached: false });
      return result;
    },
    cached: (title) => note({ title, ms: 0, cached: true }),
    output: async (text) => {
      const lines = text.trimEnd().split("\n");
      const cut = lines.length > LAST_LINES ? [`(the last ${LAST_LINES} of ${lines.length} lines)`] : [];
      if (text.trim() !== "") await writeGuestText(`${[...cut, ...lines.slice(-LAST_LINES)].join("\n")}\n`, "stderr");
    },
  };
  const print = ({ snapshot, unchanged, tests }: Built): void => {
    const ms = Math.round(performance.now() - began);
    if (cli.json) printJson({ tag: snapshot.tag, unchanged, ms, steps, tests, snapshot });
    else if (opts.quiet) printLine(snapshot.tag);
    else {
      const tested = tests.length === 0 ? "" : ` ${tests.length} tests passed.`;
      printLine(`Snapshot ${snapshot.tag}: ${unchanged ? "nothing changed" : `ready after ${seconds(ms)}`}.${tested}`);
    }
  };
  return { work, print };
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}
