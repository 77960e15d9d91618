"""Warm Python interpreter of a guest. The contract is spec/kernel-protocol.md."""

import _socket
import _thread
import ast
import builtins
import collections
import ctypes
import gc
import json
import linecache
import os
import random
import signal
import struct
import sys
import traceback
import types

KERNEL_FILE = __file__
CONTROL = 3
MOST_TEXT = 1 << 20
MOST_NAME = 1 << 10
MOST_SOURCES = 512
SAFE_INTEGER = (1 << 53) - 1
ALLOW_AWAIT = getattr(ast, "PyCF_ALLOW_TOP_LEVEL_AWAIT", 0)
COROUTINE = 0x80
TWISTER_BYTES = 624 * 4
# types whose text is complete
PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, range, type, types.FunctionType))
# modules whose import is hooked
HOOKED = frozenset(("matplotlib.pyplot", "forkd_inline", "IPython", "IPython.display", "PIL.Image"))

# The C parts of the json module. A fork runs its first eval with nothing translated or cached, so the path from a
# request to its result must be short.
scan = json.JSONDecoder().scan_once
quote = json.encoder.encode_basestring_ascii
encode = json.JSONEncoder(allow_nan=False).encode
chunks = json.encoder.c_make_encoder and json.encoder.c_make_encoder(None, None, quote, None, ": ", ", ", False, False, False)


class Kernel:
    def __init__(self, control):
        self.control = control
        self.sending = _thread.allocate_lock()
        self.pid = os.getpid()
        self.count = 0
        self.current = None
        self.displays = None
        self.received = b""
        self.interruptible = False
        self.loop = None
        self.sources = collections.deque()
        self.generators = Generators()
        self.namespace = types.ModuleType("__main__")
        self.namespace.__builtins__ = __builtins__
        sys.modules["__main__"] = self.namespace

    # Control channel

    def send(self, text):
        with self.sending:
            self.control.sendall(text.encode("ascii") + b"\n")

    def serve(self):
        while True:
            data = self.control.recv(65536)
            if not data:
                flush()
                os._exit(0)
            lines = (self.received + data).split(b"\n")
            self.received = lines.pop()
            for line in lines:
                if line:
                    self.handle(parse(line))

    def handle(self, message):
        if message is None:
            return
        op = message.get("op")
        number = message.get("id")
        if type(number) is not int:
            return
        if op == "eval":
            self.generators.after_fork(self.namespace.__dict__)
            if not message.get("warm"):
                self.count += 1
            env = message.get("env")
            answer = self.evaluate_with(env, number, message) if env else self.evaluate(number, message.get("code"))
            if os.getpid() != self.pid:
                os._exit(0)  # the code forked, and both processes returned
            if message.get("warm") and message.get("code"):
                self.generators.find_objects()
            if self.generators.changed():
                self.tell_generators()
            self.send(answer)
        elif op == "environment":
            os.environ.update(message.get("env") or {})
        elif op == "reseed":
            try:
                self.generators.reseed(bytes.fromhex(message.get("seed")))
            except Exception as error:
                return self.send(failure(number, error))
            self.send(encode({"event": "reseeded", "id": number, "generators": self.generators.names}))

    def tell_generators(self):
        self.send(encode({"event": "generators", "regions": self.generators.regions, "complete": self.generators.complete}))

    def on_sigint(self, _, frame):
        if not self.interruptible or os.getpid() != self.pid:
            return
        # only inside the code's own frames, so that it cannot hit the kernel between two evals
        if frame is None or frame.f_code.co_filename != KERNEL_FILE:
            raise KeyboardInterrupt

    # Displays

    def load_displays(self):
        """Made on first use: most code shows only text"""
        if self.displays is None:
            import importlib.util

            file = os.path.join(os.path.dirname(KERNEL_FILE), "display.py")
            spec = importlib.util.spec_from_file_location("forkd_display", file)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            self.displays = module.set_up(self.show)
        return self.displays

    def display(self, *objects, **options):
        self.load_displays().display(*objects, **options)

    def show(self, bundle):
        if self.current is None or os.getpid() != self.pid:
            return  # called by a thread that outlives its eval, or by a process that the code forked
        flush()
        self.send('{"event": "display", "id": %d, %s' % (self.current, bundle[1:]))

    def find_spec(self, name, path=None, target=None):
        return self.load_displays().find(name, path) if name in HOOKED else None

    # Evaluation

    def evaluate_with(self, env, number, message):
        """Runs code with environment variables that are set for this code only"""
        before = {name: os.environ.get(name) for name in env}
        os.environ.update(env)
        try:
            return self.evaluate(number, message.get("code"))
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def evaluate(self, number, code):
        filename = "<eval %s>" % number
        self.current = number
        try:
            parts = self.compile_parts(str(code), filename)
            self.interruptible = True
            value = None
            for part in parts:
                value = eval(part, self.namespace.__dict__)
                if part.co_flags & COROUTINE:
                    value = self.run_to_end(value)
            text = None if value is None else repr(value)
            data = None if type(value) in PLAIN else self.load_displays().main(value)
            if "matplotlib.pyplot" in sys.modules:
                self.load_displays().show_figures()
            self.interruptible = False
            flush()
            self.current = None
            return result(number, self.count, text, value, data)
        except BaseException as error:  # also SystemExit and KeyboardInterrupt: they end the eval only
            if "matplotlib.pyplot" in sys.modules:
                self.show_what_failed()
            self.interruptible = False
            flush()
            self.current = None
            return failure(number, error, self.count)

    def show_what_failed(self):
        """Figures belong to the code that made them, also if it failed: the next code begins with none"""
        try:
            self.load_displays().show_figures()
        except BaseException:
            traceback.print_exc()  # the first failure is reported

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

    def compile_parts(self, code, filename):
        """The statements and, if the code ends with one, the expression, both compiled before either runs."""
        # an mtime of None keeps the entry when tracebacks check their cache
        linecache.cache[filename] = (len(code), None, code.splitlines(True), filename)
        self.sources.append(filename)
        if len(self.sources) > MOST_SOURCES:
            linecache.cache.pop(self.sources.popleft(), None)
        try:
            return (compile(code, filename, "eval", 0, True),)
        except SyntaxError:
            pass  # not an expression, or not Python
        try:
            return compile_statements(code, filename)
        except SyntaxError:
            translated = self.load_displays().translate(code) if "!" in code or "%" in code else None
            if translated is None:
                raise
        return compile_statements(translated, filename)


