// The login for a registry or web server: from the environment, or Docker's settings. Other users of this machine could see an argument.

import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { codeOf, failure } from "../errors.ts";

export type Login = { username?: string | undefined; password?: string | undefined };

type DockerConfig = {
  auths?: Record<string, { auth?: string } | undefined>;
  credHelpers?: Record<string, string | undefined>;
  credsStore?: string;
};

/** Key of Docker's settings for the default registry, and its host */
export const DOCKER_HUB = "https://index.docker.io/v1/";
export const DOCKER_HUB_HOST = "registry-1.docker.io";
const HELPER_MS = 30_000;

/** @param host host of the registry, with its port */
export async function registryLogin(host: string, env: NodeJS.ProcessEnv = process.env): Promise<Login> {
  const username = env["FORKD_REGISTRY_USER"] || undefined;
  const password = env["FORKD_REGISTRY_PASSWORD"] || undefined;
  if (username !== undefined || password !== undefined) return { username, password };
  return dockerLogin(host, env);
}

/** The registry of a reference, as a key of Docker's settings */
export function registryOf(reference: string): string {
  const [first = "", ...rest] = reference.replace(/^oci:\/\//, "").split("/");
  const isHost = rest.length > 0 && (/[.:]/.test(first) || first === "localhost");
  return !isHost || first === "docker.io" || first === "index.docker.io" ? DOCKER_HUB : first;
}

/** Docker's login for exactly this host */
export async function dockerLogin(host: string, env: NodeJS.ProcessEnv = process.env): Promise<Login> {
  const file = join(env["DOCKER_CONFIG"] || join(env["HOME"] || homedir(), ".docker"), "config.json");
  const config = await readConfig(file);
  const helper = config.credHelpers?.[host] ?? config.credsStore;
  const entry = config.auths?.[host] ?? config.auths?.[`https://${host}`];
  if (entry?.auth) {
    const [, username, password] = /^([^:]*):([\s\S]*)$/.exec(Buffer.from(entry.auth, "base64").toString("utf8")) ?? [];
    if (username && password) return { username, password };
  }
  return helper === undefined ? {} : askHelper(helper, host, env);
}

async function readConfig(file: string): Promise<DockerConfig> {
  try {
    return JSON.parse(await readFile(file, "utf8")) as DockerConfig;
  } catch (error) {
    if (codeOf(error) === "ENOENT") return {};
    throw failure(
      "BAD_CONFIG",
      `Cannot read the logins in ${file}: it is not readable JSON.`,
      "Fix or remove it, or set DOCKER_CONFIG.",
      error,
    );
  }
}

/** A credential helper of Docker; it reads the host from stdin, and fails when it has no login */
async function askHelper(helper: string, host: string, env: NodeJS.ProcessEnv): Promise<Login> {
  if (!/^[A-Za-z0-9._-]+$/.test(helper)) return {};
  const answer = await new Promise<string>((resolve, reject) => {
    const child = execFile(`docker-credential-${helper}`, ["get"], { env, timeout: HELPER_MS }, (error, stdout) => {
      // it has no login for this host
      if (error && codeOf(error) === "ENOENT")
        reject(
          failure(
            "HOST_TOOL_MISSING",
            `Cannot ask for the login of ${host}: docker-credential-${helper} is not installed.`,
            "Set FORKD_REGISTRY_USER and FORKD_REGISTRY_PASSWORD.",
            error,
          ),
        );
      else resolve(error ? "" : stdout);
    });
    child.stdin?.on("error", () => {}); // a helper that ends without reading its stdin has answered already
    child.stdin?.end(host);
  });
  if (answer === "") return {};
  const { Username, Secret } = JSON.parse(answer) as { Username?: string; Secret?: string };
  // an identity token works only with Docker's own protocol
  return Username && Secret && Username !== "<token>" ? { username: Username, password: Secret } : {};
}
