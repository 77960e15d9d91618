// Long work with its steps, as they are reported.

import { useState } from "preact/hooks";
import { bytes, ms, visible } from "../format.ts";
import type { JSX } from "preact";
import type { Progress } from "forkd";

const MAX_STEPS = 200;

type Step = { title: string; detail: string; isNow: boolean };
export type Work = { steps: readonly Step[]; run: <T>(work: (onProgress: (progress: Progress) => void) => Promise<T>) => Promise<T> };

export function useWork(): Work {
  const [steps, setSteps] = useState<readonly Step[]>([]);
  const run: Work["run"] = async (work) => {
    setSteps([]);
    const result = await work((progress) => setSteps((before) => withStep(before, progress)));
    setSteps((before) => before.map((step) => ({ ...step, isNow: false })));
    return result;
  };
  return { steps, run };
}

export function Steps({ work: { steps } }: { work: Work }): JSX.Element | null {
  if (steps.length === 0) return null;
  return (
    <ol class="steps" aria-live="polite" aria-label="Steps">
      {steps.map(({ title, detail, isNow }) => (
        <li key={title} class={isNow ? "is-now" : ""}>
          <span>{title}</span>
          <span class="dim">{detail}</span>
        </li>
      ))}
    </ol>
  );
}

function withStep(before: readonly Step[], progress: Progress): readonly Step[] {
  const title = visible(progress.step);
  const isNow = progress.ms === undefined && progress.note !== true;
  const step = { title, detail: detailOf(progress), isNow };
  const last = before.at(-1);
  if (last?.title === title) return [...before.slice(0, -1), step];
  return [...before.map((each) => ({ ...each, isNow: false })), step].slice(-MAX_STEPS);
}

function detailOf({ done, total, unit, ms: took, cached }: Progress): string {
  if (cached) return "done before";
  if (took !== undefined) return ms(took);
  if (done === undefined) return "";
  const show = (value: number): string => (unit === "bytes" ? bytes(value) : String(value));
  return total ? `${show(done)} of ${show(total)}` : show(done);
}
