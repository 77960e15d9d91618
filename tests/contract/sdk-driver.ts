// Contract driver for the Controller of the TypeScript SDK.

import { buffer } from "node:stream/consumers";
import { Controller, ForkdError, SandboxProcesses } from "forkd";
import { buildOpenapi } from "../../packages/daemon/src/api/openapi.ts";
import { methodsOf } from "../../scripts/gen/methods.ts";
import { patience } from "../helpers/patience.ts";
import type { RouteName } from "../../packages/daemon/src/api/routes.ts";
import type { TestDaemon } from "../helpers/daemon.ts";
import type { Args, Driver } from "./case.ts";

type Said = Required<Pick<Args, "params" | "query" | "body">> & Args;
type Calls = { [N in RouteName]?: (forkd: Controller, said: Said) => Promise<unknown> };

export function sdkDriver(daemon: TestDaemon): Driver {
  return {
    name: "sdk",
    call: async (route, args) => {
      const { token } = args;
      const forkd =
        token === undefined
          ? daemon.controller
          : new Controller({ url: `http://${daemon.bind}`, ...(token === "" ? {} : { token }), timeoutMs: patience() });
      try {
        const said = { params: {}, query: {}, body: {}, ...args };
        const value = await (CALLS[route] ?? generated(route))(forkd, said);
        const next = Array.isArray(value) ? ((value as { nextCursor?: string | null }).nextCursor ?? null) : null;
        return { value: value ?? null, next };
      } catch (error) {
        if (!(error instanceof ForkdError)) throw error;
        const { code, message, status, details } = error;
        return { code, message, status, details };
      }
    },
  };
}

/** A generated method: arguments in order, other fields as options */
function generated(route: RouteName): NonNullable<Calls[RouteName]> {
  const method = METHODS.get(route);
  if (method === undefined) throw new Error(`the SDK has no generated method for ${route}`);
  return async (forkd, { params, query, body }) => {
    const rest: Record<string, unknown> = { ...query, ...body };
    const args = method.args.map(({ wire, place }) => {
      const value = place === "path" ? params[wire] : rest[wire];
      if (place !== "path") delete rest[wire];
      return text(value);
    });
    const call = forkd[method.name as keyof Controller] as (...all: unknown[]) => Promise<unknown>;
    return call.apply(forkd, [...args, camel(rest)]);
  };
}

const METHODS = new Map(methodsOf(buildOpenapi()).map((method) => [method.route, method]));

