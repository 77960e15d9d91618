// Servers that run inside guests in the port tests.

import { rounds } from "./all.ts";

/** Size of `/source`: far above the allowed memory growth of the daemon */
export const SOURCE_BYTES = rounds(80, 150) * 1024 * 1024;

/**
 * Python. 8000: returns the request as JSON; `/sink` counts the bytes it receives, `/source` sends a large body,
 * `/events` sends events until released, `/connections` returns the number of connections. 8006: the same, only on IPv6
 * loopback. 8001: echo. 8010 and above: malformed responses.
 */
export const PYTHON_SERVERS = `
import http.server, json, socket, socketserver, threading, time

SIZE = ${SOURCE_BYTES}
connections = 0
sent = 0
let_go = threading.Event()

class Teller(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def setup(self):
        global connections
        connections += 1
        super().setup()
    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            while (size := int(self.rfile.readline(), 16)) > 0:
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            left = int(self.headers.get("Content-Length") or 0)
            while left > 0:
                piece = self.rfile.read(min(left, 65536))
                left -= len(piece)
                yield piece
    def answer(self, text, kind="text/plain"):
        data = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD": self.wfile.write(data)
    def do_GET(self):
        global sent
        path = self.path.split("?")[0]
        if path == "/sink": return self.answer(str(sum(len(piece) for piece in self.body())))
        if path == "/connections": return self.answer(str(connections))
        if path == "/cookie":
            self.send_response(200)
            self.send_header("Set-Cookie", "theme=dark; Path=/; Domain=localhost")
            self.send_header("Set-Cookie", "forkd_preview=stolen; Path=/")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if path == "/redirect":
            for piece in self.body(): pass
            self.send_response(307)
            self.send_header("Location", self.path.split("to=")[1])
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if path == "/source":
            self.send_response(200)
            self.send_header("Content-Length", str(SIZE))
            self.end_headers()
            piece = b"x" * 65536
            sent = 0
            while sent < SIZE:
                self.wfile.write(piece)
                sent += len(piece)
            return
        if path == "/events":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(b"data: 1\\n\\n")
            let_go.wait()
            self.wfile.write(b"data: 2\\n\\n")
            self.close_connection = True
            return
        told = {"method": self.command, "path": self.path, "headers": self.headers.items(), "body": b"".join(self.body()).decode()}
        self.answer(json.dumps(told), "application/json")
    do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = do_GET
    def log_message(self, *rest): pass

class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536): self.request.sendall(data)

class Six(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6

class Many(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

def start(server):
    threading.Thread(target=server.serve_forever, daemon=True).start()

def hostile(port, answer):
    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(65536)
            try: answer(self.request)
            except OSError: pass
    start(Many(("127.0.0.1", port), Handler))

def flood(c):
    c.sendall(b"HTTP/1.1 200 OK\\r\\n")
    while True: c.sendall(b"X-Flood: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\\r\\n" * 64)

start(http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Teller))
start(Six(("::1", 8006), Teller))
start(Many(("127.0.0.1", 8001), Echo))
hostile(8010, lambda c: c.sendall(b"\\x00\\xff garbage\\r\\n\\r\\n"))
hostile(8011, lambda c: None)
hostile(8012, flood)
hostile(8013, lambda c: c.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 100\\r\\n\\r\\nonly this"))
hostile(8014, lambda c: c.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nConnection: Upgrade\\r\\nUpgrade: x\\r\\n\\r\\n"))
`;

/**
 * Node. 3000: a page that opens a WebSocket to `/echo` and an event stream from `/events` and shows the results of
 * both; `/headers` returns the request headers
 */
export const NODE_SERVER = `
const { createHash } = require("node:crypto");
const http = require("node:http");
const PAGE = \`<!doctype html><title>guest</title><script>
const seen = { events: [], echoed: null, error: null };
new EventSource("/events").onmessage = ({ data }) => seen.events.push(data);
const socket = new WebSocket(location.origin.replace("http", "ws") + "/echo");
socket.onopen = () => socket.send("hello from " + location.host);
socket.onmessage = ({ data }) => { seen.echoed = data; };
socket.onerror = () => { seen.error = "error"; };
</script>\`;
const server = http.createServer((request, response) => {
  if (request.url === "/events") {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write("data: one\\n\\n");
    setTimeout(() => response.write("data: two\\n\\n"), 100);
  } else if (request.url === "/headers") {
    response.writeHead(200, { "content-type": "application/json", "set-cookie": ["own=1", "forkd_preview=stolen"] });
    response.end(JSON.stringify(request.rawHeaders));
  } else response.writeHead(200, { "content-type": "text/html" }).end(PAGE);
});
server.on("upgrade", (request, socket) => {
  const accept = createHash("sha1").update(request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest("base64");
  socket.write("HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: " + accept + "\\r\\n\\r\\n");
  let pending = Buffer.alloc(0);
  socket.on("error", () => undefined);
  socket.on("data", (piece) => {
    pending = Buffer.concat([pending, piece]);
    // short masked frames, which is what these tests send
    while (pending.length >= 6 && pending.length >= 6 + (pending[1] & 127)) {
      const length = pending[1] & 127;
      const mask = pending.subarray(2, 6);
      const text = Buffer.from(pending.subarray(6, 6 + length)).map((byte, i) => byte ^ mask[i % 4]);
      const opcode = pending[0] & 15;
      pending = pending.subarray(6 + length);
      if (opcode === 8) { socket.end(Buffer.from([0x88, 0])); return; }
      if (opcode === 1) socket.write(Buffer.concat([Buffer.from([0x81, text.length]), text]));
    }
  });
});
server.listen(3000, "127.0.0.1");
1`;
