// Cases for servers inside a sandbox. All use the sandbox "one".

import { fails, gives, including, REST_AND_SDK, within, type Case, type Context } from "./case.ts";

const one = (c: Context): string => c.name("one");
const NO_VERB = REST_AND_SDK("`port` listens until Ctrl-C, and the proxy is for programs and browsers");

/** 8000 returns the request, 8001 echoes */
const SERVERS = `
import http.server, socketserver, threading
class Teller(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = f"{self.command} {self.path} {self.rfile.read(length).decode()}".strip().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_GET
    def log_message(self, *rest): pass
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536): self.request.sendall(data)
for server in [http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Teller), socketserver.ThreadingTCPServer(("", 8001), Echo)]:
    threading.Thread(target=server.serve_forever, daemon=True).start()
`;

function ports(
  what: string,
  route: Case["route"],
  port: number | string,
  expect: Case["expect"],
  more: Partial<Case> & { rest?: object } = {},
): Case {
  const { rest, ...others } = more;
  return { what, route, args: (c) => ({ params: { id: one(c), port: String(port), path: "a/b" }, ...rest }), expect, ...others };
}

export const portCases: Case[] = [
  {
    what: "servers in the guest",
    route: "evalCode",
    args: (c) => ({ params: { id: one(c) }, body: { code: SERVERS } }),
    expect: gives({ error: null }),
  },
  {
    what: "listening ports and their processes",
    route: "listPorts",
    args: (c) => ({ params: { id: one(c) } }),
    expect: gives(
      including(
        { port: 8000, address: "127.0.0.1", family: "ipv4", protocol: "tcp", process: { name: /^python/, pid: Number.isInteger } },
        { port: 8001, address: "0.0.0.0", family: "ipv4", protocol: "tcp" },
      ),
    ),
  },
  ports("a request", "proxyRequest", 8000, gives("GET /a/b?x=1", 200), { rest: { query: { x: "1" } }, not: NO_VERB }),
  ports("one with a body", "proxyRequest", 8000, gives("POST /a/b?x=1 tea", 200), {
    rest: { query: { x: "1" }, bytes: Buffer.from("tea") },
    not: NO_VERB,
  }),
  ports("a request where nothing listens", "proxyRequest", 8999, fails("PORT_CLOSED"), { not: NO_VERB }),
  ports("no port", "proxyRequest", 70_000, fails("BAD_REQUEST"), { not: NO_VERB }),
  ports("a connection", "connectPort", 8001, gives(Buffer.from("there and back"), 101), {
    rest: { bytes: Buffer.from("there and back") },
    not: NO_VERB,
  }),
  ports("a connection where nothing listens", "connectPort", 8999, fails("PORT_CLOSED"), { not: NO_VERB }),
  ports(
    "a link",
    "createPreview",
    8000,
    gives({ url: /^http:\/\/8000-sb-\w+\.localhost:\d+\/\?forkd_preview=fkp_/, token: /^fkp_/, expires_at_unix: within(3600) }),
    { rest: { body: {} } },
  ),
  ports("a short one", "createPreview", 8000, gives({ expires_at_unix: within(60) }), { rest: { body: { expires_in_secs: 60 } } }),
  ports("one for too long", "createPreview", 8000, fails("BAD_REQUEST"), { rest: { body: { expires_in_secs: 8 * 24 * 3600 } } }),
  ports("one to no port", "createPreview", 0, fails("BAD_REQUEST", { usage: true }), { rest: { body: {} } }),
  ...(["listPorts", "createPreview", "proxyRequest", "connectPort"] as const).map((route): Case => ({
    what: `${route} of no sandbox`,
    route,
    args: () => ({ params: { id: "sb-nothing", port: "8000", path: "" }, ...(route === "createPreview" ? { body: {} } : {}) }),
    expect: fails("NOT_FOUND"),
    ...(route === "proxyRequest" || route === "connectPort" ? { not: NO_VERB } : {}),
  })),
];
