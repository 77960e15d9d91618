// Relays connections of a Unix socket to a TCP port: a way into the network namespace that this process is in.
// Usage: relay.ts SOCKET PORT

import { connect, createServer } from "node:net";

const [, , socket = "", port = ""] = process.argv;
const server = createServer((incoming) => {
  const outgoing = connect(Number(port), "127.0.0.1");
  // either side may be killed by the test
  incoming.on("error", () => outgoing.destroy());
  outgoing.on("error", () => incoming.destroy());
  incoming.pipe(outgoing).pipe(incoming);
});
server.listen(socket, () => process.send?.("ready"));
process.once("disconnect", () => server.close());
