# Runs as root in a guest: stops the agent, takes over its channel to the host and sends hostile frames.
# Usage: hostile.py MODE [PORT]; starts when /tmp/begin exists. PORT: a server on the host that never reads

import ctypes
import os
import random
import select
import struct
import sys
import time

PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
PIDFD_OPEN, PIDFD_GETFD = 434, 438
HELLO, PING, RESULT, ERROR, CREDIT, DATA, EOF, EXEC, STARTED, EXIT, READ = 1, 2, 3, 4, 5, 6, 7, 0x10, 0x11, 0x12, 0x20
ATTACH, TOOL, STAT, CONNECT, OPENED, DIAL, RESOLVE = 0x14, 0x18, 0x22, 0x40, 0x41, 0x42, 0x43
WINDOW, DIAL_WINDOW, FIRST_OF_AGENT = 262144, 65536, 1 << 31
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def steal():
    for name in os.listdir("/proc/1/fd"):
        if "vport" in os.readlink(f"/proc/1/fd/{name}"):
            return libc.syscall(PIDFD_GETFD, libc.syscall(PIDFD_OPEN, 1, 0), int(name), 0)
    raise SystemExit("the agent's channel is not found")


def freeze():
    for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
        if libc.ptrace(request, 1, None, None) != 0:
            raise SystemExit(f"ptrace {request}: {os.strerror(ctypes.get_errno())}")
    while "t (tracing stop)" not in open("/proc/1/status").read():
        time.sleep(0.01)


def frame(kind, stream, payload=b""):
    return struct.pack("<IBBHI", len(payload), kind, 0, 0x6B66, stream) + payload


def put(channel, data):
    while data:
        select.select([], [channel], [], 0.1)
        try:
            data = data[os.write(channel, data):]
        except BlockingIOError:
            pass


def requests(channel, until):
    """Frames from the host. The first may lack the beginning that the agent had already read."""
    held = b""
    while time.monotonic() < until:
        if not select.select([channel], [], [], 0.1)[0]:
            continue
        try:
            held += os.read(channel, 65536)
        except BlockingIOError:
            continue
        while len(held) >= 12:
            length, kind, _, mark, stream = struct.unpack("<IBBHI", held[:12])
            if mark != 0x6B66 or length > 65536:
                held = held[1:]
                continue
            if len(held) < 12 + length:
                break
            yield kind, stream, held[12:12 + length]
            held = held[12 + length:]


def garbage(channel, until):
    put(channel, random.randbytes(1 << 20))


def foreign(channel, until):
    """Sends frames of every kind, for open streams and for streams that were never opened."""
    while time.monotonic() < until:
        stream = random.choice([0, random.randrange(1, 300), random.randrange(1 << 31), random.randrange(1 << 31, 1 << 32)])
        kind = random.choice([RESULT, ERROR, CREDIT, EOF, STARTED, EXIT, DATA, EXEC, 0x41, 0x42, 0x43, 0x77])
        payload = random.choice([b"", b"\0", struct.pack("<BI", 1, 1 << 31), random.randbytes(40), struct.pack("<II", 0xFFFFFFFF, 0)])
        put(channel, frame(kind, stream, payload))


def lies(channel, until):
    """Answers every request with wrong lengths."""
    for kind, stream, _ in requests(channel, until):
        put(channel, frame(RESULT, stream, struct.pack("<II", 0xFFFFFFFF, 0xFFFFFFFF)))


def too_much(channel, until):
    """Sends more of a file than the credit allows."""
    for kind, stream, _ in requests(channel, until):
        if kind == READ:
            for _ in range(64):
                put(channel, frame(DATA, stream, b"\0" + bytes(60000)))


def flood(channel, until):
    block = b"".join(frame(CREDIT, n, struct.pack("<BI", 0, 0xFFFFFFFF)) + frame(HELLO, 0, struct.pack("<I", 2) + bytes(24)) for n in range(1, 500))
    while time.monotonic() < until:
        put(channel, block)


def endless(channel, until):
    """Sends a file without an end, within the credit."""
    credit = {}
    for kind, stream, payload in requests(channel, until):
        if kind == READ:
            credit[stream] = 262144
        elif kind == CREDIT and stream in credit:
            credit[stream] += struct.unpack("<BI", payload)[1]
        while credit.get(stream, 0) >= 32768:
            put(channel, frame(DATA, stream, b"\0" + bytes(32768)))
            credit[stream] -= 32768


def text(value):
    return struct.pack("<I", len(value)) + value


def begin(channel, kind, stream):
    """Answers the request that opens a stream and returns the channels that can be written to."""
    if kind in (EXEC, ATTACH, TOOL):
        put(channel, frame(STARTED, stream, struct.pack("<QIQQ", 7, 8, 0, 0)))
        return (1, 2)
    if kind == CONNECT:
        put(channel, frame(OPENED, stream) + frame(DATA, stream, b"\0HTTP/1.1 200 OK\r\n\r\n"))
    return (0,)


def dial(channel):
    """Opens a connection to a server on the host that never reads."""
    if len(sys.argv) > 2:
        put(channel, frame(DIAL, FIRST_OF_AGENT, text(b"192.0.2.1") + struct.pack("<II", int(sys.argv[2]), 0)))


