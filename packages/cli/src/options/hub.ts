// Shared by push and pull: places, and their login.

import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { usageError } from "../errors.ts";
import { DOCKER_HUB, DOCKER_HUB_HOST, dockerLogin, registryLogin, registryOf } from "./registry-login.ts";

import type { Controller, PullSnapshotOptions, RemoteOptions } from "forkd";

const ALIAS = /^[a-z0-9][a-z0-9._-]*\/[a-z0-9][a-z0-9._-]*(@[A-Za-z0-9_][A-Za-z0-9._-]*)?$/;
const FILE_ENDING = ".forkd";

type HubFlags = { hub?: string | undefined; insecureHttp?: boolean | undefined };

/** `file`: a local file; other kinds are resolved by the daemon */
export type Place = { kind: "file"; path: string } | { kind: "remote" | "name"; address: string };

/** "-" is read from standard input: a signed address is a secret, and other users of this machine can see arguments */
export async function placeOf(given: string, direction: "push" | "pull"): Promise<Place> {
  const address = given === "-" ? (await text(process.stdin)).trim() : given;
  if (address === "") throw usageError("The address is empty.");
  if (address.startsWith("file://")) return { kind: "file", path: fileURLToPath(address) };
  if (/^(https?|oci):\/\//i.test(address)) return { kind: "remote", address };
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(address))
    throw usageError(`${address.split(":")[0]}:// is not supported: name a file, https:// or oci://.`);
  // a valid alias is one, unless it looks like a file name
  const isAlias = direction === "pull" && ALIAS.test(address) && !address.endsWith(FILE_ENDING);
  return isAlias ? { kind: "name", address } : { kind: "file", path: address };
}

/** The login for an address, from the environment or Docker's settings */
export async function remoteOptions(address: string, opts: { insecureHttp?: boolean | undefined }): Promise<RemoteOptions> {
  return { ...(await registryLogin(serverOf(address))), insecureHttp: opts.insecureHttp };
}

/** The login for a name: only one that is stored for exactly the host in the index, because the index is not trusted */
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

/** The index of the option, else that of the environment; without either the daemon's */
export function hubOf(opts: HubFlags): string | undefined {
  return opts.hub ?? (process.env["FORKD_HUB_URL"] || undefined);
}
