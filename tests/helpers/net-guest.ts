// Python functions that probe the network from inside a guest, and a helper that calls them.

import { patience } from "./patience.ts";

import type { Sandbox } from "forkd";

/** Connection timeout of probes in the guest; shorter than the limit of an eval, so that the probe reports it */
const HANG_SECS = patience(5) / 1000;

/** Python code for the warm-up of the snapshot; every fork inherits the functions */
export const PROBES = String.raw`
import ctypes, errno, os, socket, struct, threading, time

def get(host, port=80, path="/hello", timeout=${HANG_SECS}):
    """The body of a page, or the name of what failed"""
    try:
        s = socket.create_connection((host, port), timeout)
        s.sendall(("GET %s HTTP/1.0\r\nHost: x\r\n\r\n" % path).encode())
        data = b""
        while True:
            piece = s.recv(65536)
            if not piece:
                break
            data += piece
        s.close()
        return data.split(b"\r\n\r\n", 1)[1].decode().strip() if data else "nothing"
    except OSError as e:
        return type(e).__name__ + " " + errno.errorcode.get(e.errno, str(e.errno))

def ask(name, type=1, server="192.0.2.1", tcp=False):
    """The code of a DNS answer and its addresses"""
    query = struct.pack(">HHHHHH", 77, 0x100, 1, 0, 0, 0)
    for label in name.split("."):
        query += bytes([len(label)]) + label.encode()
    query += struct.pack(">BHH", 0, type, 1)
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    try:
        s = socket.socket(family, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM)
        s.settimeout(${HANG_SECS})
        s.connect((server, 53))
        s.send((struct.pack(">H", len(query)) if tcp else b"") + query)
        answer = s.recv(4096)[2 if tcp else 0:]
    except OSError as e:
        return [errno.errorcode.get(e.errno, str(e)), []]
    at, found = len(query), []
    for _ in range(struct.unpack(">H", answer[6:8])[0]):
        size = struct.unpack(">H", answer[at + 10:at + 12])[0]
        data = answer[at + 12:at + 12 + size]
        found.append(socket.inet_ntop(socket.AF_INET if size == 4 else socket.AF_INET6, data) if size in (4, 16) else data[1:].decode())
        at += 12 + size
    return [answer[3] & 15, found]

held = {}

def hold(name, host, port=7):
    """A connection that echoes, kept open"""
    held[name] = socket.create_connection((host, port), ${HANG_SECS})
    return echo(name)

def echo(name, text="hello"):
    try:
        held[name].sendall(text.encode())
        return held[name].recv(100).decode() or "ended"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))

def waits(name):
    """What a program sees that just reads"""
    try:
        held[name].settimeout(${HANG_SECS})
        return held[name].recv(100).decode() or "ended"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))
`;

/** Value of a Python expression in the guest */
export async function probe(sandbox: Sandbox, expression: string): Promise<unknown> {
  return (await sandbox.eval(expression, { timeoutSecs: patience() / 1000 })).value;
}
