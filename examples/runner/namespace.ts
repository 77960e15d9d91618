// A network namespace that has nothing but loopback.

import { execFile } from "node:child_process";
import { promisify } from "node:util";

/** What stands in front of a program that is to run in one; root needs no other right for it */
export const IN_NAMESPACE = ["unshare", ...(process.getuid?.() === 0 ? [] : ["--map-root-user"]), "--net", "--"] as const;

/** Why there can be none on this machine; undefined: there can */
export async function withoutNamespace(signal?: AbortSignal): Promise<string | undefined> {
  const [program, ...args] = IN_NAMESPACE;
  try {
    await promisify(execFile)(program, [...args, "ip", "link", "set", "lo", "up"], { signal });
    return undefined;
  } catch (error) {
    const { stderr, message } = error as Error & { stderr?: string };
    return (stderr || message).trim();
  }
}
