"""Runs a command on a new pseudo-terminal. Reads commands and writes events as JSON lines.

in:  {"type": "text"}  {"resize": [rows, cols]}  {"modes": true}
out: {"output": "base64"}  {"modes": "..."}  {"exit": code}
"""

import base64
import fcntl
import json
import os
import pty
import select
import signal
import struct
import sys
import termios

ROWS, COLS = 33, 101


def tell(**message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def resize(rows, cols):
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


def obey(line):
    command = json.loads(line)
    if "type" in command:
        os.write(master, command["type"].encode())
    if "resize" in command:
        resize(*command["resize"])
    if "modes" in command:
        tell(modes=repr(termios.tcgetattr(slave)))


master, slave = pty.openpty()
resize(ROWS, COLS)
pid = os.fork()
if pid == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for fd in (0, 1, 2):
        os.dup2(slave, fd)
    os.close(master)
    os.execvp(sys.argv[1], sys.argv[1:])

tell(pid=pid)
# keep the slave open, so that its modes can be read after the command has exited
ended = None
commands = b""
while True:
    ready, _, _ = select.select([master, 0], [], [], 0.05)
    if master in ready:
        tell(output=base64.b64encode(os.read(master, 65536)).decode())
    if 0 in ready:
        chunk = os.read(0, 65536)
        if not chunk:
            break
        commands += chunk
        *lines, commands = commands.split(b"\n")
        for line in lines:
            obey(line)
    if ended is None:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done and not select.select([master], [], [], 0)[0]:
            ended = os.waitstatus_to_exitcode(status)
            tell(exit=ended)
        elif done:
            ended = os.waitstatus_to_exitcode(status)
            while select.select([master], [], [], 0.1)[0]:
                tell(output=base64.b64encode(os.read(master, 65536)).decode())
            tell(exit=ended)
if ended is None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
