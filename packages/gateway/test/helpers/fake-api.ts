// A Kubernetes API server without Kubernetes: objects in memory, lists, watches and conflicts, as far as a gateway asks.

import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import { endServer, followHandshakes } from "@forkd/runtime/util/end-server";
import { findAccess } from "../../src/kubernetes/access.ts";
import { KubernetesApi } from "../../src/kubernetes/api.ts";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";

const run = promisify(execFile);
const ROOT = "/api/v1/namespaces/forkd/secrets";
/** Name in the certificates of daemons */
const NODES = "forkd-nodes.forkd.svc";
export const TOKEN = "token-of-the-service-account";

export type Stored = {
  metadata: { name: string; uid: string; resourceVersion: string; generation: number; creationTimestamp: string };
  spec?: unknown;
  status?: unknown;
};
type Watch = { list: string; field: string | null; response: ServerResponse };

export class FakeApi {
  readonly #server: Server;
  readonly #folder: string;
  readonly #objects = new Map<string, Stored>();
  readonly #watches = new Set<Watch>();
  #version = 1;
  #port = 0;
  /** requests as "VERB path", without their queries */
  readonly seen: string[] = [];
  /** answers the next requests for which it returns a status */
  refuse: (verb: string, path: string) => number | undefined = () => undefined;
  token = TOKEN;
  /** its own certificate, which is that of the daemons too */
  readonly tls: { key: Buffer; cert: Buffer };

