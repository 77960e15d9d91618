"""Captures processes with the host's warden in a guest whose kernel has soft-dirty marks. Prints one JSON object.

First, a process that writes at random: each capture is compared with the actual memory. Then a process that has
written every page and is idle: measures the pause of the capture, and the time to write to every page after it.

Arguments: the warden, the numbers of its operations SPAWN and CAPTURE_BEGIN, rounds.
"""

import json
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import time

import numpy

PAGE = 4096
PAGES = 2048
BYTES = PAGES * PAGE
RAM = "/tmp/soft-dirty.ram"
SWEEPS = "/tmp/soft-dirty.sweeps"
FINISH, COMMIT, FLATTEN, INFO, ERROR, EXIT = 4, 5, 7, 8, 0x81, 0x82


def write_at_random():
    """Writes like a guest: at random, mostly to the same pages, and sometimes frees a page."""
    with open(RAM, "r+b") as file:
        ram = mmap.mmap(file.fileno(), BYTES, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    count = 0
    while True:
        page = random.randrange(PAGES // 8) if random.random() < 0.7 else random.randrange(PAGES)
        if random.random() < 0.02:
            ram.madvise(mmap.MADV_DONTNEED, page * PAGE, PAGE)
        else:
            at = page * PAGE + random.randrange(PAGE - 8)
            ram[at : at + 8] = struct.pack("<Q", count)
        count += 1
        if count % 64 == 0:
            time.sleep(0.001)


def write_when_told():
    """Writes to every page once per SIGUSR1, and reports the time."""
    with open(RAM, "r+b") as file:
        ram = mmap.mmap(file.fileno(), BYTES, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    pages = numpy.frombuffer(ram, dtype=numpy.uint8)[::PAGE]
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    with open(SWEEPS, "a") as sweeps:
        while True:
            began = time.perf_counter_ns()
            pages += 1
            print(time.perf_counter_ns() - began, file=sweeps, flush=True)
            signal.sigwait([signal.SIGUSR1])


def text(value):
    return struct.pack("<I", len(value.encode())) + value.encode()


def texts(values):
    return struct.pack("<I", len(values)) + b"".join(text(value) for value in values)


class Warden:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.requests = 0

    def ask(self, operation, payload=b""):
        self.requests += 1
        self.process.stdin.write(struct.pack("<IBI", 5 + len(payload), operation, self.requests) + payload)
        self.process.stdin.flush()
        while True:
            (length,) = struct.unpack("<I", self.process.stdout.read(4))
            message = self.process.stdout.read(length)
            kind, answer = message[0], message[5:]
            if kind == ERROR:
                raise RuntimeError(answer)
            if kind != EXIT:
                return answer

    def methods(self):
        answer = self.ask(INFO)
        (length,) = struct.unpack_from("<I", answer)
        (second,) = struct.unpack_from("<I", answer, 4 + length)
        return answer[4 : 4 + length].decode(), answer[8 + length : 8 + length + second].decode()

    def spawn(self, operation, argv):
        nothing = struct.pack("<IBBB", 0, 0, 0, 0)
        answer = self.ask(operation, texts(argv) + texts([]) + text("/tmp") + text("/tmp/soft-dirty.log") + nothing)
        return struct.unpack_from("<I", answer)[0]


def mapping_of(pid):
    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            if line.rstrip().endswith(RAM):
                return int(line.split("-")[0], 16)
    return None


def is_stopped(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] == "T"


def wait_until(is_so):
    while not is_so():
        time.sleep(0.005)


def begin(warden, pid, delta, earlier):
    operation, where = int(sys.argv[3]), text(RAM) + struct.pack("<Q", BYTES) + text(delta)
    none_below = struct.pack("<I", 0)
    answer = warden.ask(operation, struct.pack("<I", pid) + where + texts(earlier) + none_below)
    (session, pages, _) = struct.unpack("<QQQ", answer)
    return session, pages


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: is_stopped(pid))


def capture(warden, pid, number, chain):
    """Every fourth capture stores all private pages; the others extend the chain of deltas."""
    if number % 4 == 0:
        for delta in chain:
            os.unlink(delta)
        chain.clear()
    delta, out = f"/tmp/soft-dirty.{number}.delta", f"/tmp/soft-dirty.{number}.out"
    (session, pages) = begin(warden, pid, delta, chain)
    chain.append(delta)
    time.sleep(0.05)
    stop(pid)
    (_, recopied, micros) = struct.unpack("<QQQ", warden.ask(FINISH, struct.pack("<Q", session)))
    with open(f"/proc/{pid}/mem", "rb") as memory:
        memory.seek(mapping_of(pid))
        truth = memory.read(BYTES)
    os.kill(pid, signal.SIGCONT)
    warden.ask(COMMIT, struct.pack("<Q", session))
    warden.ask(FLATTEN, text(RAM) + texts(chain) + text(out))
    with open(out, "rb") as flat:
        captured = flat.read()
    os.unlink(out)
    wrong = sum(truth[at : at + PAGE] != captured[at : at + PAGE] for at in range(0, BYTES, PAGE))
    return {"pages": pages, "recopied": recopied, "micros": micros, "wrong": wrong}


def sweep(pid):
    """Time in microseconds that the process takes to write to every page."""
    before = len(sweeps())
    os.kill(pid, signal.SIGUSR1)
    wait_until(lambda: len(sweeps()) > before)
    return sweeps()[-1] / 1000


def sweeps():
    with open(SWEEPS) as file:
        return [int(line) for line in file.read().split("\n")[:-1]]


def cost(warden, pid, number):
    delta = f"/tmp/soft-dirty.{number}.cost"
    undisturbed = sweep(pid)
    began = time.perf_counter_ns()
    (session, pages) = begin(warden, pid, delta, [])
    copied = (time.perf_counter_ns() - began) / 1000
    stop(pid)
    (_, recopied, micros) = struct.unpack("<QQQ", warden.ask(FINISH, struct.pack("<Q", session)))
    os.kill(pid, signal.SIGCONT)
    after = sweep(pid)
    warden.ask(COMMIT, struct.pack("<Q", session))
    os.unlink(delta)
    return {"pages": pages, "recopied": recopied, "begin": copied, "finish": micros, "sweep": undisturbed, "after": after}


def main():
    if sys.argv[1] == "write":
        return write_at_random()
    if sys.argv[1] == "sweep":
        return write_when_told()
    with open(RAM, "wb") as file:
        file.write(os.urandom(BYTES))
    warden = Warden(sys.argv[1])
    method, finder = warden.methods()
    start = lambda what: warden.spawn(int(sys.argv[2]), [sys.executable, os.path.abspath(__file__), what])
    pid = start("write")
    wait_until(lambda: mapping_of(pid) is not None)
    captures, chain = [], []
    for number in range(int(sys.argv[4])):
        time.sleep(0.1)
        captures.append(capture(warden, pid, number, chain))
    for delta in chain:
        os.unlink(delta)
    os.kill(pid, signal.SIGKILL)
    open(SWEEPS, "w").close()
    still = start("sweep")
    wait_until(lambda: len(sweeps()) > 0)
    costs = [cost(warden, still, number) for number in range(int(sys.argv[4]))]
    warden.process.stdin.close()
    warden.process.wait()
    print(json.dumps({"method": method, "finder": finder, "captures": captures, "costs": costs}))


main()
