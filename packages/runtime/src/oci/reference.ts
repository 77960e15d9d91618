// References of images in registries.

import { ForkdError } from "../errors.ts";

/** Default registry of a reference without one */
const DEFAULT_REGISTRY = "docker.io";
const DEFAULT_REGISTRY_HOST = "registry-1.docker.io";
const DEFAULT_NAMESPACE = "library";

const HOST = /^(\[[0-9a-fA-F:]+\]|[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*)(:\d{1,5})?$/;
const PATH = /^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(\/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$/;
const TAG = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/;
const DIGEST = /^sha256:[0-9a-f]{64}$/;

export type ImageReference = {
  /** host and port to connect to */
  host: string;
  repository: string;
  /** tag or digest to request */
  tag: string;
  digest: string | undefined;
  /** the reference with all defaults filled in */
  canonical: string;
};

export function parseReference(text: string): ImageReference {
  const bad = (why: string): ForkdError =>
    new ForkdError("BAD_REQUEST", `${JSON.stringify(text.slice(0, 200))} is not an image reference: ${why}.`, {
      hint: "Write it as [registry/]name[:tag][@sha256:digest].",
    });
  if (text.includes("://")) throw bad("it begins with a scheme");
  const [rest = "", digest, ...more] = text.split("@");
  if (more.length > 0 || (digest !== undefined && !DIGEST.test(digest))) throw bad("its digest is not sha256 and 64 hexadecimal digits");

  const slash = rest.indexOf("/");
  const first = slash < 0 ? "" : rest.slice(0, slash);
  const hasRegistry = first.includes(".") || first.includes(":") || first === "localhost";
  const registry = hasRegistry ? first : DEFAULT_REGISTRY;
  if (!HOST.test(registry)) throw bad("its registry is not a host name");

  const remainder = hasRegistry ? rest.slice(slash + 1) : rest;
  const colon = remainder.lastIndexOf(":");
  const path = colon < 0 ? remainder : remainder.slice(0, colon);
  const tag = colon < 0 ? "latest" : remainder.slice(colon + 1);
  if (!TAG.test(tag)) throw bad("its tag has characters that tags do not have");
  const isDefault = registry === DEFAULT_REGISTRY || registry === `index.${DEFAULT_REGISTRY}`;
  const repository = isDefault && !path.includes("/") ? `${DEFAULT_NAMESPACE}/${path}` : path;
  if (!PATH.test(repository) || repository.length > 255) throw bad("its name may have small letters, digits and single separators only");
  return {
    host: isDefault ? DEFAULT_REGISTRY_HOST : registry,
    repository,
    tag,
    digest,
    canonical: `${isDefault ? DEFAULT_REGISTRY : registry}/${repository}${digest !== undefined && colon < 0 ? "" : `:${tag}`}${digest === undefined ? "" : `@${digest}`}`,
  };
}

/** Whether a host (with or without a port) is this machine */
export function isLoopback(host: string): boolean {
  const name = host
    .replace(/:\d+$/, "")
    .replace(/^\[|\]$/g, "")
    .toLowerCase();
  return name === "localhost" || name === "::1" || /^127(\.\d{1,3}){3}$/.test(name);
}

/** Default name of an image: example.org/owner/python:3.13-slim@sha256:… is python-3.13-slim */
export function imageNameOf(reference: string): string {
  const [withoutDigest = ""] = reference.split("@");
  return withoutDigest.slice(withoutDigest.lastIndexOf("/") + 1).replace(":", "-");
}
