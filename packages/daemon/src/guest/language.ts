// The languages of warm interpreters: how each is started, and how it is told what to do.

import { ForkdError } from "../errors.ts";

export const LANGUAGES = ["python", "node", "bash"] as const;
export type Language = (typeof LANGUAGES)[number];

export const COMMANDS: Record<Language, string[]> = {
  python: ["python3", "-u", "/run/forkd/kernels/python.py"],
  node: ["node", "/run/forkd/kernels/node.mjs"],
  // its commands come from the control channel
  bash: ["bash", "-c", "exec bash --noprofile --rcfile /run/forkd/kernels/bash.rc --noediting -i 0<&3 3>&-"],
};

export type KernelRequest =
  | {
      op: "eval";
      id: number;
      code: string;
      /** it is not counted */
      warm?: boolean;
      /** set while this code runs */
      env?: Record<string, string> | undefined;
    }
  /** without an id whatever runs now is meant */
  | { op: "interrupt"; id?: number | undefined }
  | { op: "environment"; id: number; env: Record<string, string> }
  | { op: "reseed"; id: number; seed: string };

/** The line that tells a kernel; it cannot be taken for a whole one when it breaks off */
export function lineFor(language: Language, request: KernelRequest): string {
  return language === "bash" ? bashLine(request) : JSON.stringify(request);
}

/** Rejects what a language cannot take */
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
  // sourced, not evaluated: an interactive shell talks too much about what it evaluates
  return `${head} ${words.join(" ")} . && . /proc/self/fd/9 9<<<"$__forkd_code" 0</dev/null 200>&-`;
}

function pairsOf(env: Record<string, string>): string[] {
  return Object.entries(env).map(([name, value]) => `${name}=${value}`);
}

/** A word without anything that means something to a shell; never empty */
function wordOf(text: string): string {
  return Buffer.from(text === "" ? " " : text)
    .toString("latin1")
    .replaceAll(/[^A-Za-z0-9]/g, (byte) => `%${byte.charCodeAt(0).toString(16).padStart(2, "0")}`);
}
