// What push and pull have in common: places, and the login for them.

import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { usageError } from "./errors.ts";
import { DOCKER_HUB, DOCKER_HUB_HOST, dockerLogin, registryLogin, registryOf } from "./registry-login.ts";

import type { Controller, PullSnapshotOptions, RemoteOptions } from "forkd";

const ALIAS = /^[a-z0-9][a-z0-9._-]*\/[a-z0-9][a-z0-9._-]*(@[A-Za-z0-9_][A-Za-z0-9._-]*)?$/;
const FILE_ENDING = ".forkd";

type HubFlags = { hub?: string | undefined; insecureHttp?: boolean | undefined };

/** `file`: of this machine; else the daemon knows what to do with it */
export type Place = { kind: "file"; path: string } | { kind: "remote" | "name"; address: string };

/** "-" is read from standard input: a signed address is a secret, and arguments are seen by everybody on this machine */
export async function placeOf(given: string, direction: "push" | "pull"): Promise<Place> {
  const address = given === "-" ? (await text(process.stdin)).trim() : given;
  if (address === "") throw usageError("The address is empty.");
  if (address.startsWith("file://")) return { kind: "file", path: fileURLToPath(address) };
  if (/^(https?|oci):\/\//i.test(address)) return { kind: "remote", address };
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(address))
    throw usageError(`There is no way to ${address.split(":")[0]}://: name a file, https:// or oci://.`);
  // what could be an alias is one, unless it ends or begins as files do
  const isAlias = direction === "pull" && ALIAS.test(address) && !address.endsWith(FILE_ENDING);
  return isAlias ? { kind: "name", address } : { kind: "file", path: address };
}

/** The login for an address, from where logins are kept */
export async function remoteOptions(address: string, opts: { insecureHttp?: boolean | undefined }): Promise<RemoteOptions> {
  return { ...(await registryLogin(serverOf(address))), insecureHttp: opts.insecureHttp };
}

/** The login for a name: only what is kept for the very host that the index names, which is not ours to choose */
export async function namedOptions(
  forkd: Controller,
  name: string,
  opts: HubFlags & { signal: AbortSignal },
): Promise<PullSnapshotOptions> {
  const { insecureHttp, signal } = opts;
  const hub = hubOf(opts);
  const { packages } = await forkd.listHub({ hub, insecureHttp, signal });
  const [title = "", version] = name.split("@");
  const found = packages.find((one) => one.name === title);
  const url = found?.versions.find((one) => one.version === (version ?? found.latest))?.url;
  if (url === undefined) return { hub, insecureHttp };
  const host = serverOf(url);
  return { hub, insecureHttp, ...(await dockerLogin(host)), loginHost: host === DOCKER_HUB ? DOCKER_HUB_HOST : host };
}

function serverOf(address: string): string {
  return address.startsWith("oci://") ? registryOf(address) : new URL(address).host;
}

/** The index that was named here, else that of the environment; without either the daemon's */
export function hubOf(opts: HubFlags): string | undefined {
  return opts.hub ?? (process.env["FORKD_HUB_URL"] || undefined);
}
