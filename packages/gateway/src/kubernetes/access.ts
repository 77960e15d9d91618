// Where the API server is and how to log in to it: a kubeconfig, or the service account of a pod.

import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { delimiter, dirname, join, resolve } from "node:path";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import { parse } from "yaml";
import * as z from "zod";

/** Kubernetes mounts it into every pod, and replaces the token before it expires */
const ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount";
/** A token in a file is valid for at least ten minutes after its replacement */
const TOKEN_FRESH_MS = 60_000;

const cluster = z.object({
  server: z.string(),
  "certificate-authority": z.string().optional(),
  "certificate-authority-data": z.string().optional(),
  "tls-server-name": z.string().optional(),
});
const user = z.object({
  token: z.string().optional(),
  tokenFile: z.string().optional(),
  "client-certificate": z.string().optional(),
  "client-certificate-data": z.string().optional(),
  "client-key": z.string().optional(),
  "client-key-data": z.string().optional(),
});
const context = z.object({ cluster: z.string(), user: z.string().optional(), namespace: z.string().optional() });
const kubeconfig = z.object({
  clusters: z.array(z.object({ name: z.string(), cluster })).nullish(),
  contexts: z.array(z.object({ name: z.string(), context })).nullish(),
  users: z.array(z.object({ name: z.string(), user: z.record(z.string(), z.unknown()) })).nullish(),
  "current-context": z.string().nullish(),
});

export type Access = {
  /** https://HOST:PORT, and a path if there is one */
  server: string;
  namespace: string;
  /** options of node:https */
  tls: { ca?: Buffer; cert?: Buffer; key?: Buffer; servername?: string };
  /** a path: its content changes */
  token: { text: string } | { path: string } | null;
};

/** As kubectl does: KUBECONFIG, ~/.kube/config, or the service account. Throws BAD_CONFIG */
export async function findAccess(env: NodeJS.ProcessEnv = process.env): Promise<Access> {
  const named = env["KUBECONFIG"] ?? "";
  const paths = named === "" ? [join(homedir(), ".kube", "config")] : named.split(delimiter).filter((path) => path !== "");
  for (const path of paths) {
    const text = await textOf(path);
    if (text === undefined) continue;
    try {
      return await fromKubeconfig(text, dirname(resolve(path)));
    } catch (error) {
      throw new ForkdError("BAD_CONFIG", `The kubeconfig ${path} cannot be used: ${messageOf(error)}.`, { cause: error });
    }
  }
  const [host, port] = [env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"]];
  if (named !== "" || !host || !port)
    throw new ForkdError("BAD_CONFIG", "There is no Kubernetes cluster: neither a kubeconfig nor a service account names one.", {
      hint: "Set KUBECONFIG, or run the gateway in a pod with a service account.",
    });
  return {
    server: `https://${host.includes(":") ? `[${host}]` : host}:${port}`,
    namespace: ((await textOf(join(ACCOUNT, "namespace"))) ?? "default").trim(),
    tls: { ca: await readFile(join(ACCOUNT, "ca.crt")) },
    token: { path: join(ACCOUNT, "token") },
  };
}

/** The current bearer token; reads a file again when it may have changed */
export class BearerToken {
  readonly #from: Access["token"];
  #read = "";
  #readAt = -Infinity;

  constructor(from: Access["token"]) {
    this.#from = from;
  }

  async get(): Promise<string | null> {
    if (this.#from === null) return null;
    if ("text" in this.#from) return this.#from.text;
    if (performance.now() > this.#readAt + TOKEN_FRESH_MS) {
      this.#read = (await readFile(this.#from.path, "utf8")).trim();
      this.#readAt = performance.now();
    }
    return this.#read;
  }

  /** The API server refused it. Returns whether there may be another one */
  forget(): boolean {
    this.#readAt = -Infinity;
    return this.#from !== null && "path" in this.#from;
  }
}

async function fromKubeconfig(text: string, folder: string): Promise<Access> {
  const config = kubeconfig.parse(parse(text));
  const wanted = config["current-context"];
  const current = config.contexts?.find(({ name }) => name === wanted)?.context;
  if (!current) throw new Error(`it has no context ${JSON.stringify(wanted ?? "")}, which is the current one`);
  const target = config.clusters?.find(({ name }) => name === current.cluster)?.cluster;
  if (!target) throw new Error(`it has no cluster ${JSON.stringify(current.cluster)}`);
  if (!target.server.startsWith("https://")) throw new Error(`${target.server} is not an address with https`);
  const login = config.users?.find(({ name }) => name === current.user)?.user ?? {};
  for (const unknown of ["exec", "auth-provider", "username"])
    if (unknown in login) throw new Error(`it logs in by ${unknown}, which a gateway does not: use a token or a certificate`);
  const { token, tokenFile, ...own } = user.parse(login);
  const bytes = async (data: string | undefined, path: string | undefined): Promise<Buffer | undefined> => {
    if (data !== undefined) return Buffer.from(data, "base64");
    return path === undefined ? undefined : readFile(resolve(folder, path));
  };
  const given = {
    ca: await bytes(target["certificate-authority-data"], target["certificate-authority"]),
    cert: await bytes(own["client-certificate-data"], own["client-certificate"]),
    key: await bytes(own["client-key-data"], own["client-key"]),
    servername: target["tls-server-name"],
  };
  return {
    server: target.server.replace(/\/$/, ""),
    namespace: current.namespace ?? "default",
    tls: Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)),
    token: tokenOf(token, tokenFile === undefined ? undefined : resolve(folder, tokenFile)),
  };
}

/** A file comes before a text, as in kubectl */
function tokenOf(text: string | undefined, path: string | undefined): Access["token"] {
  if (path !== undefined) return { path };
  return text === undefined ? null : { text };
}

async function textOf(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw new ForkdError("BAD_CONFIG", `${path} cannot be read: ${messageOf(error)}.`, { cause: error });
  }
}