  private constructor(server: Server, tls: FakeApi["tls"], folder: string) {
    this.#server = server;
    this.tls = tls;
    this.#folder = folder;
    followHandshakes(server);
    server.on("request", (request, response) => void this.#serve(request, response));
  }

  static async start(t: TestContext): Promise<FakeApi> {
    const folder = await mkdtemp(join(tmpdir(), "forkd-fake-api-"));
    const path = (name: string): string => join(folder, name);
    const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-keyout", path("key")];
    await run("openssl", [
      "req",
      "-x509",
      ...key,
      "-subj",
      "/CN=api",
      "-addext",
      `subjectAltName=IP:127.0.0.1,DNS:${NODES}`,
      "-out",
      path("ca.crt"),
    ]);
    const tls = { key: await readFile(path("key")), cert: await readFile(path("ca.crt")) };
    const api = new FakeApi(createServer(tls), tls, folder);
    await api.up();
    t.after(async () => {
      await api.down();
      await rm(folder, { recursive: true, force: true });
    });
    return api;
  }

  async up(): Promise<void> {
    await once(this.#server.listen(this.#port, "127.0.0.1"), "listening");
    this.#port = (this.#server.address() as AddressInfo).port;
  }

  /** Connections end at once, as when the process is killed */
  async down(): Promise<void> {
    await endServer(this.#server);
  }

  /** Path of a kubeconfig for this server */
  async kubeconfig(user: object = { token: TOKEN }): Promise<string> {
    const path = join(this.#folder, "config");
    await writeFile(
      path,
      JSON.stringify({
        clusters: [{ name: "c", cluster: { server: `https://127.0.0.1:${this.#port}`, "certificate-authority": "ca.crt" } }],
        users: [{ name: "u", user }],
        contexts: [{ name: "x", context: { cluster: "c", user: "u", namespace: "forkd" } }],
        "current-context": "x",
      }),
    );
    return path;
  }

  async client(t: TestContext): Promise<KubernetesApi> {
    const api = new KubernetesApi(await findAccess({ KUBECONFIG: await this.kubeconfig() }));
    t.after(() => api[Symbol.dispose]());
    return api;
  }

  get watching(): number {
    return this.#watches.size;
  }

  /** Ends all watches: orderly as after their time, or with a Status */
  endWatches(status?: { code: number; message: string }): void {
    for (const { response } of this.#watches) {
      if (status) response.write(`${JSON.stringify({ type: "ERROR", object: { kind: "Status", ...status } })}\n`);
      response.end();
    }
    this.#watches.clear();
  }

  /** Writes to all watches as they are */
  writeRaw(piece: string | Buffer): void {
    for (const { response } of this.#watches) response.write(piece);
  }

  /** Watches see nothing of it, as of a change during which they were cut off */
  putUnseen(name: string, more: object = {}, list = ROOT): void {
    this.#put(list, name, more, { isSeen: false });
  }

  put(name: string, more: object = {}, list = ROOT): void {
    this.#put(list, name, more, { isSeen: true });
  }

  remove(name: string, list = ROOT): void {
    const object = this.#objects.get(`${list}/${name}`);
    if (!object) return;
    this.#objects.delete(`${list}/${name}`);
    this.#tell("DELETED", list, { ...object, metadata: { ...object.metadata, resourceVersion: String(++this.#version) } });
  }

  get(name: string, list = ROOT): Stored | undefined {
    return this.#objects.get(`${list}/${name}`);
  }

  names(list: string): string[] {
    return [...this.#objects].filter(([path]) => path.startsWith(`${list}/`)).map(([, { metadata }]) => metadata.name);
  }

  #put(list: string, name: string, more: object, { isSeen }: { isSeen: boolean }): Stored {
    const path = `${list}/${name}`;
    const known = this.#objects.get(path);
    const { metadata: _given, ...rest } = more as Partial<Stored>;
    const hasChanged = JSON.stringify(known?.spec) !== JSON.stringify(rest.spec);
    const object = {
      ...rest,
      metadata: {
        name,
        uid: known?.metadata.uid ?? `uid-${this.#version}`,
        resourceVersion: String(++this.#version),
        generation: (known?.metadata.generation ?? 0) + (hasChanged ? 1 : 0),
        creationTimestamp: known?.metadata.creationTimestamp ?? new Date().toISOString(),
      },
    };
    this.#objects.set(path, object);
    if (isSeen) this.#tell(known ? "MODIFIED" : "ADDED", list, object);
    return object;
  }

  #tell(type: string, list: string, object: Stored): void {
    for (const watch of this.#watches)
      if (watch.list === list && (watch.field === null || watch.field === object.metadata.name))
        watch.response.write(`${JSON.stringify({ type, object })}\n`);
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, searchParams } = new URL(request.url ?? "/", "https://api");
    const verb = request.method ?? "";
    this.seen.push(`${verb} ${pathname}`);
    const body = await text(request);
    const given = body === "" ? {} : (JSON.parse(body) as Partial<Stored> & { preconditions?: { resourceVersion?: string } });
    const answer = (code: number, value: object): void => {
      response.writeHead(code, { "content-type": "application/json" }).end(JSON.stringify(value));
    };
    const fail = (code: number, message: string): void => answer(code, { kind: "Status", code, message });
    if (request.headers.authorization !== `Bearer ${this.token}`) return fail(401, "Unauthorized");
    const refused = this.refuse(verb, pathname);
    if (refused !== undefined) return fail(refused, `refused with ${refused}`);
    const isList = /\/namespaces\/forkd\/[a-z]+$/.test(pathname) || pathname === "/api/v1/nodes";
    const field = searchParams.get("fieldSelector")?.replace("metadata.name=", "") ?? null;
    if (isList && verb === "GET" && searchParams.get("watch") === "true") {
      const watch = { list: pathname, field, response };
      response.writeHead(200, { "content-type": "application/json" }).flushHeaders();
      this.#watches.add(watch);
      response.once("close", () => this.#watches.delete(watch));
      return undefined;
    }
    if (isList && verb === "GET") {
      const items = [...this.#objects].filter(([path]) => path.startsWith(`${pathname}/`)).map(([, object]) => object);
      const named = items.filter(({ metadata }) => field === null || metadata.name === field);
      return answer(200, { metadata: { resourceVersion: String(this.#version) }, items: named });
    }
    if (isList && verb === "POST") {
      const name = given.metadata?.name ?? "";
      if (this.#objects.has(`${pathname}/${name}`)) return fail(409, "AlreadyExists");
      return answer(201, this.#put(pathname, name, given, { isSeen: true }));
    }
    const path = pathname.replace(/\/status$/, "");
    const [list, name] = [path.slice(0, path.lastIndexOf("/")), path.slice(path.lastIndexOf("/") + 1)];
    const known = this.#objects.get(path);
    if (!known) return fail(404, "NotFound");
    if (verb === "GET") return answer(200, known);
    const version = given.preconditions?.resourceVersion ?? given.metadata?.resourceVersion;
    if (version !== undefined && version !== known.metadata.resourceVersion) return fail(409, "Conflict");
    if (verb === "DELETE") {
      this.remove(name, list);
      return answer(200, { kind: "Status", status: "Success" });
    }
    const changed = path === pathname ? { ...given, status: known.status } : { ...known, status: given.status };
    return answer(200, this.#put(list, name, changed, { isSeen: true }));
  }
}
