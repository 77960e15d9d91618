// Guests without VMs: servers on loopback, behind a manager that connects to them.

import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { createServer as createHttpServer, type RequestListener } from "node:http";
import { ForkdError } from "@forkd/runtime/errors";
import { fakeManager, sandboxInfo } from "../helpers/fake-manager.ts";
import { serve, type Ask, type Fixture } from "../helpers/serve.ts";
import type { TestContext } from "node:test";
import type { Duplex } from "node:stream";
import type { OpenSandbox } from "../../src/service/ports.ts";

type ServeOptions = NonNullable<Parameters<typeof serve>[1]>;

/** Sandboxes `sb-a` (also named `web`) and `sb-b`; all ports are ports of this machine */
class Guests {
  /** number of connections opened to servers */
  opened = 0;
  /** number of current uses of sandboxes */
  uses = 0;
  readonly live = new Set<Duplex>();
  readonly metadata: Record<string, string> = {};

  open(name: string): OpenSandbox {
    const id = this.idOf(name);
    if (id === undefined) throw new ForkdError("NOT_FOUND", `There is no sandbox ${name}.`);
    this.uses++;
    let isOpen = true;
    return {
      id,
      connect: async (port) => this.connect(port),
      explain: (error) => error,
      close: () => {
        if (isOpen) this.uses--;
        isOpen = false;
      },
    };
  }

  idOf(name: string): string | undefined {
    return name === "web" ? "sb-a" : ["sb-a", "sb-b"].find((id) => id === name);
  }

  async connect(port: number): Promise<Duplex> {
    const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    try {
      await once(socket, "connect");
    } catch (error) {
      throw new ForkdError("PORT_CLOSED", `Cannot connect to port ${port} of the guest: Connection refused.`, { cause: error });
    }
    this.opened++;
    this.live.add(socket);
    return socket.once("close", () => this.live.delete(socket));
  }
}

export type Proxied = Fixture & {
  guests: Guests;
  /** requests a port of `sb-a` by path */
  get: (port: number, path?: string, ask?: Ask) => ReturnType<Fixture["ask"]>;
};

export async function serveGuests(t: TestContext, opts: Omit<ServeOptions, "manager"> = {}): Promise<Proxied> {
  const guests = new Guests();
  const find = (name: string) => (guests.idOf(name) === undefined ? undefined : get(name));
  const ports = { open: async (id: string) => guests.open(id), find };
  const get = (id: string) => ({ ...sandboxInfo(guests.idOf(id) ?? ""), id: guests.idOf(id) ?? "", metadata: guests.metadata });
  const fixture = await serve(t, { ...opts, manager: fakeManager({ ports, sandboxes: { get } }) });
  return { ...fixture, guests, get: (port, path = "/", ask = {}) => fixture.ask(`/v1/sandboxes/sb-a/proxy/${port}${path}`, ask) };
}

/** An HTTP server; returns its port */
export async function httpServer(t: TestContext, listener: RequestListener): Promise<number> {
  return listen(t, createHttpServer(listener));
}

/** A TCP server with arbitrary behaviour; returns its port */
export async function rawServer(t: TestContext, listener: (socket: Socket) => void): Promise<number> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on("error", () => undefined); // the proxy may reset it
    listener(socket);
  });
  return listen(t, server);
}

/** A server that answers each request with these bytes, and closes the connection if `close` is set */
export async function answering(t: TestContext, bytes: string | Buffer, opts: { close?: boolean } = {}): Promise<number> {
  return rawServer(t, (socket) => {
    socket.on("data", () => {
      socket.write(bytes);
      if (opts.close) socket.end();
    });
  });
}

async function listen(t: TestContext, server: Server): Promise<number> {
  const open = new Set<Socket>();
  server.on("connection", (socket) => open.add(socket.once("close", () => open.delete(socket))));
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(() => {
    for (const socket of open) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}
