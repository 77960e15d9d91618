// Requests of the API server: discovery, and objects by their paths.

import { readJson } from "@forkd/daemon/streams/body";
import { readGiven } from "./given.ts";
import { isRecord, type KubernetesObject } from "./objects.ts";
import { openapi } from "./openapi.ts";
import { patched } from "./patch.ts";
import { refusal, success } from "./refusal.ts";
import {
  aggregatedDiscovery,
  apiVersionOf,
  groupList,
  groupOf,
  GROUPS,
  isResource,
  isSubresource,
  resourceList,
  RESOURCES,
  VERSION,
  type Resource,
} from "./resources.ts";
import { act, claims, notFound, sandboxes } from "./sandboxes.ts";
import { selectorOf } from "./selectors.ts";
import { formOf, metadataOf, tableOf } from "./table.ts";
import { pools, templates } from "./templates.ts";
import { startWatch } from "./watch.ts";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { ForkdError } from "@forkd/runtime/errors";
import type { Identity } from "@forkd/daemon/store/tokens";
import type { Limits } from "@forkd/daemon/streams/limits";
import type { Agents, Call, Store } from "./call.ts";

const STORES: Readonly<Record<Resource, Store>> = {
  sandboxes,
  sandboxclaims: claims,
  sandboxtemplates: templates,
  sandboxwarmpools: pools,
};
const PATH = /^\/apis\/([^/]+)\/([^/]+)(?:\/namespaces\/([^/]+))?\/([^/]+)(?:\/([^/]+))?(?:\/([^/]+))?$/;
/** Not the older form v2beta1 */
const DISCOVERY = /\bv=v2;as=APIGroupDiscoveryList\b|\bas=APIGroupDiscoveryList;v=v2\b(?!beta)/;
const AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/** Of principals: PROJECT/NAME */
const MAX_PRINCIPAL = 129;
/** Clients begin a watch again then; not all at the same moment */
const WATCH_MS = 30 * 60_000;
const MAX_WATCH_MS = 60 * 60_000;

export type Asked = {
  user: string;
  request: IncomingMessage;
  response: ServerResponse;
  limits: Limits;
  signal: AbortSignal;
  stopping: AbortSignal;
};

type Answer = { status: number; body: object; contentType?: string };
type Place = { resource: Resource; namespace: string | null; name: string | undefined; sub: string | undefined };

/** Throws ForkdError or Refused before the answer has begun */
export async function serveApi(agents: Agents, asked: Asked): Promise<void> {
  const { request, response } = asked;
  const url = new URL(request.url ?? "/", "https://localhost");
  const discovered = request.method === "GET" ? discovery(url.pathname, request.headers.accept) : null;
  if (discovered) {
    send(response, discovered, []);
    return;
  }
  const place = placeOf(url.pathname);
  const call = callOf(agents, asked, place, url.searchParams);
  const answer = await answerTo(call, asked, place, url.searchParams);
  if (answer) send(response, answer, call.warnings);
}

/** @param user as the API server names it */
function principalOf(user: string): string {
  return `kubernetes:${user}`.slice(0, MAX_PRINCIPAL);
}

function discovery(path: string, accept: string | undefined): Answer | null {
  if (path === "/apis" || path === "/apis/")
    return accept !== undefined && DISCOVERY.test(accept)
      ? { status: 200, body: aggregatedDiscovery(), contentType: AGGREGATED }
      : { status: 200, body: groupList() };
  for (const group of GROUPS) {
    if (path === `/apis/${group}`) return { status: 200, body: groupOf(group) };
    if (path === `/apis/${group}/${VERSION}`) return { status: 200, body: resourceList(group) };
  }
  const document = openapi(path);
  return document && { status: 200, body: document };
}

function placeOf(path: string): Place {
  const [, group = "", version, namespace, resource = "", name, sub] = (PATH.exec(path) ?? []).map((part) =>
    part === undefined ? undefined : unescaped(part),
  );
  if (version !== VERSION || !isResource(resource, group) || (name !== undefined && namespace === undefined))
    throw refusal("NotFound", "the server could not find the requested resource");
  return { resource, namespace: namespace ?? null, name, sub };
}