class Generators:
    """The state of the interpreter's random generators. The agent overwrites it at every fork, while the interpreter
    waits or runs: [name, address, length, kind of content]."""

    def __init__(self):
        self.names = ["random"]
        self.objects = []
        self.complete = True
        self.numpy = False
        self.generation = bytearray(8)
        self.seen = bytes(self.generation)
        keeper = (ctypes.c_char * 8).from_buffer(self.generation)
        self.keeper = keeper  # while it lives, the bytes do not move
        self.regions = [["generation", ctypes.addressof(keeper), 8, "random"]]
        self.add("random", self.find_random)

    def add(self, name, find):
        try:
            self.regions.extend([name, address, length, fill] for address, length, fill in find())
        except Exception:
            self.complete = False  # another interpreter or version: the host sends a reseed instead

    def changed(self):
        """Whether numpy's generator was loaded since the last call."""
        if not self.numpy_is_new():
            return False
        if self.generation != self.seen:
            self.seed_numpy()
        self.numpy = True
        self.names.append("numpy.random")
        self.add("numpy.random", self.find_numpy)
        return True

    def numpy_is_new(self):
        return not self.numpy and "numpy.random.mtrand" in sys.modules

    def seed_numpy(self):
        """For a fork in which numpy was imported, but not yet found, when the agent overwrote the generators."""
        try:
            sys.modules["numpy.random.mtrand"].seed(struct.unpack("8I", os.urandom(32)))
        except Exception:
            self.complete = False  # the host then sends a reseed and gets this failure

    def find_random(self):
        generator = random._inst
        words = struct.pack("624I", *generator.getstate()[1][:624])
        at = ctypes.string_at(id(generator), generator.__sizeof__()).index(words)
        return [(id(generator) + at, TWISTER_BYTES, "random")]

    def find_numpy(self):
        generator = sys.modules["numpy.random.mtrand"]._rand
        address = generator._bit_generator.ctypes.state_address
        state = generator.get_state(legacy=False)
        if ctypes.string_at(address, TWISTER_BYTES) != state["state"]["key"].tobytes():
            raise LookupError("unknown layout")
        # the second of a pair of normal numbers is cached here
        sign = 0.12345678901234567
        generator.set_state(dict(state, has_gauss=1, gauss=sign))
        try:
            at = ctypes.string_at(id(generator), type(generator).__basicsize__).index(struct.pack("d", sign))
        finally:
            generator.set_state(state)
        return [(address, TWISTER_BYTES, "random"), (id(generator) + at - 8, 4, "zero")]

    def find_objects(self):
        """Generator objects anywhere in the warm-up's data. A fork searches only variables, because this takes long."""
        kinds = self.kinds()
        # type() and not isinstance(), which calls code of the object
        found = [item for item in gc.get_objects() if issubclass(type(item), kinds)]
        # the agent overwrites these two from outside
        numpy = getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None)
        known = {id(random._inst), id(numpy), id(getattr(numpy, "_bit_generator", None))}
        self.objects = [item for item in found if id(item) not in known]

    def kinds(self):
        kinds = [random.Random]
        for module, names in (("numpy.random", ("BitGenerator", "Generator", "RandomState")), ("torch", ("Generator",))):
            found = sys.modules.get(module)
            kinds.extend(getattr(found, name) for name in names if hasattr(found, name))
        return tuple(kinds)

    def seed_objects(self, variables):
        kinds = self.kinds()
        found = [item for item in variables.values() if issubclass(type(item), kinds)]
        torch = sys.modules.get("torch")
        if hasattr(torch, "default_generator"):
            found.append(torch.default_generator)
        for item in {id(item): item for item in self.objects + found}.values():
            try:
                seed_object(item)
            except Exception as error:  # a foreign class; the error is reported to the code that may use it
                print("forkd: a %s could not be reseeded: %s" % (type(item).__name__, error), file=sys.stderr)

    def after_fork(self, variables):
        """Reseeds generators that the agent cannot overwrite, before the first code of a fork."""
        if self.generation == self.seen:
            return
        self.seen = bytes(self.generation)
        self.seed_objects(variables)
        if self.numpy_is_new():
            self.seed_numpy()
        random._inst.gauss_next = None
        renew_library()
        ssl = sys.modules.get("_ssl")
        if ssl is not None:
            ssl.RAND_add(os.urandom(32), 32.0)

    def reseed(self, seed):
        random.seed(int.from_bytes(seed, "little"))
        if self.numpy:
            sys.modules["numpy.random.mtrand"].seed(struct.unpack("8I", seed))


