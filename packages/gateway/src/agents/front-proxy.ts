// Who asks: the API server of Kubernetes has checked the user and the user's rights, and says so in headers. Only
// connections with its certificate are believed.

import * as z from "zod";
import { readFile } from "node:fs/promises";
import { ForkdError, messageOf } from "@forkd/runtime/errors";
import type { IncomingMessage } from "node:http";
import type { TLSSocket } from "node:tls";
import type { KubernetesApi } from "../kubernetes/api.ts";

/** Where an API server says how it identifies itself; its name is fixed */
const CONFIG = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
const CA = "requestheader-client-ca-file";
const DEFAULT_USER_HEADERS = ["x-remote-user"];

/** `names` empty: any certificate that the authority signed */
export type FrontProxy = { ca: string; names: string[]; userHeaders: string[] };

const texts = z.array(z.string());

/** The user that the API server names; null: this is not the API server */
export function userOf(request: IncomingMessage, proxy: FrontProxy): string | null {
  const socket = request.socket as TLSSocket;
  if (!socket.authorized) return null;
  const { subject } = socket.getPeerCertificate();
  const name = subject?.CN;
  if (proxy.names.length > 0 && !(typeof name === "string" && proxy.names.includes(name))) return null;
  for (const header of proxy.userHeaders) {
    const value = request.headers[header];
    if (typeof value === "string" && value !== "") return value;
  }
  return null;
}

/** @param names common names of the certificates that are believed */
export async function frontProxyFromFile(file: string, names: string[]): Promise<FrontProxy> {
  try {
    return { ca: await readFile(file, "utf8"), names, userHeaders: DEFAULT_USER_HEADERS };
  } catch (error) {
    throw new ForkdError("BAD_CONFIG", `Cannot serve the agent-sandbox API: ${messageOf(error)}.`, { cause: error });
  }
}

export async function frontProxyFromCluster(api: Pick<KubernetesApi, "request">): Promise<FrontProxy> {
  const found = await api.request<{ data?: Record<string, string> }>("GET", CONFIG);
  const data = found.status === "ok" ? (found.body.data ?? {}) : {};
  if (data[CA] === undefined)
    throw new ForkdError(
      "BAD_CONFIG",
      "Cannot serve the agent-sandbox API: the cluster does not say how its API server identifies itself.",
      {
        hint: "Apply deploy/kubernetes/agents, or give --agents-client-ca.",
      },
    );
  const listIn = (name: string): string[] => texts.safeParse(JSON.parse(data[name] ?? "[]")).data ?? [];
  const headers = listIn("requestheader-username-headers").map((name) => name.toLowerCase());
  return { ca: data[CA], names: listIn("requestheader-allowed-names"), userHeaders: headers.length > 0 ? headers : DEFAULT_USER_HEADERS };
}
