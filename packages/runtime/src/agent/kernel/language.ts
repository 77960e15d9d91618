// The languages of warm interpreters: start command and message format of each.

import { ForkdError } from "../../errors.ts";

export const LANGUAGES = ["python", "node", "typescript", "r", "java", "bash"] as const;
export type Language = (typeof LANGUAGES)[number];

/** Exit status of a kernel whose image lacks a program; stderr names it */
export const MISSING_STATUS = 127;

/** Gives the kernel reflective access to the state of the JDK's generators */
const JAVA_OPENS = ["java.lang", "java.util", "java.util.concurrent"].map((name) => `--add-opens=java.base/${name}=ALL-UNNAMED`);

export const COMMANDS: Record<Language, string[]> = {
  python: ["python3", "-u", "/run/forkd/kernels/python.py"],
  node: ["node", "/run/forkd/kernels/node.mjs"],
  typescript: ["node", "/run/forkd/kernels/node.mjs", "typescript"],
  r: piped("Rscript", "R (Debian's package r-base-core)", ["--vanilla", "/run/forkd/kernels/r.R"]),
  // javac: without the compiler the kernel cannot run
  java: piped("javac", "Java (Debian's package default-jdk-headless)", [...JAVA_OPENS, "/run/forkd/kernels/java.java"], "java"),
  // it reads commands from the control channel
  bash: ["bash", "-c", "exec bash --noprofile --rcfile /run/forkd/kernels/bash.rc --noediting -i 0<&3 3>&-"],
};

/**
 * For interpreters that cannot use the control channel, a socket on fd 3, directly: pipes connect it to fds 5 and 6. The processes
 * that copy the bytes ignore the interrupt, which is sent to the process group.
 */
function piped(needed: string, what: string, args: string[], program = needed): string[] {
  const script = [
    `command -v ${needed} >/dev/null || { echo "it has no ${what}" >&2; exit ${MISSING_STATUS}; }`,
    // without a UTF-8 locale both corrupt letters beyond ASCII
    'export LANG="${LANG:-C.UTF-8}"',
    `exec 5< <(trap "" INT; exec cat <&3) 6> >(trap "" INT; exec cat >&3) 3>&- 0</dev/null`,
    `exec ${program} "$@"`,
  ];
  return ["bash", "--norc", "-c", script.join("\n"), program, ...args];
}

export type EvalRequest = {
  op: "eval";
  id: number;
  code: string;
  /** not included in the count of evals */
  warm?: boolean;
  /** set while this code runs */
  env?: Record<string, string> | undefined;
};

export type KernelRequest =
  | EvalRequest
  /** without an id: the running eval */
  | { op: "interrupt"; id?: number | undefined }
  | { op: "environment"; id: number; env: Record<string, string> }
  | { op: "reseed"; id: number; seed: string };

/** The line for a request. A truncated line is never a valid one */
export function lineFor(language: Language, request: KernelRequest): string {
  return language === "bash" ? bashLine(request) : JSON.stringify(request);
}

/** Rejects input that a language cannot represent */
export function checkRequest(language: Language, code: string, env: Record<string, string> | undefined): void {
  if (language !== "bash") return;
  const odd = Object.keys(env ?? {}).find((name) => !/^[A-Za-z_][A-Za-z0-9_]*$/.test(name));
  if (odd !== undefined) throw new ForkdError("BAD_REQUEST", `Cannot set ${JSON.stringify(odd)} in a shell: it is no name of a variable.`);
  if (code.includes("\0")) throw new ForkdError("BAD_REQUEST", "Cannot run the code in a shell: it has a NUL character.");
}

function bashLine(request: KernelRequest): string {
  if (request.op === "interrupt") return "";
  if (request.op === "reseed") return `__forkd_reseed ${request.id} ${request.seed} .`;
  if (request.op === "environment") return `__forkd_environment ${pairsOf(request.env).map(wordOf).join(" ")} .`;
  const { id, warm, code, env = {} } = request;
  const words = [code, ...pairsOf(env)].map(wordOf);
  const head = `__forkd_take ${id} ${warm ? 0 : 1}`;
  // sourced, not evaluated: an interactive shell echoes what it evaluates
  return `${head} ${words.join(" ")} . && . /proc/self/fd/9 9<<<"$__forkd_code" 0</dev/null 200>&-`;
}

function pairsOf(env: Record<string, string>): string[] {
  return Object.entries(env).map(([name, value]) => `${name}=${value}`);
}

/** A word without characters that are special in a shell; never empty */
function wordOf(text: string): string {
  return Buffer.from(text === "" ? " " : text)
    .toString("latin1")
    .replaceAll(/[^A-Za-z0-9]/g, (byte) => `%${byte.charCodeAt(0).toString(16).padStart(2, "0")}`);
}