/** Calls that need more than renamed fields */
const CALLS: Calls = {
  stopDaemon: async (forkd, { body }) => forkd.stop(camel(body)),
  collectGarbage: async (forkd, { body }) => forkd.gc(camel(body)),
  getEvents: takeEvents,
  createProject: async (forkd, { body: { name, ...rest } }) => forkd.createProject(text(name), camel(rest)),
  updateProject: async (forkd, { params, body }) => forkd.updateProject(text(params["name"]), camel(body)),
  createToken: async (forkd, { body: { name, ...rest } }) => forkd.createToken(text(name), camel(rest)),

  createImage: async (forkd, { body }) => forkd.createImage(camel(body)),
  listSnapshots: async (forkd, { query }) => forkd.listSnapshots(filters(query)),
  createSnapshot: async (forkd, { body: { tag, warm_up: warmUp, ...rest } }) =>
    forkd.createSnapshot(text(tag), { ...(options(rest) as object), ...(warmUp ? { warmUp: camel(warmUp) } : {}) }),
  updateSnapshot: async (forkd, { params, body }) => forkd.updateSnapshot(text(params["tag"]), camel(body)),
  deleteSnapshot: async (forkd, { params, query }) => forkd.deleteSnapshot(text(params["tag"]), camel(query)),
  compactSnapshot: async (forkd, { params, body }) => forkd.compactSnapshot(text(params["tag"]), text(body["to"])),
  pushSnapshot: async (forkd, { params, body: { to, ...rest } }) => forkd.pushSnapshot(text(params["tag"]), text(to), camel(rest)),
  pullSnapshot: async (forkd, { body: { from, ...rest } }) => forkd.pullSnapshot(text(from), camel(rest)),
  listHub: async (forkd, { query }) => forkd.listHub(camel(query)),

  listRecipes: async (forkd) => forkd.listRecipes(),
  checkRecipe: async (forkd, { body: { source, ...rest } }) => forkd.checkRecipe(text(source), camel(rest)),
  buildRecipe: async (forkd, { query: { recipe, set, no_cache: noCache, ...rest }, body: { source } }) => {
    const opts = { ...(camel(rest) as object), noCache: noCache === true, ...(set === undefined ? {} : { set: pairsOf(set) }) };
    return forkd.buildRecipe(source === undefined ? text(recipe) : { source: text(source) }, opts);
  },

  listSandboxes: async (forkd, { query }) => forkd.listSandboxes(filters(query)),
  createSandboxes: async (forkd, { body: { snapshot_tag: tag, per_item: perItem, ...rest } }) =>
    perItem === true
      ? { results: await forkd.trySpawnSandboxes(text(tag), options(rest)) }
      : forkd.spawnSandboxes(text(tag), options(rest)),
  deleteSandboxes: async (forkd, { query }) => forkd.killSandboxes(camel(query)),
  updateSandbox: async (forkd, { params, body }) => forkd.updateSandbox(text(params["id"]), camel(body)),
  execCommand: async (forkd, { params, body: { args, ...rest } }) => forkd.execCommand(text(params["id"]), args as string[], camel(rest)),
  evalCode: async (forkd, { params, body: { code, ...rest } }) => forkd.evalCode(text(params["id"]), text(code), camel(rest)),
  evalStream: async (forkd, { params, body: { code, ...rest } }) =>
    forkd.evalCode(text(params["id"]), text(code), { ...(camel(rest) as object), onStdout: () => undefined }),
  createContext: async (forkd, { params, body: { language, ...rest } }) =>
    forkd.createContext(text(params["id"]), language as "bash", camel(rest)),
  branchSandbox: async (forkd, { params, body }) => forkd.branchSandbox(text(params["id"]), camel(body)),
  forkSandbox: async (forkd, { params, body }) => forkd.forkSandbox(text(params["id"]), options(body)),
  setNetwork: async (forkd, { params, body }) => forkd.setNetwork(text(params["id"]), camel(body)),
  getSandboxLogs: async (forkd, { params, query }) => (await Array.fromAsync(forkd.logs(text(params["id"]), camel(query)))).join(""),
  readFile: async (forkd, { params, query: { path, ...rest } }) =>
    Buffer.from(await forkd.readFile(text(params["id"]), text(path), camel(rest))),
  writeFile: async (forkd, { params, query: { path, ...rest }, bytes }) =>
    forkd.writeFile(text(params["id"]), text(path), bytes ?? Buffer.alloc(0), camel(rest)),
  statFile: async (forkd, { params, query: { path, ...rest } }) => forkd.statFile(text(params["id"]), text(path), camel(rest)),
  listFiles: async (forkd, { params, query: { path, ...rest } }) => forkd.listFiles(text(params["id"]), text(path), camel(rest)),
  makeDirectory: async (forkd, { params, body: { path, ...rest } }) => forkd.makeDirectory(text(params["id"]), text(path), camel(rest)),
  moveFile: async (forkd, { params, body: { from, to, ...rest } }) => forkd.moveFile(text(params["id"]), text(from), text(to), camel(rest)),
  copyFile: async (forkd, { params, body: { from, to, ...rest } }) => forkd.copyFile(text(params["id"]), text(from), text(to), camel(rest)),
  removeFile: async (forkd, { params, query: { path, ...rest } }) => forkd.removeFile(text(params["id"]), text(path), camel(rest)),
  chmodFile: async (forkd, { params, body: { path, mode, ...rest } }) =>
    forkd.chmodFile(text(params["id"]), text(path), text(mode), camel(rest)),
  chownFile: async (forkd, { params, body: { path, ...rest } }) => forkd.chownFile(text(params["id"]), text(path), camel(rest)),
  makeSymlink: async (forkd, { params, body: { target, path, ...rest } }) =>
    forkd.makeSymlink(text(params["id"]), text(target), text(path), camel(rest)),
  watchFiles: takeChanges,
  readTar: async (forkd, { params, query: { path, ...rest } }) =>
    Buffer.concat(await Array.fromAsync(forkd.readTar(text(params["id"]), text(path), camel(rest)))),
  writeTar: async (forkd, { params, query: { path, ...rest }, bytes }) =>
    forkd.writeTar(text(params["id"]), text(path), bytes ?? Buffer.alloc(0), camel(rest)),

  preparePack: async (forkd, { params, body }) => forkd.preparePack(text(params["tag"]), camel(body)),
  readPack: async (forkd, { params, query: { without, ...rest } }) => {
    const opts = { ...(camel(rest) as object), ...(without === undefined ? {} : { without: text(without).split(",") }) };
    return Buffer.concat(await Array.fromAsync(forkd.readPack(text(params["tag"]), opts)));
  },
  unpack: async (forkd, { query, bytes }) => forkd.unpack(bytes ?? Buffer.alloc(0), camel(query)),
  createKey: async (forkd, { body: { name, ...rest } }) => forkd.createKey(text(name), camel(rest)),

  createPreview: async (forkd, { params, body }) => forkd.createPreview(text(params["id"]), Number(params["port"]), camel(body)),
  connectPort: async (forkd, { params, bytes }) => {
    const connection = await forkd.connectPort(text(params["id"]), Number(params["port"]));
    connection.end(bytes);
    return buffer(connection);
  },
  proxyRequest: async (forkd, { params, query, bytes }) => {
    const init = bytes === undefined ? {} : { method: "POST", body: bytes };
    const search = new URLSearchParams(query as Record<string, string>).toString();
    const response = await forkd.fetchPort(text(params["id"]), Number(params["port"]), `/${params["path"]}?${search}`, init);
    return response.text();
  },
  startProcess: async (forkd, { params, body: { args, ...rest } }) => forkd.startProcess(text(params["id"]), args as string[], camel(rest)),
  streamProcess: async () => Promise.reject(new Error("a WebSocket, which this package does not use")),
  watchProcess,
  writeStdin: async (forkd, { params, query, bytes }) =>
    forkd.writeStdin(text(params["id"]), text(params["process"]), bytes ?? Buffer.alloc(0), camel(query)),
  signalProcess: async (forkd, { params, body: { signal, ...rest } }) =>
    forkd.signalProcess(text(params["id"]), text(params["process"]), signal as "SIGINT", camel(rest)),
  resizeProcess: async (forkd, { params, body }) => forkd.resizeProcess(text(params["id"]), text(params["process"]), camel(body)),

  createWorkspace: async (forkd, { body: { name, snapshot_tag: tag, ...rest } }) =>
    forkd.createWorkspace(text(name), text(tag), camel(rest)),
  suspendWorkspace: async (forkd, { params, body }) => forkd.suspendWorkspace(text(params["name"]), camel(body)),
};

