// The servers of one sandbox.

import { ConflictError } from "./errors.ts";
import type { Controller } from "./controller.ts";
import type { CallOptions } from "./call-options.ts";
import type { PreviewOptions } from "./options.gen.ts";
import type { PortRequest } from "./options.ts";
import type { Duplex } from "./ports-node.ts";
import type { Port, Preview } from "./schema.gen.ts";

/** Servers inside a sandbox, by their TCP port. */
export class SandboxPorts {
  private readonly controller: Controller;
  private readonly id: string;

  constructor(controller: Controller, id: string) {
    this.controller = controller;
    this.id = id;
  }

  /** Lists listening ports. */
  async list(opts: CallOptions = {}): Promise<Port[]> {
    return await this.controller.listPorts(this.id, opts);
  }

  /**
   * Sends an HTTP request to a server, with the interface of `fetch`.
   *
   * @throws ForkdError with PORT_CLOSED when no process listens on the port
   * @example
   * ```ts
   * const response = await sandbox.ports.fetch(8000, "/items?limit=3");
   * const items = await response.json();
   * ```
   */
  async fetch(port: number, path: string = "/", init: PortRequest = {}): Promise<Response> {
    return await this.controller.fetchPort(this.id, port, path, init);
  }

  /**
   * The address of a server for browsers. A browser also needs a {@link preview} link, or a token.
   * @throws ConflictError with NO_TCP when the daemon has no address for browsers
   */
  async url(port: number, opts: CallOptions = {}): Promise<string> {
    const { proxy_url: proxyUrl } = await this.controller.status(opts);
    if (proxyUrl !== null) return `${proxyUrl.replace("://", `://${port}-${this.id}.`)}/`;
    throw new ConflictError("NO_TCP", `Port ${port} of ${this.id} has no URL: the daemon has no address for browsers.`, {
      hint: "Start the daemon with --bind HOST:PORT.",
    });
  }

  /** A link that opens a server in a browser. It expires after an hour, or after `expiresInSecs`. */
  async preview(port: number, opts: PreviewOptions = {}): Promise<Preview> {
    return await this.controller.createPreview(this.id, port, opts);
  }

  /** Opens a TCP connection to a server, as a `Duplex` of Node. */
  async connect(port: number, opts: CallOptions = {}): Promise<Duplex> {
    return await this.controller.connectPort(this.id, port, opts);
  }
}
