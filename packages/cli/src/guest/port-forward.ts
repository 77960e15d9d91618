// Forwards local ports to servers inside a sandbox: one connection to the server for each accepted one.

import { once } from "node:events";
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { codeOf, failure } from "../errors.ts";
import { problemOf } from "../exit.ts";
import { printNote } from "../terminal/output.ts";

import type { Controller } from "forkd";

/** Errors after which further connections would fail too */
const GONE = new Set(["NOT_FOUND", "VMM_EXITED", "SANDBOX_LOST", "UNAUTHORIZED", "FORBIDDEN"]);

export type Mapping = { localPort: number; guestPort: number };
export type Listening = { address: string; port: number; guest_port: number };
export type ForwardOptions = { address: string; signal: AbortSignal; onReady: (listening: Listening[]) => void };

/** Runs until the signal aborts, which is not an error; rejects when the sandbox has ended */
export async function forwardPorts(forkd: Controller, id: string, mappings: readonly Mapping[], opts: ForwardOptions): Promise<void> {
  const { address, signal } = opts;
  const ended = Promise.withResolvers<void>();
  const open = new Set<Socket>();
  await using stack = new AsyncDisposableStack();
  stack.defer(() => {
    for (const socket of open) socket.destroy();
  });
  const listening: Listening[] = [];
  for (const { localPort, guestPort } of mappings) {
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, (socket) => {
      open.add(socket);
      socket.once("close", () => open.delete(socket));
      join(socket, forkd.connectPort(id, guestPort, { signal })).catch((error: unknown) => {
        socket.resetAndDestroy();
        if (signal.aborted) return;
        if (GONE.has(codeOf(error) ?? "")) ended.reject(error);
        else printNote(`forkd: ${problemOf(error).error}`);
      });
    });
    await listen(server, localPort, address);
    stack.defer(() => void server.close());
    listening.push({ address, port: (server.address() as AddressInfo).port, guest_port: guestPort });
  }
  opts.onReady(listening);
  signal.addEventListener("abort", () => ended.resolve(), { once: true });
  if (!signal.aborted) await ended.promise;
}

/** Rejects when the connection fails; after that, ends and errors are passed between both sides */
async function join(socket: Socket, connecting: ReturnType<Controller["connectPort"]>): Promise<void> {
  // the client disconnects while it waits
  socket.on("error", () => socket.destroy());
  const guest = await connecting;
  const cut = (): void => {
    socket.destroy();
    guest.destroy();
  };
  for (const side of [socket, guest])
    side.on("error", cut).once("close", () => {
      if (!side.readableEnded) cut();
    });
  if (socket.destroyed) cut();
  socket.pipe(guest);
  guest.pipe(socket);
}

async function listen(server: Server, port: number, address: string): Promise<void> {
  try {
    await once(server.listen(port, address), "listening");
  } catch (error) {
    const why = codeOf(error) === "EADDRINUSE" ? "something else does" : problemOf(error).error;
    throw failure(
      codeOf(error) ?? "INTERNAL",
      `Cannot listen on port ${port} of ${address}: ${why.replace(/\.$/, "")}.`,
      "Choose another local port, or 0 for any free one.",
      error,
    );
  }
}
