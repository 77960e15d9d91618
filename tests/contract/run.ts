// Runs one case through one driver and lists the differences from the expected outcome.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { ERROR_CODES } from "@forkd/runtime";
import { patience } from "../helpers/patience.ts";
import { differences, type Case, type Context, type Driver, type Expected, type Outcome } from "./case.ts";
import { routes } from "../../packages/daemon/src/api/routes.ts";
import type { Route } from "../../packages/daemon/src/api/route.ts";

type Failure = Extract<Expected, { code: string }>;

const POLL_MS = 100;

export async function runCase(driver: Driver, item: Case, c: Context): Promise<void> {
  const args = item.args?.(c) ?? {};
  const expected = typeof item.expect === "function" ? item.expect(c) : item.expect;
  const deadline = Date.now() + patience();
  let outcome = await driver.call(item.route, args);
  while (item.until && problemsOf(driver, item, outcome, expected, c).length > 0 && Date.now() < deadline) {
    await sleep(POLL_MS);
    outcome = await driver.call(item.route, args);
  }
  assert.deepEqual(problemsOf(driver, item, outcome, expected, c), [], `${driver.name}: ${item.what}`);
  if (item.save !== undefined) c.save(item.save, outcome);
}

function problemsOf(driver: Driver, item: Case, outcome: Outcome, expected: Expected, c: Context): string[] {
  if ("code" in expected) return failureProblems(driver, item, outcome, expected, c);
  if ("code" in outcome) return [`${outcome.code} instead of success: ${outcome.message}`];
  const declared = Object.keys(routeOf(item).responses).map(Number);
  const status = expected.status ?? declared.find((code) => code < 300);
  const wrongStatus = outcome.status !== undefined && outcome.status !== status ? [`status ${outcome.status}, not ${status}`] : [];
  return [...wrongStatus, ...differences(outcome.value, expected.value)];
}

function failureProblems(driver: Driver, item: Case, outcome: Outcome, expected: Failure, c: Context): string[] {
  if (!("code" in outcome)) return [`success instead of ${expected.code}: ${JSON.stringify(outcome.value)?.slice(0, 300)}`];
  if (driver.name === "cli" && expected.usage) return outcome.code === "USAGE" ? [] : [`${outcome.code} instead of wrong usage`];
  const problems = outcome.code === expected.code ? [] : [`${outcome.code} instead of ${expected.code}: ${outcome.message}`];
  const status = routeOf(item).statusOf?.[expected.code] ?? ERROR_CODES[expected.code].status;
  if (outcome.status !== undefined && outcome.status !== status) problems.push(`status ${outcome.status}, not ${status}`);
  const message = expected.message?.(c);
  if (message && !message.test(outcome.message)) problems.push(`"${outcome.message}" does not match ${message}`);
  // the CLI prints messages for people, without the details
  if (expected.details !== undefined && driver.name !== "cli") problems.push(...differences(outcome.details, expected.details, "details"));
  return problems;
}

function routeOf({ route }: Case): Route {
  return routes[route];
}
