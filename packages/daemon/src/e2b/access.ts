// Who may use E2B's protocol: a token of ours is its API key, and each sandbox has an access token of its own.

import { ForkdError } from "../errors.ts";
import { authenticate, authorize, bearerOf } from "../http/auth.ts";
import { INTERPRETER_PORT } from "./call.ts";
import { isSignedBy, signedIn } from "./signature.ts";
import type { IncomingMessage } from "node:http";
import type { Scope } from "../api/daemon.ts";
import type { SandboxInfo } from "../api/sandbox.ts";
import type { TransportKind } from "../http/auth.ts";
import type { AccessKind } from "../store/access-tokens.ts";
import type { Identity } from "../store/tokens.ts";
import type { ControlCall, SandboxCall } from "./call.ts";
import type { E2bServices } from "./work.ts";

export type Asked = { request: IncomingMessage; kind: TransportKind; remote: string };

type Admitted = { identity: Identity | null; sandbox: SandboxInfo };

export function admitToControl({ request, kind, remote }: Asked, scope: Scope, services: E2bServices): Identity {
  const { headers } = request;
  const token = headerOf(request, "x-api-key") ?? bearerOf(headers.authorization);
  const identity = authenticate({ kind, remote, token }, services);
  authorize(identity, scope);
  return identity;
}

/** By the token in an address that was given to somebody who may */
export function admitByAddress(
  { query }: ControlCall,
  { kind }: Asked,
  { id = "", hash = "" }: Record<string, string>,
  { accessTokens }: E2bServices,
): Identity {
  const maker = query.get("by") ?? "";
  if (kind === "tcp" && !accessTokens.opens(query.get("token") ?? "", { id: `${id}/${hash}`, created_by: maker }, "upload"))
    throw new ForkdError("UNAUTHORIZED", "Cannot take the file: its address is not valid any more, or never was.");
  return { name: maker, scope: "exec", maxSandboxes: null };
}

/** Throws VMM_EXITED for a sandbox that is not there, and UNAUTHORIZED */
export function admitToSandbox(call: SandboxCall, asked: Asked, services: E2bServices): Admitted {
  const { request, kind } = asked;
  const sandbox = call.id === null ? search(call, request, services) : find(call.id, services);
  // whether a sandbox lives, everybody may ask who knows its id
  if (call.path === "/health") {
    // and nobody is woken up by being asked after
    if (sandbox.state === "suspended") throw new ForkdError("SANDBOX_SUSPENDED", `Sandbox ${sandbox.id} is suspended.`);
    return { identity: null, sandbox };
  }
  if (kind === "tcp") admit(call, request, sandbox, services);
  const identity: Identity = { name: kind === "unix" ? "local" : sandbox.created_by, scope: "exec", maxSandboxes: null };
  return { identity, sandbox };
}

function admit(call: SandboxCall, request: IncomingMessage, sandbox: SandboxInfo, { accessTokens }: E2bServices): void {
  const token = headerOf(request, "x-access-token");
  if (token !== undefined) {
    if (accessTokens.opens(token, sandbox, "envd")) return;
    throw new ForkdError("UNAUTHORIZED", "Cannot open the sandbox: its access token is another one.");
  }
  const traffic = headerOf(request, "e2b-traffic-access-token");
  if (call.port === INTERPRETER_PORT && traffic !== undefined && accessTokens.opens(traffic, sandbox, "traffic")) return;
  const claim = call.path === "/files" ? signedIn(call.query, request.method ?? "GET") : null;
  if (!claim) throw new ForkdError("UNAUTHORIZED", "Cannot open the sandbox: its access token is needed, as X-Access-Token.");
  if (!isSignedBy(accessTokens.of(sandbox, "envd"), claim.signed, claim.signature))
    throw new ForkdError("UNAUTHORIZED", "Cannot open the file: invalid signature.");
  const { expiration } = claim.signed;
  if (expiration !== null && !(Number(expiration) * 1000 > Date.now()))
    throw new ForkdError("UNAUTHORIZED", "Cannot open the file: signature is already expired.");
}

/** By what only one sandbox can have made: there are as many to look at as live */
function search(call: SandboxCall, request: IncomingMessage, services: E2bServices): SandboxInfo {
  const { accessTokens, manager } = services;
  const all = manager.sandboxes.list({}).items;
  const kinds: [AccessKind, string | undefined][] = [
    ["envd", headerOf(request, "x-access-token")],
    ["traffic", headerOf(request, "e2b-traffic-access-token")],
  ];
  for (const [kind, token] of kinds) {
    const found = token === undefined ? undefined : all.find((sandbox) => accessTokens.opens(token, sandbox, kind));
    if (found) return found;
  }
  const claim = call.path === "/files" ? signedIn(call.query, request.method ?? "GET") : null;
  const signer = claim && all.find((sandbox) => isSignedBy(accessTokens.of(sandbox, "envd"), claim.signed, claim.signature));
  if (signer) return signer;
  throw new ForkdError(
    "UNAUTHORIZED",
    "Cannot tell which sandbox is meant: E2b-Sandbox-Id, its access token or a valid signature is needed.",
  );
}

function find(id: string, { manager }: E2bServices): SandboxInfo {
  try {
    return manager.sandboxes.get(id);
  } catch (error) {
    throw gone(error);
  }
}

/** To those who ask inside a sandbox, one that never was and one that has ended are the same */
export function gone(error: unknown): unknown {
  if (!(error instanceof ForkdError) || error.code !== "NOT_FOUND") return error;
  return new ForkdError("VMM_EXITED", error.message, { cause: error });
}

function headerOf({ headers }: IncomingMessage, name: string): string | undefined {
  const value = headers[name];
  return typeof value === "string" && value !== "" ? value : undefined;
}
