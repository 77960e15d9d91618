// Calls to servers inside a sandbox.

import { ProcessCalls } from "./process-calls.ts";
import { path, split } from "./wire.ts";
import type { CallOptions, PortRequest, PreviewOptions } from "./options.ts";
import type { Duplex } from "./ports-node.ts";
import type * as wire from "./schema.gen.ts";

export class PortCalls extends ProcessCalls {
  /** TCP ports that something in the guest listens on now. */
  async listPorts(id: string, opts: CallOptions = {}): Promise<wire.Port[]> {
    return await this.client.json("GET", path`/v1/sandboxes/${id}/ports`, opts);
  }

  /**
   * A link that opens a server in a browser, without another token, until it expires.
   * @throws ConflictError with NO_TCP when the daemon listens where no browser gets to
   */
  async createPreview(id: string, port: number, opts: PreviewOptions = {}): Promise<wire.Preview> {
    const { fields, call } = split(opts);
    const json: wire.CreatePreview = fields;
    return await this.client.json("POST", path`/v1/sandboxes/${id}/ports/${String(port)}/preview`, { ...call, json, canRepeat: true });
  }

  /**
   * An HTTP request to a server in the guest, as `fetch` has it; bodies are streamed both ways. Whatever the server answers is a
   * result, redirects included; only what keeps it from answering is an error.
   *
   * @throws ForkdError with PORT_CLOSED when nothing listens there
   */
  async fetchPort(id: string, port: number, target: string, init: PortRequest = {}): Promise<Response> {
    // resolved here: nothing in it can lead to another route
    const { pathname, search } = new URL(`http://guest${target.startsWith("/") ? "" : "/"}${target}`);
    return await this.client.ports.fetch(path`/v1/sandboxes/${id}/proxy/${String(port)}` + pathname + search, init);
  }

  /**
   * A TCP connection to a server in the guest, as a stream of Node; each direction ends by itself. Only where there is `node:http`.
   * @throws ForkdError with PORT_CLOSED when nothing listens there
   */
  async connectPort(id: string, port: number, opts: CallOptions = {}): Promise<Duplex> {
    return await this.client.ports.connect(path`/v1/sandboxes/${id}/ports/${String(port)}/connect`, opts);
  }
}