function callOf(agents: Agents, { user, request, signal }: Asked, { namespace }: Place, query: URLSearchParams): Call {
  const dryRun = query.getAll("dryRun");
  if (dryRun.some((value) => value !== "All")) throw refusal("BadRequest", "dryRun must be All.");
  // The API server has checked the user's rights for this path; a namespace is a project.
  const identity: Identity = { name: principalOf(user), project: namespace ?? "default", scope: "admin", maxSandboxes: null };
  const remote = request.socket.remoteAddress ?? "unknown";
  return { agents, caller: { identity, remote }, namespace, signal, isDryRun: dryRun.length > 0, warnings: [] };
}

/** null: a watch, which has begun */
async function answerTo(call: Call, asked: Asked, place: Place, query: URLSearchParams): Promise<Answer | null> {
  const { method = "GET" } = asked.request;
  const { resource, name, sub } = place;
  if (sub !== undefined) {
    if (resource !== "sandboxes" || !isSubresource(sub)) throw refusal("NotFound", "the server could not find the requested resource");
    if (method !== "POST") throw notAllowed(method);
    return { status: 201, body: await act(call, name ?? "", sub, await bodyOf(asked)) };
  }
  if (name === undefined) {
    if (method === "POST" && call.namespace !== null) return create(call, asked, place);
    if (method !== "GET") throw notAllowed(method);
    if (["1", "true"].includes(query.get("watch") ?? "")) {
      await watch(call, asked, place, query);
      return null;
    }
    return list(call, asked, place, query);
  }
  const current = await STORES[resource].get(call, name);
  if (!current) throw notFound(resource, name);
  const versioned = call.agents.journal.versioned(resource, current);
  if (method === "GET") return { status: 200, body: shown(asked, resource, versioned, query) };
  if (method === "DELETE") return remove(call, asked, place, versioned);
  if (method !== "PUT" && method !== "PATCH") throw notAllowed(method);
  return { status: 200, body: await change(call, asked, place, versioned) };
}

async function create(call: Call, asked: Asked, { resource }: Place): Promise<Answer> {
  const given = readGiven(resource, await bodyOf(asked), { namespace: call.namespace ?? "" });
  if (given.resourceVersion !== undefined)
    throw refusal("BadRequest", "metadata.resourceVersion must not be set on an object to be created");
  return { status: 201, body: await STORES[resource].create(call, given) };
}

async function change(call: Call, asked: Asked, { resource, name = "" }: Place, current: KubernetesObject): Promise<object> {
  const { method, headers } = asked.request;
  const body = await bodyOf(asked);
  const wanted = method === "PUT" ? body : patched(current, headers["content-type"], body);
  const given = readGiven(resource, wanted, { namespace: call.namespace ?? "", name });
  checkSame(resource, current, given);
  return STORES[resource].update(call, given, current);
}

async function remove(call: Call, asked: Asked, { resource, name = "" }: Place, current: KubernetesObject): Promise<Answer> {
  const options = await bodyOf(asked);
  if (isRecord(options)) {
    const { preconditions, dryRun } = options;
    if (isRecord(preconditions)) checkSame(resource, current, preconditions);
    if (Array.isArray(dryRun) && dryRun.length > 0) call.isDryRun = true;
  }
  await STORES[resource].remove(call, current);
  const { group } = RESOURCES[resource];
  return { status: 200, body: success({ name, group, kind: resource, uid: current.metadata.uid }) };
}

function checkSame(
  resource: Resource,
  { metadata }: KubernetesObject,
  { uid, resourceVersion }: { uid?: unknown; resourceVersion?: unknown },
): void {
  const { name } = metadata;
  if (typeof uid === "string" && uid !== "" && uid !== metadata.uid)
    throw refusal("Conflict", `${resource} ${JSON.stringify(name)} is another one: its UID is ${metadata.uid}, not ${uid}.`);
  if (typeof resourceVersion === "string" && resourceVersion !== "" && resourceVersion !== metadata.resourceVersion)
    throw refusal("Conflict", `${resource} ${JSON.stringify(name)} was changed meanwhile: read it again.`);
}

