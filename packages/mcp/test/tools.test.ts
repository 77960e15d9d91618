// The tools as a model sees them.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import * as z from "zod";
import { INSTRUCTIONS, TOOLS } from "../src/tools.ts";

test("names are unique, and every tool and argument has a description", () => {
  assert.equal(new Set(TOOLS.map(({ name }) => name)).size, TOOLS.length);
  const plain = new Set([
    "vcpus",
    "content",
    "headers",
    "body",
    "method",
    "recursive",
    "timeout_secs",
    "poll_interval_ms",
    "port",
    "signal",
    "expires_in_secs",
  ]);
  for (const { name, title, description, input } of TOOLS) {
    assert.match(name, /^[a-z]+(_[a-z]+)+$/);
    assert.ok(title && description.length > 40, name);
    const { properties = {} } = z.toJSONSchema(input, { io: "input" }) as { properties?: Record<string, { description?: string }> };
    for (const [field, schema] of Object.entries(properties)) assert.ok(schema.description ?? plain.has(field), `${name}.${field}`);
  }
});

test("tools that a description names exist", () => {
  const names = new Set(TOOLS.map(({ name }) => name));
  const others = new Set([
    "sandbox_id",
    "next_cursor",
    "next_offset",
    "lost_bytes",
    "timeout_secs",
    "ttl_secs",
    "max_output_bytes",
    "forkd_preview",
  ]);
  for (const text of [INSTRUCTIONS, ...TOOLS.map(({ description }) => description)])
    for (const [word] of text.matchAll(/\b[a-z]+(_[a-z]+)+\b/g)) assert.ok(names.has(word) || others.has(word), word);
});

test("network rules accept names and refuse addresses", () => {
  const input = TOOLS.find(({ name }) => name === "spawn_sandboxes")?.input;
  const takes = (rule: string): boolean | undefined =>
    input?.safeParse({ snapshot_tag: "t", network: { mode: "allow", allow: [rule] } }).success;
  for (const rule of ["index.example", "*.example.org:443", "a-b.example:80,8000-8100", "localhost", "1password.com", "3.example"])
    assert.equal(takes(rule), true, rule);
  for (const rule of [
    "10.1.2.3",
    "10.0.0.0/8",
    "127.0.0.1:5432",
    "[fd00::1]:80",
    "fd00::1",
    "::1",
    "0/0",
    "0.0.0.0/0:1-65535",
    "2130706433",
    "a b",
    "",
  ])
    assert.equal(takes(rule), false, rule);
});

test("all descriptions together stay below a size limit", () => {
  const told = JSON.stringify(
    TOOLS.map(({ name, description, input }) => ({ name, description, input: z.toJSONSchema(input, { io: "input" }) })),
  );
  assert.ok(told.length < 33_000, `${told.length} characters`);
});

test("docs/mcp.md lists exactly the tools", async () => {
  const text = await readFile(join(import.meta.dirname, "..", "..", "..", "docs", "mcp.md"), "utf8");
  const table = /## Tools\n[^|]*((?:\|.*\n)+)/.exec(text)?.[1] ?? "";
  const told = [...table.matchAll(/`([a-z]+(?:_[a-z]+)+)`/g)].map(([, name]) => name ?? "");
  assert.deepEqual(told.toSorted(), TOOLS.map(({ name }) => name).toSorted());
});
