// Contract driver for the Controller of the Python SDK, in one process for the life of the driver.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import type { RouteName } from "../../packages/daemon/src/api/routes.ts";
import type { TestDaemon } from "../helpers/daemon.ts";
import type { Args, Driver, Outcome } from "./case.ts";

const PYTHON = resolve(import.meta.dirname, "..", "..", "python");

/** Reason why the driver cannot run on this machine */
export function withoutPython(): string | false {
  try {
    execFileSync("python3", ["-c", "import sys; sys.exit(sys.version_info < (3, 9))"], { stdio: "ignore" });
    return false;
  } catch {
    return "there is no Python 3.9 or newer";
  }
}

export function pythonDriver(daemon: TestDaemon): Driver {
  const child = spawn("python3", [join(PYTHON, "tests", "contract_driver.py")], {
    env: { ...daemon.env, PYTHONPATH: join(PYTHON, "src"), PYTHONDONTWRITEBYTECODE: "1" },
    stdio: ["pipe", "pipe", "pipe"],
  });
  const complaints = text(child.stderr);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();

  return {
    name: "python",
    call: async (route, args) => {
      child.stdin.write(`${JSON.stringify(request(daemon, route, args))}\n`);
      const line = await lines.next();
      assert.ok(line.done !== true, line.done === true ? await complaints : "");
      const { bytes, ...outcome } = JSON.parse(line.value) as Outcome & { bytes?: string };
      return bytes === undefined ? outcome : { value: Buffer.from(bytes, "base64") };
    },
    close: async () => {
      child.stdin.end();
      if (child.exitCode === null) await once(child, "exit");
    },
  };
}

function request(daemon: TestDaemon, route: RouteName, { token, bytes, ...args }: Args): object {
  const remote = token === undefined ? {} : { url: `http://${daemon.bind}`, token };
  return { route, args: { ...args, ...(bytes === undefined ? {} : { bytes: bytes.toString("base64") }) }, ...remote };
}
