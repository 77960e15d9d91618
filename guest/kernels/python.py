"""Warm Python interpreter of a guest. The contract is spec/kernel-protocol.md."""

import _socket
import ast
import builtins
import fcntl
import gc
import json
import linecache
import os
import random
import signal
import sys
import traceback
import types

KERNEL_FILE = __file__
CONTROL = 3
MOST_TEXT = 1 << 20
MOST_SOURCES = 512
SAFE_INTEGER = (1 << 53) - 1
ALLOW_AWAIT = getattr(ast, "PyCF_ALLOW_TOP_LEVEL_AWAIT", 0)
COROUTINE = 0x80

encode = json.JSONEncoder(allow_nan=False).encode


class Kernel:
    def __init__(self, control):
        self.control = control
        self.pid = os.getpid()
        self.received = b""
        self.waiting = []  # evals that arrived while another one ran
        self.busy = False  # an eval runs: the SIGIO handler reads the control channel
        self.interruptible = False
        self.interrupted = False  # SIGINT came while kernel code ran on behalf of an eval
        self.loop = None
        self.namespace = types.ModuleType("__main__")
        self.namespace.__builtins__ = __builtins__
        sys.modules["__main__"] = self.namespace

    # Control channel

    def send(self, text):
        self.control.sendall(text.encode("ascii") + b"\n")

    def receive(self, flags=0):
        """Takes what is there; lines that are complete are returned as messages."""
        try:
            data = self.control.recv(65536, flags)
        except BlockingIOError:
            return None
        if not data:
            flush()
            os._exit(0)
        *lines, self.received = (self.received + data).split(b"\n")
        return [message for message in map(parse, lines) if message is not None]

    def take_waiting(self):
        """Takes what has arrived while an eval runs: a reseed cannot wait for its end."""
        while True:
            messages = self.receive(_socket.MSG_DONTWAIT)
            if messages is None:
                return
            for message in messages:
                if message.get("op") == "reseed":
                    self.reseed(message)
                else:
                    self.waiting.append(message)

    def on_sigio(self, _, frame):
        if self.busy and os.getpid() == self.pid:
            self.take_waiting()
            if self.interrupted:
                self.on_sigint(_, frame)

    def on_sigint(self, _, frame):
        if not self.interruptible or os.getpid() != self.pid:
            return
        # raised only in frames of the code, never in the kernel's own between two evals; noted if it hits on_sigio
        self.interrupted = frame is None or frame.f_code.co_filename == KERNEL_FILE
        if not self.interrupted:
            raise KeyboardInterrupt

    def serve(self):
        while True:
            while self.waiting:
                self.handle(self.waiting.pop(0))
            self.waiting.extend(self.receive())

    def handle(self, message):
        if message.get("op") == "eval":
            self.busy = True
            watch(True)
            self.take_waiting()
            answer = self.evaluate(message.get("id"), message.get("code"))
            if os.getpid() != self.pid:
                os._exit(0)  # the code forked and came back in both
            self.busy = False
            watch(False)
            self.send(answer)
        elif message.get("op") == "reseed":
            self.reseed(message)

    # Evaluation

    def evaluate(self, number, code):
        filename = "<eval %s>" % number
        try:
            self.interrupted = False
            parts = compile_parts(str(code), filename)
            self.interruptible = True
            value = None
            for part in parts:
                value = eval(part, self.namespace.__dict__)
                if part.co_flags & COROUTINE:
                    value = self.run_to_end(value)
            text = None if value is None else repr(value)
            self.interruptible = False
            flush()
            return result(number, text, value)
        except BaseException as error:  # also SystemExit and KeyboardInterrupt: they end the eval only
            self.interruptible = False
            flush()
            return failure(number, error)

    def run_to_end(self, coroutine):
        if self.loop is None:
            import asyncio

            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(coroutine)
        try:
            return self.loop.run_until_complete(task)
        except BaseException:
            task.cancel()
            raise

    def reseed(self, message):
        generators = []
        try:
            seed = bytes.fromhex(message.get("seed"))
            random.seed(seed)
            generators.append("random")
            numpy = sys.modules.get("numpy")
            if numpy is not None and hasattr(numpy, "random"):
                words = [int.from_bytes(seed[at : at + 4], "little") for at in range(0, len(seed), 4)]
                numpy.random.seed(words)
                generators.append("numpy.random")
            ssl = sys.modules.get("_ssl")
            if ssl is not None:
                ssl.RAND_add(seed, float(len(seed)))
                generators.append("ssl")
        except Exception as error:
            return self.send(failure(message.get("id"), error))
        busy = self.busy or bool(self.waiting)
        self.send(encode({"event": "reseeded", "id": message.get("id"), "generators": generators, "busy": busy}))


