// Refusals before a sandbox is branched.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ForkdError } from "@forkd/runtime/errors";
import { Branches } from "../../src/service/branches.ts";
import { RESERVED_TAGS } from "../../src/service/reserved-tags.ts";
import type { Caller } from "../../src/service/caller.ts";

const caller: Caller = {
  principal: "ci",
  project: "default",
  isAdmin: false,
  mayExec: true,
  maxSandboxes: null,
  requestId: "r",
  signal: new AbortController().signal,
};

test("the names of shared templates are for admins, existing or not", async () => {
  const get = (): never => {
    throw new ForkdError("NOT_FOUND", "There is no sandbox.");
  };
  const branches = new Branches({} as never, { registry: { get }, sandboxes: { refuseCordoned: () => undefined } } as never);
  const codes = async (tag: string, by: Caller): Promise<unknown[]> => {
    const tried = await Promise.allSettled([branches.branch("sb-a", { tag, wait: true }, by), branches.fork("sb-a", { tag, n: 1 }, by)]);
    return tried.map((outcome) => (outcome.status === "rejected" ? (outcome.reason as ForkdError).code : outcome.status));
  };
  for (const tag of RESERVED_TAGS) {
    assert.deepEqual(await codes(tag, caller), ["FORBIDDEN", "FORBIDDEN"], tag);
    assert.deepEqual(await codes(tag, { ...caller, isAdmin: true }), ["NOT_FOUND", "NOT_FOUND"], tag);
  }
  assert.deepEqual(await codes("mine", caller), ["NOT_FOUND", "NOT_FOUND"]);
});
