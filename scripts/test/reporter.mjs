// node:test reporter for the runner: one JSON line per finished test.

import { inspect } from "node:util";

// oxlint-disable-next-line import/no-default-export -- node:test takes a reporter by its default export
export default async function* report(source) {
  for await (const { type, data } of source) {
    if (type !== "test:pass" && type !== "test:fail") continue;
    // Suites are reported through their tests, except when a hook of the suite failed.
    const isSuite = data.details?.type === "suite";
    const { error } = data.details ?? {};
    if (isSuite && (type === "test:pass" || error?.failureType === "subtestsFailed")) continue;
    const skipped = data.skip === undefined ? data.todo : data.skip;
    const line = {
      name: data.name,
      ms: Math.round(data.details?.duration_ms ?? 0),
      outcome: type === "test:fail" ? "failed" : skipped === undefined || skipped === false ? "passed" : "skipped",
      reason: typeof skipped === "string" ? skipped : "",
      error: type === "test:fail" ? inspect(error?.cause ?? error, { depth: 4 }) : "",
    };
    yield `${JSON.stringify(line)}\n`;
  }
}
