// Saves displayed objects as files. Their content is the guest's: it is written, and never opened or run.

import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";

import type { DisplayResult } from "forkd";

type Form = { ending: string; encoding: "utf8" | "base64" };

const FORMS: Record<string, Form> = {
  "image/png": { ending: "png", encoding: "base64" },
  "image/jpeg": { ending: "jpg", encoding: "base64" },
  "application/pdf": { ending: "pdf", encoding: "base64" },
  "image/svg+xml": { ending: "svg", encoding: "utf8" },
  "text/html": { ending: "html", encoding: "utf8" },
  "text/markdown": { ending: "md", encoding: "utf8" },
  "text/latex": { ending: "tex", encoding: "utf8" },
  "application/javascript": { ending: "js", encoding: "utf8" },
  "application/json": { ending: "json", encoding: "utf8" },
  "application/vnd.forkd.data+json": { ending: "data.json", encoding: "utf8" },
  "application/vnd.forkd.chart+json": { ending: "chart.json", encoding: "utf8" },
};

/** Writes each form that has a file type to result-N.ENDING; returns the paths */
export async function saveResults(results: readonly DisplayResult[], folder: string): Promise<string[]> {
  await mkdir(folder, { recursive: true });
  const saved: string[] = [];
  for (const [at, { data }] of results.entries()) {
    for (const [mime, value] of Object.entries(data)) {
      const form = FORMS[mime];
      if (!form) continue;
      const path = join(folder, `result-${at + 1}.${form.ending}`);
      await writeFile(path, typeof value === "string" ? Buffer.from(value, form.encoding) : `${JSON.stringify(value, null, 2)}\n`);
      saved.push(path);
    }
  }
  return saved;
}

/** The forms of a result other than text */
export function formsOf({ data, omitted }: DisplayResult): string[] {
  return [...Object.keys(data), ...Object.keys(omitted ?? {}).map((mime) => `${mime} (too large)`)].filter((mime) => mime !== "text/plain");
}