def parse(line):
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def watch(on):
    flags = fcntl.fcntl(CONTROL, fcntl.F_GETFL)
    fcntl.fcntl(CONTROL, fcntl.F_SETFL, flags | os.O_ASYNC if on else flags & ~os.O_ASYNC)


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass  # the code closed or replaced it


def compile_parts(code, filename):
    """The statements and, if the code ends with one, the expression, both compiled before either runs."""
    lines = code.splitlines(True)
    # an mtime of None keeps the entry when tracebacks check their cache
    linecache.cache[filename] = (len(code), None, lines, filename)
    sources = [name for name in linecache.cache if name.startswith("<eval ")]
    if len(sources) > MOST_SOURCES:
        del linecache.cache[sources[0]]
    tree = ast.parse(code, filename)
    parts = []
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    if tree.body:
        parts.append((tree, "exec"))
    if last is not None:
        parts.append((ast.Expression(last.value), "eval"))
    return [compile_part(part, filename, mode) for part, mode in parts]


def compile_part(part, filename, mode):
    try:
        return compile(part, filename, mode, 0, True)
    except SyntaxError:
        if not ALLOW_AWAIT:
            raise
        return compile(part, filename, mode, ALLOW_AWAIT, True)


def result(number, text, value):
    if text is not None and len(text) > MOST_TEXT:
        text = text[:MOST_TEXT] + "…"
    head = encode({"event": "result", "id": number, "text": text})
    if text is not None and survives_json(value):
        try:
            plain = encode(value)
        except (ValueError, RecursionError):
            return head
        if len(plain) <= MOST_TEXT:
            return '%s, "json": %s}' % (head[:-1], plain)
    return head


def survives_json(value):
    """Whether the value is only of types that JSON gives back as they were, and not too large."""
    room = MOST_TEXT
    stack = [value]
    while stack:
        item = stack.pop()
        kind = type(item)
        room -= 1
        if kind is str:
            room -= len(item)
        elif kind is list:
            room -= len(item)
            if room >= 0:
                stack.extend(item)
        elif kind is dict:
            room -= len(item)
            if room >= 0:
                stack.extend(item)
                stack.extend(item.values())
                if any(type(key) is not str for key in item):
                    return False
        elif kind is int:
            if not -SAFE_INTEGER <= item <= SAFE_INTEGER:
                return False
        elif kind is float:
            if item != item or item in (float("inf"), float("-inf")):
                return False
        elif kind is not bool and item is not None:
            return False
        if room < 0:
            return False
    return True


def failure(number, error):
    kind = type(error)
    try:
        message = str(error)
    except Exception:
        message = "<no message>"
    try:
        formatted = traceback.TracebackException(kind, error, error.__traceback__)
        hide_kernel(formatted)
        text = "".join(formatted.format()).rstrip("\n")
    except Exception:
        text = "%s: %s" % (kind.__name__, message)
    event = {"event": "error", "id": number, "type": kind.__name__, "message": message, "traceback": text}
    return encode(event)


def hide_kernel(formatted):
    """Takes frames of the kernel, and what it called to get to the code, out of a traceback."""
    todo = [formatted]
    while todo:
        one = todo.pop()
        frames = [frame for frame in one.stack if frame.filename != KERNEL_FILE]
        own = [at for at, frame in enumerate(frames) if frame.filename.startswith("<eval ")]
        if one is formatted:
            frames = frames[own[0] :] if own else []
        one.stack[:] = frames
        todo.extend(other for other in (one.__cause__, one.__context__) if other is not None)
        todo.extend(getattr(one, "exceptions", None) or [])


def warm_up(kernel):
    """Runs the common paths once: memory that is touched and code that is loaded now is shared by all forks."""
    for code in ("1 + 1", "x = {'a': [1, 2.5, 'b', None]}\nx", "1 / 0", "def f(:"):
        kernel.evaluate(0, code)
    del kernel.namespace.x
    linecache.cache.clear()
    gc.collect()
    gc.freeze()


def main():
    os.set_inheritable(CONTROL, False)
    sys.argv = [""]
    sys.path[0] = ""
    # those of the site module close stdin for the evals that follow
    builtins.exit = builtins.quit = sys.exit
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)
    kernel = Kernel(_socket.socket(fileno=CONTROL))
    warm_up(kernel)
    signal.signal(signal.SIGINT, kernel.on_sigint)
    signal.signal(signal.SIGIO, kernel.on_sigio)
    signal.siginterrupt(signal.SIGIO, False)
    fcntl.fcntl(CONTROL, fcntl.F_SETOWN, os.getpid())
    version = "%d.%d.%d" % sys.version_info[:3]
    kernel.send(encode({"event": "ready", "language": "python", "version": version}))
    kernel.serve()


if __name__ == "__main__":
    main()
