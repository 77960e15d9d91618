// Authentication of E2B requests: a forkd token is the API key, and each sandbox has an access token.

import { ForkdError } from "@forkd/runtime/errors";
import { authenticate, bearerOf, refuseBlocked } from "../dispatch/auth.ts";
import { INTERPRETER_PORT } from "../dispatch/target.ts";
import { isSignedBy, signedIn } from "./signature.ts";
import type { IncomingMessage } from "node:http";
import type { SandboxInfo } from "../api/sandbox.ts";
import type { TransportKind } from "../dispatch/auth.ts";
import { DEFAULT_PROJECT } from "../store/project-names.ts";
import type { Accessed } from "../store/access-tokens.ts";
import type { Identity, Via } from "../store/tokens.ts";
import type { ControlCall, SandboxCall } from "../dispatch/target.ts";
import type { E2bServices } from "./work.ts";

/** Messages of E2B's daemon, verbatim: its clients compare them */
const NO_TOKEN = "unauthorized access, please provide a valid access token or method signing if supported";

/** Length limit of an unknown id in a message */
const MAX_SHOWN = 64;

export type Asked = { request: IncomingMessage; kind: TransportKind; remote: string; stated: Identity | null };

type Admitted = { identity: Identity | null; sandbox: SandboxInfo };

export function admitToControl({ request, kind, remote, stated }: Asked, services: E2bServices): Identity {
  const token = headerOf(request, "x-api-key") ?? bearerOf(request.headers.authorization);
  return authenticate({ kind, remote, token, stated }, services);
}

/** Authenticates an upload by the token in its URL */
export function admitByAddress(
  { query }: ControlCall,
  { kind }: Asked,
  { id = "", hash = "" }: Record<string, string>,
  { accessTokens }: E2bServices,
): Identity {
  const maker = query.get("by") ?? "";
  const expires = query.get("expires") ?? "";
  const project = query.get("project") ?? DEFAULT_PROJECT;
  const isOpened = accessTokens.opens(query.get("token") ?? "", uploadOf(project, { template: id, hash, expires, maker }), "upload");
  if (kind === "tcp" && !(isOpened && Number(expires) * 1000 > Date.now()))
    throw new ForkdError("UNAUTHORIZED", "Cannot take the file: its address is expired or invalid.");
  const rights = { scope: "exec", maxSandboxes: null, project } as const;
  if (kind === "unix") return { name: "local", ...rights };
  return { name: maker, ...rights, via: "upload" };
}

/** What the token in the address of an upload is for */
export function uploadOf(project: string, of: { template: string; hash: string; expires: string; maker: string }): Accessed {
  return { id: `${project}/${of.template}/${of.hash}/${of.expires}`, created_by: of.maker };
}

/** Throws VMM_EXITED for a sandbox that does not exist, and UNAUTHORIZED */
export function admitToSandbox(call: SandboxCall, asked: Asked, services: E2bServices): Admitted {
  const { request, kind } = asked;
  const sandbox = find(call.id ?? search(call, asked, services), services);
  // the health check needs only the id, not a token
  if (call.path === "/health") {
    // a health check does not resume the sandbox
    if (sandbox.state === "suspended") throw new ForkdError("SANDBOX_SUSPENDED", `Sandbox ${sandbox.id} is suspended.`);
    return { identity: null, sandbox };
  }
  const rights = { scope: "exec", maxSandboxes: null, project: sandbox.project } as const;
  if (kind === "unix") return { identity: { name: "local", ...rights }, sandbox };
  const via = admit(call, request, sandbox, services);
  return { identity: { name: sandbox.created_by, ...rights, via, opens: sandbox.id }, sandbox };
}

function admit(call: SandboxCall, request: IncomingMessage, sandbox: SandboxInfo, { accessTokens }: E2bServices): Via {
  const token = headerOf(request, "x-access-token");
  if (token !== undefined) {
    if (accessTokens.opens(token, sandbox, "envd")) return "envd";
    throw new ForkdError("UNAUTHORIZED", call.path === "/files" ? "access token present in header but does not match" : NO_TOKEN);
  }
  const traffic = headerOf(request, "e2b-traffic-access-token");
  if (call.port === INTERPRETER_PORT && traffic !== undefined && accessTokens.opens(traffic, sandbox, "traffic")) return "traffic";
  if (call.path !== "/files") throw new ForkdError("UNAUTHORIZED", NO_TOKEN);
  const claim = signedIn(call.query, request.method ?? "GET");
  if (!claim) throw new ForkdError("UNAUTHORIZED", "missing signature query parameter");
  if (!isSignedBy(accessTokens.of(sandbox, "envd"), claim.signed, claim.signature))
    throw new ForkdError("UNAUTHORIZED", "invalid signature");
  const { expiration } = claim.signed;
  if (expiration !== null && !(Number(expiration) * 1000 > Date.now()))
    throw new ForkdError("UNAUTHORIZED", "signature is already expired");
  return "signature";
}

/** Finds the sandbox by its token or signature, which is compared with those of all sandboxes */
function search(call: SandboxCall, { request, kind, remote }: Asked, services: E2bServices): string {
  const { accessTokens, manager, searches } = services;
  const envd = headerOf(request, "x-access-token");
  const traffic = headerOf(request, "e2b-traffic-access-token");
  const claim = call.path === "/files" ? signedIn(call.query, request.method ?? "GET") : null;
  if (envd !== undefined || traffic !== undefined || claim) {
    if (kind === "tcp") refuseBlocked(remote, searches);
    const all = manager.sandboxes.makers();
    const found =
      (envd === undefined ? undefined : accessTokens.find(envd, all, "envd")) ??
      (traffic === undefined ? undefined : accessTokens.find(traffic, all, "traffic")) ??
      (claim ? all.find((sandbox) => isSignedBy(accessTokens.of(sandbox, "envd"), claim.signed, claim.signature)) : undefined);
    if (found) return found.id;
    searches.add(remote);
  }
  throw new ForkdError("UNAUTHORIZED", "Cannot identify the sandbox: E2b-Sandbox-Id, its access token or a valid signature is needed.");
}

/** The client is not authenticated yet, so the message must not suggest similar ids */
function find(name: string, { manager }: E2bServices): SandboxInfo {
  const known = manager.ports.find(name);
  if (!known) throw new ForkdError("VMM_EXITED", `There is no sandbox ${name.slice(0, MAX_SHOWN)}.`);
  return manager.sandboxes.get(known.id, known);
}

/** In-sandbox servers report an unknown sandbox as ended (VMM_EXITED) */
export function gone(error: unknown): unknown {
  if (!(error instanceof ForkdError) || error.code !== "NOT_FOUND") return error;
  return new ForkdError("VMM_EXITED", error.message, { cause: error });
}

function headerOf({ headers }: IncomingMessage, name: string): string | undefined {
  const value = headers[name];
  return typeof value === "string" && value !== "" ? value : undefined;
}
