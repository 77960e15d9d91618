// Host programs that parse untrusted files run confined like a VMM, with limits on memory and processor time.

import { dirname } from "node:path";
import { ForkdError } from "../errors.ts";
import { findProgram } from "../util/find-program.ts";
import { installation } from "./installation.ts";
import { run, startPiped, type PipedCommand } from "./command.ts";

/** required: such programs do not start on a host that cannot confine them */
export type ConfinementPolicy = "required" | "preferred";

export type ConfinedOpts = {
  /** files and folders it may read in addition to the system's; they must exist */
  read?: readonly string[];
  /** files and folders it may write; they must exist */
  write?: readonly string[];
  /** maximum size of a file that it writes */
  maxFileBytes?: number;
  /** user that the program sees itself as; outside its namespace it keeps the ids of this process */
  user?: { uid: number; gid: number };
  /** environment variables in addition to PATH, HOME and the locale */
  env?: Record<string, string>;
};

/** for each such program; for a command of an image build, together with all processes that it starts */
export const MEMORY_BYTES = 4 * 1024 ** 3;
const CPU_SECONDS = 3600;
/** System folders, all of which a confined program sees */
const SYSTEM = /^\/(usr|bin|sbin|lib\w*)\//;
/** Argument with which a program only starts and exits; `--version` for the others */
const HARMLESS: Record<string, string> = { sqfstar: "-version" };

/** Throws CONFINEMENT_UNAVAILABLE when the policy requires confinement and the host cannot confine; without a policy it is optional */
export async function startConfined(
  argv: readonly [string, ...string[]],
  opts: ConfinedOpts & { confinement?: ConfinementPolicy | undefined; signal?: AbortSignal | undefined } = {},
): Promise<PipedCommand> {
  const { words, obstacle } = await confinedWords(argv, opts);
  if (obstacle !== undefined && opts.confinement === "required")
    throw new ForkdError(
      "CONFINEMENT_UNAVAILABLE",
      `Cannot run ${argv[0]}: it must be confined, and this host does not allow it: ${obstacle}`,
    );
  const env = obstacle === undefined ? process.env : { ...process.env, LC_ALL: "C", ...opts.env };
  return startPiped(words, { signal: opts.signal, name: argv[0], env });
}

/** The command line that runs a program confined. `obstacle`: why it cannot be confined; then the program has only its limits */
export async function confinedWords(
  argv: readonly [string, ...string[]],
  opts: ConfinedOpts,
): Promise<{ words: readonly string[]; obstacle?: string }> {
  const [tool, ...args] = argv;
  const program = await findProgram(tool);
  // The caller that starts it reports that it is not installed.
  if (program === null) return { words: argv };
  const confined = [...wardenWords(program, opts), program];
  try {
    // Tried with all paths of the call, because the host may refuse to mount one of them in a namespace.
    await run([...confined, HARMLESS[tool] ?? "--version"]);
    return { words: [...confined, ...args] };
  } catch (error) {
    if (!(error instanceof ForkdError)) throw error;
    const limited = [...(await limitWords(opts)), program, ...args];
    return { words: limited, obstacle: error.message.split("\n").at(-1) ?? error.message };
  }
}

/** The same limits for a program that is not confined; `prlimit` is part of every Debian system */
async function limitWords({ maxFileBytes = 0 }: ConfinedOpts): Promise<string[]> {
  const program = await findProgram("prlimit");
  if (program === null) return [];
  return [program, `--as=${MEMORY_BYTES}`, `--cpu=${CPU_SECONDS}`, `--fsize=${maxFileBytes}`, "--core=0", "--"];
}

function wardenWords(program: string, { read = [], write = [], maxFileBytes = 0, user, env = {} }: ConfinedOpts): string[] {
  const words = [installation.warden, "--confine", "--memory-bytes", String(MEMORY_BYTES), "--seconds", String(CPU_SECONDS)];
  words.push("--file-bytes", String(maxFileBytes));
  if (user !== undefined) words.push("--uid", String(user.uid), "--gid", String(user.gid));
  if (!SYSTEM.test(program)) words.push("--read", dirname(program));
  for (const path of read) words.push("--read", path);
  for (const path of write) words.push("--write", path);
  for (const [name, value] of Object.entries(env)) words.push("--env", `${name}=${value}`);
  return [...words, "--"];
}
