// A client of npm's pg, connected to the database in a sandbox. Copy it into your tests.

import { Client } from "pg";

import type { Sandbox } from "forkd";

export async function connect(sandbox: Sandbox): Promise<Client> {
  const stream = await sandbox.ports.connect(5432);
  // pg calls connect() on its stream, but this stream is already connected
  const connected = Object.assign(stream, { connect: () => void setImmediate(() => stream.emit("connect")) });
  const client = new Client({ user: "app", database: "app", stream: () => connected });
  await client.connect();
  return client;
}
