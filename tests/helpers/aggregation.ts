// What the aggregation layer of Kubernetes' API server does, without one: passes requests on with its certificate.

import { once } from "node:events";
import { createServer } from "node:http";
import { request } from "node:https";

import type { AddressInfo } from "node:net";

export type Aggregation = { url: string; close: () => Promise<void> };

/** @param to HOST:PORT of the aggregated API, which gets all requests as those of the user ann */
export async function aggregate(to: string, tls: { cert: Buffer; key: Buffer; ca: Buffer }): Promise<Aggregation> {
  const [host = "", port = ""] = to.split(":");
  const server = createServer((incoming, response) => {
    const { authorization: _checked, host: _own, ...headers } = incoming.headers;
    const { method, url: path } = incoming;
    const options = { host, port, ...tls, agent: false, method, path, headers: { ...headers, "x-remote-user": "ann" } };
    const outgoing = request(options, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(response);
    });
    outgoing.on("error", () => response.destroy());
    response.once("close", () => outgoing.destroy());
    incoming.pipe(outgoing);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const close = async (): Promise<void> => {
    const closed = once(server, "close");
    server.close();
    server.closeAllConnections();
    await closed;
  };
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close };
}