async function list(call: Call, asked: Asked, { resource }: Place, query: URLSearchParams): Promise<Answer> {
  const matches = selectorOf(query);
  const items = sorted(await STORES[resource].list(call)).filter(matches);
  const version = String(call.agents.journal.tick());
  const form = formOf(asked.request.headers.accept);
  if (form === "table") return { status: 200, body: tableOf(resource, items, { version, include: query.get("includeObject") }) };
  const metadata = { resourceVersion: version };
  if (form === "metadata") {
    const list = { kind: "PartialObjectMetadataList", apiVersion: "meta.k8s.io/v1", metadata, items: items.map(metadataOf) };
    return { status: 200, body: list };
  }
  const { group, kind } = RESOURCES[resource];
  return { status: 200, body: { apiVersion: apiVersionOf(group), kind: `${kind}List`, metadata, items } };
}

async function watch(call: Call, asked: Asked, { resource }: Place, query: URLSearchParams): Promise<void> {
  const { journal } = call.agents;
  const { namespace } = call;
  const selected = selectorOf(query);
  const version = query.get("resourceVersion") ?? "";
  const marksInitial = query.get("sendInitialEvents") === "true";
  const wantsInitial = marksInitial || version === "" || version === "0";
  const matches = (object: KubernetesObject): boolean =>
    (namespace === null || object.metadata.namespace === namespace) && selected(object);
  // the list brings the journal up to date, and the watch begins with what is there then
  if (wantsInitial) await STORES[resource].list(call);
  const seconds = Number(query.get("timeoutSeconds") ?? "0");
  startWatch(journal, asked.response, {
    resource,
    matches,
    initial: wantsInitial ? sorted(journal.all(resource)) : [],
    missed: wantsInitial ? [] : journal.since(version),
    wantsBookmarks: query.get("allowWatchBookmarks") === "true",
    marksInitial,
    shape: (object, isFirst) => shown(asked, resource, object, query, isFirst),
    timeoutMs: seconds > 0 ? Math.min(seconds * 1000, MAX_WATCH_MS) : WATCH_MS * (1 + Math.random()),
    empty: emptyOf(asked, resource),
    signal: asked.stopping,
  });
}

function shown({ request }: Asked, resource: Resource, object: KubernetesObject, query: URLSearchParams, hasColumns = true): object {
  const form = formOf(request.headers.accept);
  if (form === "metadata") return metadataOf(object);
  if (form === "objects") return object;
  const version = object.metadata.resourceVersion ?? "";
  return tableOf(resource, [object], { version, include: query.get("includeObject"), hasColumns });
}

/** Kind of bookmarks */
function emptyOf({ request }: Asked, resource: Resource): { apiVersion: string; kind: string } {
  const { group, kind } = RESOURCES[resource];
  const form = formOf(request.headers.accept);
  if (form === "objects") return { apiVersion: apiVersionOf(group), kind };
  return { apiVersion: "meta.k8s.io/v1", kind: form === "table" ? "Table" : "PartialObjectMetadata" };
}

function sorted(objects: KubernetesObject[]): KubernetesObject[] {
  const keyOf = ({ metadata: { namespace, name } }: KubernetesObject): string => `${namespace}/${name}`;
  return objects.toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
}

/** Patches have types of their own, which Node's JSON reader does not check */
async function bodyOf({ request, limits }: Asked): Promise<unknown> {
  const type = (request.headers["content-type"] ?? "application/json").split(";")[0]?.trim() ?? "";
  if (type !== "application/json" && !/^application\/[\w.-]+-patch(\+(json|yaml))?$/.test(type))
    throw refusal("UnsupportedMediaType", "The body must be JSON.");
  return readJson(request, limits);
}

function send(response: ServerResponse, { status, body, contentType = "application/json" }: Answer, warnings: readonly string[]): void {
  const bytes = JSON.stringify(body);
  const lines = warnings.map((warning) => `299 - ${JSON.stringify(warning.replaceAll(/[^\x20-\x7e]/g, "?"))}`);
  const headers = { "content-type": contentType, "content-length": String(Buffer.byteLength(bytes)), "cache-control": "no-cache, private" };
  response.writeHead(status, lines.length > 0 ? { ...headers, warning: lines.join(", ") } : headers).end(bytes);
}

function notAllowed(method: string): ForkdError {
  return refusal(
    "MethodNotAllowed",
    `${method} is not supported here: objects can be listed, watched, read, created, changed and deleted one by one.`,
  );
}

function unescaped(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch (error) {
    if (error instanceof URIError) throw refusal("BadRequest", "The path has malformed escapes.");
    throw error;
  }
}
