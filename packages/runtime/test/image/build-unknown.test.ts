// A package that does not exist, with the real mmdebstrap.
// Runs in make test-all only: it takes most of a build, and build.test.ts has the text that apt prints.

import assert from "node:assert/strict";
import { test } from "node:test";
import { patience } from "../../../../tests/helpers/patience.ts";
import { buildImage } from "../../src/image/build.ts";
import { noPackages } from "./helpers/packages.ts";
import { leftovers, tempHome } from "./helpers/temp-home.ts";

const skip = (await noPackages()) || (process.getuid?.() === 0 ? false : "the test user is not root");

test("an unknown package is named, and nothing is left", { skip, timeout: patience(60) }, async (t) => {
  const home = await tempHome(t);
  await assert.rejects(buildImage(home, { name: "x", packages: ["no-such-package-anywhere"] }), {
    code: "BAD_REQUEST",
    message: /there is no package no-such-package-anywhere/,
  });
  assert.deepEqual(await leftovers(home), []);
});
