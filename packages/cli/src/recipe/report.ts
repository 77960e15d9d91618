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
): { work: Work; summary: (built: Built) => object; print: (built: Built) => void } {
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
  const elapsed = (): number => Math.round(performance.now() - began);
  const summary = ({ snapshot, unchanged, tests }: Built): object => ({
    tag: snapshot.tag,
    unchanged,
    ms: elapsed(),
    steps,
    tests,
    snapshot,
  });
  const print = (built: Built): void => {
    const { snapshot, unchanged, tests } = built;
    const tested = tests.length === 0 ? "" : ` ${tests.length} ${tests.length === 1 ? "test" : "tests"} passed.`;
    if (cli.json) printJson(summary(built));
    else if (opts.quiet) printLine(snapshot.tag);
    else printLine(`Snapshot ${snapshot.tag}: ${unchanged ? "nothing changed" : `ready after ${seconds(elapsed())}`}.${tested}`);
  };
  return { work, summary, print };
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}
