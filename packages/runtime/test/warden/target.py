"""A process with a private mapping of a file, as a VMM has. It executes commands from the socket at descriptor 3."""

import mmap
import os
import random
import socket
import sys
import threading

PAGE = 4096
path, size = sys.argv[1], int(sys.argv[2])
fd = os.open(path, os.O_RDWR)
ram = mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE)
churning = threading.Event()
churner = None


def fill(page, count, seed):
    source = random.Random(seed)
    for number in range(page, page + count):
        ram[number * PAGE : (number + 1) * PAGE] = source.randbytes(PAGE)


def touch_each(page, count, step, seed):
    for number in range(page, page + count * step, step):
        at = number * PAGE + seed % PAGE
        ram[at] = (ram[at] + 1) % 256


def churn(page, count):
    source = random.Random(1)
    while churning.is_set():
        ram[(page + source.randrange(count)) * PAGE + source.randrange(PAGE)] = source.randrange(256)


def dump(to):
    with open(to, "wb") as file:
        file.write(ram)


def run(command, words):
    global churner
    if command == "dump":
        return dump(words[0])
    if command == "halt":
        churning.clear()
        return churner.join()
    numbers = [int(word) for word in words]
    if command == "churn":
        churning.set()
        churner = threading.Thread(target=churn, args=numbers, daemon=True)
        return churner.start()
    if command == "zero":
        ram[numbers[0] * PAGE : (numbers[0] + numbers[1]) * PAGE] = bytes(numbers[1] * PAGE)
    elif command == "read":
        bytes(ram[numbers[0] * PAGE : (numbers[0] + numbers[1]) * PAGE])
    elif command == "drop":
        ram.madvise(mmap.MADV_DONTNEED, numbers[0] * PAGE, numbers[1] * PAGE)
    elif command == "split":
        ram.madvise(mmap.MADV_DONTFORK, numbers[0] * PAGE, numbers[1] * PAGE)
    else:
        {"fill": fill, "touch": touch_each}[command](*numbers)


channel = socket.socket(fileno=3).accept()[0]
for line in channel.makefile("r"):
    command, *words = line.split()
    run(command, words)
    channel.sendall(b"ok\n")
