// Host and Origin checks.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Guard, isLoopback } from "../src/web.ts";
import type { IncomingMessage } from "node:http";

function asked(guard: Guard, host: string | undefined, origin?: string): boolean {
  return guard.refusal({ headers: { host, origin } } as IncomingMessage) === undefined;
}

test("a server on loopback accepts only loopback host names", () => {
  const guard = new Guard(["127.0.0.1"]);
  for (const host of ["127.0.0.1:8890", "localhost:8890", "LOCALHOST", "[::1]:8890"]) assert.ok(asked(guard, host), host);
  for (const host of ["evil.example", "127.0.0.1.evil.example:8890", "localhost.evil.example", "", undefined, "a b", "127.0.0.2"])
    assert.equal(asked(guard, host), false, host);
});

test("the Origin must be one of the accepted hosts", () => {
  const guard = new Guard(["127.0.0.1"]);
  assert.ok(asked(guard, "localhost", "http://localhost:3000"));
  for (const origin of ["https://evil.example", "null", "http://localhost.evil.example", "file://"])
    assert.equal(asked(guard, "localhost", origin), false, origin);
});

test("a server on another address accepts that address and the allowed hosts", () => {
  const guard = new Guard(["10.0.0.5", "mcp.example.org"]);
  assert.ok(asked(guard, "mcp.example.org"));
  assert.ok(asked(guard, "10.0.0.5:443", "https://mcp.example.org"));
  assert.equal(asked(guard, "localhost"), false);
});

test("loopback addresses", () => {
  assert.deepEqual(["127.0.0.1", "127.8.8.8", "localhost", "::1", "0.0.0.0", "10.0.0.1", "127.evil.example", "::"].map(isLoopback), [
    true,
    true,
    true,
    true,
    false,
    false,
    false,
    false,
  ]);
});
