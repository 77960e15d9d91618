// Whether this machine can get packages of its distribution.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { patience } from "../../../../../tests/helpers/patience.ts";
import { run } from "../../../src/host/command.ts";
import { hostSources, hostSuite } from "../../../src/host/apt-sources.ts";

/** Why packages are not available here, or false */
export async function noPackages(): Promise<string | false> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-test-apt-"));
  try {
    await hostSources(await hostSuite());
    await run(["mmdebstrap", "--version"]);
    await run(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=0", "download", "hostname"], {
      cwd: dir,
      timeoutMs: patience(),
    });
    return false;
  } catch (error) {
    return `no packages: ${error instanceof Error ? error.message.split("\n")[0] : String(error)}`;
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}