async function watchProcess(forkd: Controller, { params, query }: Said): Promise<unknown> {
  const { stdout_from: stdout = 0, stderr_from: stderr = 0 } = query;
  const from = stdout === "now" ? "now" : `${text(stdout)}-${text(stderr)}`;
  const live = await new SandboxProcesses(forkd, text(params["id"])).attach(text(params["process"]), { from });
  const out = { stdout: "", stderr: "" };
  for await (const event of live.output()) if (event.type !== "lost") out[event.type] += event.text;
  return { ...out, ...(await live.wait()) };
}

async function takeEvents(forkd: Controller, { query, take = 1 }: Said): Promise<unknown> {
  const { types, ...rest } = query;
  const events: unknown[] = [];
  const asked = { ...rest, ...(types === undefined ? {} : { types: String(types).split(",") }) };
  for await (const event of forkd.events(asked as object)) {
    events.push(event);
    if (events.length >= take) break;
  }
  return events;
}

async function takeChanges(forkd: Controller, { params, query: { path, ...rest }, take = 1 }: Said): Promise<unknown> {
  const changes: unknown[] = [];
  await using watch = await forkd.watchFiles(text(params["id"]), text(path), camel(rest));
  for await (const change of watch) if (changes.push(change) >= take) break;
  return changes;
}

/** Converts `metadata` to an object; other filters keep their names */
function filters(query: Said["query"]): object {
  const { metadata, ...rest } = query;
  if (metadata === undefined) return camel(rest);
  const entries = [metadata].flat().map((pair) => [String(pair).split("=")[0], String(pair).slice(String(pair).indexOf("=") + 1)]);
  return { ...(camel(rest) as object), metadata: Object.fromEntries(entries) as object };
}

/** Options in camel case, including the fields of `network` */
function options({ network, ...rest }: Said["body"]): never {
  return { ...(camel(rest) as object), ...(network ? { network: camel(network) } : {}) } as never;
}

/** Fields in camel case; the daemon validates the values */
function camel(fields: object): never {
  const entries = Object.entries(fields).map(([key, value]) => [
    key.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase()),
    value as unknown,
  ]);
  return Object.fromEntries(entries) as never;
}

function pairsOf(values: unknown): Record<string, string> {
  const all = [values].flat().map(String);
  return Object.fromEntries(all.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]));
}

function text(value: unknown): string {
  return String(value);
}
