// The host's apt configuration for the distribution's own archive: sources, proxy, credentials.

import { readFile, readdir } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError } from "../errors.ts";
import { run } from "./command.ts";

export type AptSource = { uri: string; suite: string; components: string[]; signedBy?: string };

/** Settings that decide how the archive is reached; an image does not get the rest of the host's apt configuration */
const TRANSPORT_SETTING = /^Acquire::(http|https|ftp|socks|Retries|Check-Valid-Until|Check-Date|ForceIPv4|ForceIPv6|Proxy-Auto-Detect)\b/;

/** The suite name of the running distribution */
export async function hostSuite(): Promise<string> {
  const release = await readFile("/etc/os-release", "utf8");
  const codename = /^VERSION_CODENAME="?([a-z0-9.-]+)"?$/m.exec(release)?.[1];
  if (codename === undefined) {
    throw new ForkdError("BAD_REQUEST", "Cannot determine the distribution to build: /etc/os-release has no VERSION_CODENAME.", {
      hint: "Name a `suite` and a `mirror`.",
    });
  }
  return codename;
}

/** The distribution's own entries for a suite, without those of third parties, which use other suites or components */
export async function hostSources(suite: string, aptDir = "/etc/apt"): Promise<AptSource[]> {
  const sources: AptSource[] = [];
  for (const file of await sourceFiles(aptDir)) {
    const text = await readFile(file, "utf8");
    sources.push(...(file.endsWith(".sources") ? parseDeb822(text) : parseOneLine(text)));
  }
  const wanted = new Set([suite, `${suite}-updates`, `${suite}-security`]);
  const own = sources.filter((source) => wanted.has(source.suite) && source.components.includes("main"));
  if (!own.some((source) => source.suite === suite)) {
    throw new ForkdError("BAD_REQUEST", `Cannot build from ${suite}: the host's apt sources do not hold it.`, {
      hint: "Name a `mirror` for this suite.",
    });
  }
  return own.map((source) => ({ ...source, components: source.components.filter((name) => name === "main" || name === "universe") }));
}

/** `deb` lines for apt */
export function formatSources(sources: readonly AptSource[], secrets: "keep" | "strip"): string {
  return sources
    .map((source) => {
      const options = source.signedBy === undefined ? "" : ` [signed-by=${source.signedBy}]`;
      return `deb${options} ${secrets === "strip" ? stripCredentials(source.uri) : source.uri} ${source.suite} ${source.components.join(" ")}\n`;
    })
    .join("");
}

/** The host's proxy, certificate and retry settings as an apt configuration file; empty when there are none */
export async function hostTransportSettings(signal?: AbortSignal): Promise<string> {
  const { stdout } = await run(["apt-config", "dump"], { signal });
  return stdout
    .split("\n")
    .filter((line) => TRANSPORT_SETTING.test(line) && !line.endsWith(' "";'))
    .map((line) => `${line}\n`)
    .join("");
}

/** Passwords for private mirrors that this user may read */
export async function hostAuth(aptDir = "/etc/apt"): Promise<string> {
  const files = [join(aptDir, "auth.conf"), ...(await listed(join(aptDir, "auth.conf.d"), ".conf"))];
  let text = "";
  for (const file of files) {
    try {
      text += `${await readFile(file, "utf8")}\n`;
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      if (code !== "ENOENT" && code !== "EACCES") throw error;
    }
  }
  return text.trim() === "" ? "" : text;
}

export function parseDeb822(text: string): AptSource[] {
  const sources: AptSource[] = [];
  for (const stanza of text.split(/\n\s*\n/)) {
    const fields = new Map<string, string>();
    let last = "";
    for (const line of stanza.split("\n")) {
      if (line.startsWith("#") || line.trim() === "") continue;
      if (/^\s/.test(line)) {
        fields.set(last, `${fields.get(last) ?? ""}\n${line.trim()}`);
        continue;
      }
      const colon = line.indexOf(":");
      if (colon < 0) continue;
      last = line.slice(0, colon).toLowerCase();
      fields.set(last, line.slice(colon + 1).trim());
    }
    const words = (name: string): string[] => (fields.get(name) ?? "").split(/\s+/).filter(Boolean);
    if (!words("types").includes("deb") || fields.get("enabled")?.toLowerCase() === "no") continue;
    const signedBy = fields.get("signed-by");
    for (const uri of words("uris")) {
      for (const suite of words("suites")) sources.push(source(uri, suite, words("components"), signedBy));
    }
  }
  return sources;
}

export function parseOneLine(text: string): AptSource[] {
  const sources: AptSource[] = [];
  for (const line of text.split("\n")) {
    const match = /^deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+([^#]+)/.exec(line.trim());
    if (match === null) continue;
    const [, options = "", uri = "", suite = "", components = ""] = match;
    const signedBy = /(?:^|\s)signed-by=(\S+)/.exec(options)?.[1];
    sources.push(source(uri, suite, components.trim().split(/\s+/), signedBy));
  }
  return sources;
}

/** A key embedded in the file is left out: apt then uses its trusted keys */
function source(uri: string, suite: string, components: string[], signedBy: string | undefined): AptSource {
  return { uri, suite, components, ...(signedBy?.startsWith("/") && !signedBy.includes("\n") ? { signedBy } : {}) };
}

function stripCredentials(uri: string): string {
  return uri.replace(/^([a-z+]+:\/\/)[^/@]*@/, "$1");
}

async function sourceFiles(aptDir: string): Promise<string[]> {
  const dir = join(aptDir, "sources.list.d");
  const files = [...(await listed(dir, ".list")), ...(await listed(dir, ".sources"))];
  return [...(await listed(aptDir, "sources.list")), ...files];
}

async function listed(dir: string, suffix: string): Promise<string[]> {
  try {
    return (await readdir(dir))
      .filter((name) => name.endsWith(suffix))
      .toSorted()
      .map((name) => join(dir, name));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
}
