"""Memory of a machine of the fake engine: a file mapping, read and written by requests on the socket at descriptor 3.

Usage: fake-machine.py MEMORY shared|private
"""

import mmap
import os
import socket
import sys

path, kind = sys.argv[1:]
flags = mmap.MAP_SHARED if kind == "shared" else mmap.MAP_PRIVATE
fd = os.open(path, os.O_RDWR if kind == "shared" else os.O_RDONLY)
ram = mmap.mmap(fd, os.fstat(fd).st_size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
channel = socket.socket(fileno=3).accept()[0]
for line in channel.makefile("r"):
    command, at, value = line.split()
    if command == "write":
        content = bytes.fromhex(value)
        ram[int(at) : int(at) + len(content)] = content
        channel.sendall(b"ok\n")
    else:
        channel.sendall(ram[int(at) : int(at) + int(value)].hex().encode() + b"\n")
