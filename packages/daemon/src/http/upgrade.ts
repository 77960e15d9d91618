// Connections that stop speaking HTTP: they come the way of all requests, and are handed over at its end.

import { routes } from "../api/routes.ts";
import { ForkdError } from "../errors.ts";
import { patternOf } from "./methods.ts";
import { addressOf, type Domain } from "./proxy/address.ts";
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import type { Route } from "../api/route.ts";

/** The request, the bare connection, and what the client sent behind it */
export type Upgrade = { request: IncomingMessage; socket: Duplex; head: Buffer };

/** Takes the connection over and writes its own 101; resolves when it is done with it. The signal is aborted when the client is gone */
export type Takeover = (upgrade: Upgrade, signal: AbortSignal) => Promise<void>;

const PATTERNS = Object.values<Route>(routes)
  .filter((route) => 101 in route.responses)
  .map((route) => patternOf(route.path));

const upgrades = new WeakMap<IncomingMessage, Upgrade>();

/** Also under the name of a guest's server, whatever the path is */
export function mayUpgrade(request: IncomingMessage, domain: Domain | null): boolean {
  const [path = ""] = (request.url ?? "").split("?", 1);
  const isForGuest = addressOf(request, domain) !== null || request.headers["e2b-sandbox-id"] !== undefined;
  return isForGuest || PATTERNS.some((pattern) => pattern.test(path));
}

export function rememberUpgrade(upgrade: Upgrade): void {
  upgrades.set(upgrade.request, upgrade);
}

export function isUpgrade(request: IncomingMessage): boolean {
  return upgrades.has(request);
}

export function upgradeOf(request: IncomingMessage): Upgrade {
  const upgrade = upgrades.get(request);
  if (!upgrade) throw new ForkdError("UPGRADE_REQUIRED", "Cannot serve this as an ordinary request: the connection must be upgraded.");
  return upgrade;
}

export async function takeOver(upgrade: Upgrade, body: unknown, controller: AbortController): Promise<void> {
  const { socket } = upgrade;
  const gone = (): void => controller.abort(new ForkdError("CANCELLED", "The client went away."));
  socket.once("close", gone);
  try {
    await (body as Takeover)(upgrade, controller.signal);
  } finally {
    socket.off("close", gone);
    socket.destroy();
  }
}
