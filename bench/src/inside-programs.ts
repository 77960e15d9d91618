// Programs that the benchmark of work inside a sandbox runs there.

export const HTTP_PORT = 8080;

/** Answers each request of a kept connection with two bytes, in a thread of the warm interpreter */
export const HTTP_SERVER = `
import asyncio, threading
ANSWER = b"HTTP/1.1 200 OK\\r\\ncontent-type: text/plain\\r\\ncontent-length: 2\\r\\n\\r\\nok"
class Server(asyncio.Protocol):
    def connection_made(self, transport): self.transport, self.held = transport, b""
    def data_received(self, data):
        self.held += data
        *requests, self.held = self.held.split(b"\\r\\n\\r\\n")
        self.transport.write(ANSWER * len(requests))
is_ready = threading.Event()
async def serve():
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", ${HTTP_PORT})
    is_ready.set()
    await server.serve_forever()
threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
is_ready.wait()
`;

/** The same requests by a client inside the guest, which shares its CPU; prints how many were answered */
export const HTTP_CLIENT = `
import asyncio, sys, time
async def client(until):
    reader, writer = await asyncio.open_connection("127.0.0.1", ${HTTP_PORT})
    count = 0
    while time.monotonic() < until:
        writer.write(b"GET / HTTP/1.1\\r\\nhost: localhost\\r\\n\\r\\n")
        await reader.readuntil(b"ok")
        count += 1
    writer.close()
    return count
async def main(seconds, connections):
    until = time.monotonic() + seconds
    print(sum(await asyncio.gather(*(client(until) for _ in range(connections)))))
asyncio.run(main(float(sys.argv[1]), int(sys.argv[2])))
`;

/** Connects, sends until it is cut off, and tries again at once */
export const CONNECTING = `
import socket, sys, time
while True:
    try:
        with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
            while True:
                connection.send(b"x")
                time.sleep(0.005)
    except OSError:
        time.sleep(0.001)
`;
