import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { userInfo } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { userName } from "../../src/util/user-name.ts";

const run = promisify(execFile);
const ADVICE = join(import.meta.dirname, "../../src/probe/kvm-advice.ts");
/** A mount namespace in which no user has a name */
const NAMELESS = "for file in /etc/passwd /etc/nsswitch.conf; do [ ! -e $file ] || mount --bind /dev/null $file; done";
const unshare = async (script: string, ...args: string[]): Promise<string> =>
  (await run("unshare", ["--user", "--map-root-user", "--mount", "sh", "-ec", script, "sh", ...args])).stdout;

test("the name of a user comes from the password file", () => {
  assert.equal(userName(), userInfo().username);
});

test("a user without a name is shown by uid, and the KVM check works for it", async (t) => {
  if (
    await unshare(NAMELESS).then(
      () => false,
      () => true,
    )
  )
    return t.skip("this user cannot make namespaces");
  const code = `import(${JSON.stringify(ADVICE)}).then(async ({ lookAtKvm }) => console.log((await lookAtKvm()).user))`;
  assert.equal((await unshare(`${NAMELESS}; exec "$@"`, process.execPath, "-e", code)).trim(), "0");
});