def crumbs(channel, until):
    """Sends single bytes on every stream, as many as the credit allows."""
    dial(channel)
    spent = 64  # upper bound of the bytes that begin() has sent
    for kind, stream, payload in requests(channel, until):
        if kind in (READ, EXEC, ATTACH, TOOL, CONNECT):
            for number in begin(channel, kind, stream):
                put(channel, frame(DATA, stream, bytes([number, 97])) * (WINDOW - spent))
        elif kind == OPENED:
            put(channel, frame(DATA, stream, b"\0a") * DIAL_WINDOW)
        elif kind == CREDIT:
            number, more = struct.unpack("<BI", payload)
            put(channel, frame(DATA, stream, bytes([number, 97])) * more)
        elif kind == DATA and payload[:1] == b"\3":
            # code for an interpreter: print without an end
            put(channel, frame(DATA, stream, b"\1a") * 1024)


def turns(channel, until):
    """Sends single bytes of stdout and stderr in turn, as many as the credit allows."""
    pair = {}
    for kind, stream, payload in requests(channel, until):
        if kind in (EXEC, ATTACH):
            begin(channel, kind, stream)
            pair[stream] = frame(DATA, stream, b"\1a") + frame(DATA, stream, b"\2a")
            put(channel, pair[stream] * WINDOW)
        elif kind == CREDIT and stream in pair and payload[0] == 1:
            put(channel, pair[stream] * struct.unpack("<BI", payload)[1])


def questions(channel, until):
    """Sends DNS questions without an end and reads the answers."""
    query = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + b"\7example\0" + struct.pack(">HH", 1, 1)
    stream = FIRST_OF_AGENT
    while time.monotonic() < until:
        block = b"".join(frame(RESOLVE, stream + n, text(query)) for n in range(1000))
        stream += 1000
        while block:
            readable, writable, _ = select.select([channel], [channel], [], 0.1)
            try:
                if readable:
                    os.read(channel, 65536)
                if writable:
                    block = block[os.write(channel, block):]
            except BlockingIOError:
                pass


def eofs(channel, until):
    """Sends EOF for the channels of every stream repeatedly."""
    for kind, stream, _ in requests(channel, until):
        if kind in (READ, EXEC, ATTACH, TOOL, CONNECT):
            number = begin(channel, kind, stream)[0]
            put(channel, frame(DATA, stream, bytes([number, 97])) + frame(EOF, stream, b"\0") * (1 << 18))


def changes(channel, until):
    """Sends invented change events to watchers, as many as the credit allows: longest names first, then the shortest."""
    for kind, stream, payload in requests(channel, until):
        if kind == TOOL:
            begin(channel, kind, stream)
            put(channel, frame(DATA, stream, b"\1R"))
            name = b"c\0" + text(b"/" + b"n" * 32000) + text(b"")
            for _ in range(4):
                put(channel, frame(DATA, stream, b"\1" + name))
            more = WINDOW - 1 - 4 * len(name)
        elif kind == CREDIT and payload[0] == 1:
            more = struct.unpack("<BI", payload)[1]
        else:
            continue
        record = b"c\0" + text(b"") + text(b"")
        for _ in range(more // len(record) // 6000):
            put(channel, frame(DATA, stream, b"\1" + record * 6000))


def messages(channel, until):
    """Answers code for an interpreter with meaningless messages, and with one that has many values."""
    for kind, stream, payload in requests(channel, until):
        if kind in (EXEC, ATTACH):
            begin(channel, kind, stream)
        elif kind == CREDIT:
            put(channel, frame(DATA, stream, b"\3" + b"{}\n" * 20000) * (struct.unpack("<BI", payload)[1] // 60000))
        elif kind == DATA and payload[:1] == b"\3":
            put(channel, frame(DATA, stream, b"\3" + b"{}\n" * 20000) * 3)
            put(channel, frame(DATA, stream, b'\3{"event":"display","id":1,"data":{"a":[' + b"[]," * 20000))


def pages(channel, until):
    """Returns folder listings that grow with every request."""
    count = 0
    for kind, stream, payload in requests(channel, until):
        if kind == STAT:
            put(channel, frame(RESULT, stream, b"d" + struct.pack("<IIIQq", 0o755, 0, 0, 0, 0) + text(b"") * 3))
        elif kind == READ:
            put(channel, frame(RESULT, stream, struct.pack("<Q", 0)))
        elif kind == TOOL:
            begin(channel, kind, stream)
            for _ in range(3):
                page = b""
                while len(page) < 60000:
                    count += 1
                    page += b"+" + text(b"%012d" % count) + b"f" + struct.pack("<IIIQq", 0o644, 0, 0, 0, 0) + text(b"") * 3
                put(channel, frame(DATA, stream, b"\1" + page))
            put(channel, frame(DATA, stream, b"\1.\1") + frame(EXIT, stream, struct.pack("<iIB", 0, 0, 0)))


def silent(channel, until):
    """Neither reads nor writes."""
    while time.monotonic() < until:
        time.sleep(1)


if os.fork():
    sys.exit(0)
os.setsid()
mode = sys.argv[1]
while not os.path.exists("/tmp/begin"):
    time.sleep(0.01)
port = steal()
freeze()
with open("/dev/console", "w") as console:
    console.write("attacking\n")
globals()[mode](port, float("inf"))
time.sleep(600)  # the agent stays stopped while its tracer runs
