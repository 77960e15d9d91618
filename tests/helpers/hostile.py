# Runs as root in a guest: stops its agent in the middle, takes its channel to the host, and speaks in its place.
# Usage: hostile.py MODE SECONDS

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
    """Frames that the host sends; the first may be cut in half by what the agent had read of it."""
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
    """Frames of every kind for streams that were never opened, and for those that were."""
    while time.monotonic() < until:
        stream = random.choice([0, random.randrange(1, 300), random.randrange(1 << 31), random.randrange(1 << 31, 1 << 32)])
        kind = random.choice([RESULT, ERROR, CREDIT, EOF, STARTED, EXIT, DATA, EXEC, 0x41, 0x42, 0x43, 0x77])
        payload = random.choice([b"", b"\0", struct.pack("<BI", 1, 1 << 31), random.randbytes(40), struct.pack("<II", 0xFFFFFFFF, 0)])
        put(channel, frame(kind, stream, payload))


def lies(channel, until):
    """Answers every request, with lengths that are not true."""
    for kind, stream, _ in requests(channel, until):
        put(channel, frame(RESULT, stream, struct.pack("<II", 0xFFFFFFFF, 0xFFFFFFFF)))


def too_much(channel, until):
    """Sends a file of which nobody gave credit for so much."""
    for kind, stream, _ in requests(channel, until):
        if kind == READ:
            for _ in range(64):
                put(channel, frame(DATA, stream, b"\0" + bytes(60000)))


def flood(channel, until):
    block = b"".join(frame(CREDIT, n, struct.pack("<BI", 0, 0xFFFFFFFF)) + frame(HELLO, 0, struct.pack("<I", 2) + bytes(24)) for n in range(1, 500))
    while time.monotonic() < until:
        put(channel, block)


def endless(channel, until):
    """A file without an end, sent as the credit allows."""
    credit = {}
    for kind, stream, payload in requests(channel, until):
        if kind == READ:
            credit[stream] = 262144
        elif kind == CREDIT and stream in credit:
            credit[stream] += struct.unpack("<BI", payload)[1]
        while credit.get(stream, 0) >= 32768:
            put(channel, frame(DATA, stream, b"\0" + bytes(32768)))
            credit[stream] -= 32768


def silent(channel, until):
    """Neither reads nor writes."""
    time.sleep(max(0, until - time.monotonic()))


if os.fork():
    sys.exit(0)
os.setsid()
mode, seconds = sys.argv[1], float(sys.argv[2])
time.sleep(0.3)  # whoever started this has got its answer by then
port = steal()
freeze()
open("/tmp/attacking", "w").close()
globals()[mode](port, time.monotonic() + seconds)
time.sleep(600)  # the agent stays stopped: its tracer lives
