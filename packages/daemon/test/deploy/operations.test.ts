import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ERROR_CODES } from "@forkd/runtime/errors";
import { Metrics } from "../../src/observe/metrics.ts";
import { readRepo, settingNames } from "./files.ts";

describe("docs/operations.md", () => {
  it("has every setting with its option and its variable, and no other", async () => {
    const rows = tableUnder(await readRepo("docs/operations.md"), "Settings");
    const names = await settingNames();
    for (const name of names) {
      const row = rows.find((text) => text.startsWith(`| \`${name}\``));
      assert.ok(row, `${name} is missing`);
      assert.ok(row.includes(`\`--${name.replaceAll("_", "-")}`), `${name}: option`);
      assert.ok(row.includes(`\`FORKD_${name.toUpperCase()}\``), `${name}: variable`);
    }
    assert.equal(rows.length, names.length);
  });

  it("has every metric, and no other", async () => {
    const metrics = new Metrics({ version: "0", branchConcurrency: 1 });
    const real = [...(await metrics.text()).matchAll(/^# TYPE (\S+) \S+$/gm)].map((match) => match[1] ?? "");
    const text = await readRepo("docs/operations.md");
    const documented = tableUnder(text, "Metrics").map((row) => /^\| `(\w+)/.exec(row)?.[1] ?? row);
    assert.deepEqual(documented.sort(), real.sort());
  });

  it("alerts on metrics that exist", async () => {
    const metrics = new Metrics({ version: "0", branchConcurrency: 1 });
    const real = await metrics.text();
    const text = await readRepo("docs/operations.md");
    for (const [, name = ""] of text.matchAll(/\b(forkd_[a-z_]+?)(?:_bucket)?[[{ ]/g)) assert.ok(real.includes(`# TYPE ${name} `), name);
  });

  it("names only error codes that exist", async () => {
    const rows = tableUnder(await readRepo("docs/operations.md"), "Troubleshooting");
    const codes = rows.flatMap((row) => [...(row.split("|")[1] ?? "").matchAll(/`([A-Z_]+)`/g)].map((match) => match[1] ?? ""));
    assert.ok(codes.length > 5);
    for (const code of codes) assert.ok(code in ERROR_CODES, code);
  });
});

/** Rows of the first table below a heading, without the header row */
function tableUnder(text: string, heading: string): string[] {
  const section = text.split(/^## /m).find((part) => part.startsWith(`${heading}\n`)) ?? "";
  const lines = section.split("\n");
  const first = lines.findIndex((line) => line.startsWith("|"));
  const end = lines.findIndex((line, at) => at > first && !line.startsWith("|"));
  return lines.slice(first + 2, end);
}