def renew_library():
    """Values that Python's library draws once and keeps. Other versions of it may lack a name: it is then only added."""
    uuid = sys.modules.get("uuid")
    if uuid is not None:
        # libuuid keeps the node of the snapshot where nothing can reach it, so uuid1 must not call it
        uuid._generate_time_safe = None
        uuid._node = random.getrandbits(48) | 1 << 40  # the bit that no hardware address has
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile._name_sequence = None
    process = getattr(sys.modules.get("multiprocessing.process"), "_current_process", None)
    # the processes of a manager authenticate themselves with the key that they were started with
    if process is not None and not sys.modules["multiprocessing.process"].active_children():
        process.authkey = os.urandom(32)


def seed_object(item):
    if isinstance(item, random.Random):
        random.Random.seed(item)
    elif hasattr(item, "bit_generator"):  # numpy's Generator
        item.bit_generator.state = type(item.bit_generator)().state
    elif hasattr(item, "seed"):  # numpy's RandomState, torch's Generator
        item.seed()
    else:  # numpy's BitGenerator
        item.state = type(item)().state


def parse(line):
    try:
        message, _ = scan(line.decode(), 0)
    except (ValueError, StopIteration):
        return None
    return message if isinstance(message, dict) else None


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass  # the code closed or replaced it


def compile_statements(code, filename):
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


def result(number, count, text, value, data):
    if text is not None:
        text = cut(text)
    head = '{"event": "result", "id": %d, "count": %d, "text": %s}' % (number, count, "null" if text is None else quote(text))
    if data is not None:
        return "%s, %s" % (head[:-1], data[1:])
    if text is not None and survives_json(value):
        try:
            plain = "".join(chunks(value, 0)) if chunks else encode(value)
        except (ValueError, RecursionError):
            return head
        if len(plain) <= MOST_TEXT:
            return '%s, "json": %s}' % (head[:-1], plain)
    return head


def cut(text):
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + "…"


def survives_json(value):
    """Whether the value has only types that JSON preserves, or tuples, which become arrays, and is not too large."""
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
        elif isinstance(item, tuple) and kind.__iter__ is tuple.__iter__:  # also a namedtuple
            room -= tuple.__len__(item)
            if room >= 0:
                stack.extend(item)
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


def failure(number, error, count=0):
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
    told = {"type": kind.__name__[:MOST_NAME], "message": cut(message), "traceback": cut(text)}
    return encode({"event": "error", "id": number, "count": count, **told})


def hide_kernel(formatted):
    """Removes the frames of the kernel, and of the functions between it and the code, from a traceback."""
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
    """Runs the common paths once: all forks share the memory that is touched and the code that is loaded now."""
    for code in ("1 + 1", "x = {'a': [1, 2.5, 'b', None]}\nx", "1 / 0", "def f(:"):
        kernel.evaluate(0, code)
    del kernel.namespace.x
    linecache.cache.clear()
    kernel.sources.clear()
    gc.collect()
    gc.freeze()


def main():
    os.set_inheritable(CONTROL, False)
    sys.argv = [""]
    sys.path[0] = ""
    # those of the site module would close stdin for later evals
    builtins.exit = builtins.quit = sys.exit
    for stream in (sys.stdout, sys.stderr):
        # "-u" would forward each write: print("hello") writes the text and the line end separately
        stream.reconfigure(line_buffering=True, write_through=False)
    kernel = Kernel(_socket.socket(fileno=CONTROL))
    builtins.display = kernel.display
    sys.meta_path.insert(0, kernel)
    warm_up(kernel)
    signal.signal(signal.SIGINT, kernel.on_sigint)
    version = "%d.%d.%d" % sys.version_info[:3]
    kernel.tell_generators()
    kernel.send(encode({"event": "ready", "language": "python", "version": version}))
    kernel.serve()


if __name__ == "__main__":
    main()
