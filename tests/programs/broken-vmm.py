"""Runs in place of a VMM: makes the attempts of an attacker who controls the VMM, and prints the outcomes.

Each attempt prints two lines of JSON: {"at": number, "what": …, "who": users that can do it without confinement}, and
{"outcome": "done" or the name of an errno}. The second line is missing if the attempt ended this process. `who` is
`user` for any user, `root` for root, and `nobody` for attempts that are made only under confinement, because they
would do harm or depend on the host. Attempts before targets["from"] are skipped: after an attempt ended the process,
the next process starts with the one after it."""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import socket
import stat
import sys
import threading

targets = json.loads(sys.argv[1])
if targets["clone"]:
    # The zygote is held and cloned here. A clone reports that it runs when a client connects to its control channel, and
    # continues when that client sends the first attempt.
    with socket.socket(fileno=os.dup(3)) as channel:
        starter, _ = channel.accept()
        with starter:
            starter.sendall(b"?")
            targets.update(json.loads(starter.makefile().readline()))
            starter.sendall(b"!")
is_confined = targets["confined"]
own = os.getcwd()
libc = ctypes.CDLL(None, use_errno=True)

SYS = {
    "ptrace": 101, "pivot_root": 155, "chroot": 161, "mount": 165, "clone": 56, "clone3": 435, "unshare": 272, "setns": 308,
    "process_vm_readv": 310, "pidfd_open": 434, "pidfd_getfd": 438, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323,
    "io_uring_setup": 425, "add_key": 248, "keyctl": 250, "name_to_handle_at": 303, "open_by_handle_at": 304, "open_tree": 428,
    "fsopen": 430, "kexec_load": 246, "init_module": 175, "capget": 125, "tgkill": 234, "prlimit64": 302,
}
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWPID = 0x20000, 0x10000000, 0x40000000, 0x20000000


def is_open(fd):
    try:
        os.fstat(fd)
        return True
    except OSError:
        return False


descriptors = [fd for fd in range(1024) if is_open(fd)]


def call(name, *args):
    result = libc.syscall(SYS[name], *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


count = 0


def attempt(what, work, who="nobody"):
    global count
    count += 1
    if count <= targets["from"] or (who == "nobody" and not is_confined):
        return
    print(json.dumps({"at": count, "what": what, "who": who}), flush=True)
    try:
        work()
        outcome = "done"
    except OSError as error:
        outcome = errno.errorcode.get(error.errno, str(error.errno))
    print(json.dumps({"outcome": outcome}), flush=True)


def read(path):
    with open(path, "rb") as file:
        file.read(16)


def open_with(path, flags):
    os.close(os.open(path, flags, 0o600))


def make(path):
    open_with(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.remove(path)


def keep_mode(path):
    os.chmod(path, stat.S_IMODE(os.stat(path).st_mode))


def list_others(path):
    """The folders on the path to its own files may contain only those files."""
    shown = [own, *targets["shared"].values(), targets["preload"], "/etc/ld.so.cache"]
    names = [os.path.join(path, name) for name in os.listdir(path)]
    if all(any(file == name or file.startswith(name + "/") for file in shown) for name in names):
        raise OSError(errno.ENOENT, path)


def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(5)
        client.connect(address)


def refuse_unless(holds):
    if not holds:
        raise OSError(errno.EPERM, "")


def talk(fd):
    """Accepts a client that has already connected, and reads one byte."""
    with socket.socket(fileno=os.dup(fd)) as channel:
        channel.settimeout(targets["patience_secs"])
        client, _ = channel.accept()
        with client:
            client.settimeout(targets["patience_secs"])
            refuse_unless(client.recv(1) == b"?")
            client.sendall(b"!")


def make_thread():
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()


# Required operations. A clone has no writable folder, only its descriptors.
write_own = (lambda: os.write(6, b"x")) if targets["clone"] else (lambda: open_with(f"{own}/file", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
attempt("own: writes its folder", write_own, "user")
if targets["clone"]:
    attempt("own: writes its disk layer", lambda: os.write(8, b"x"), "user")
    attempt("writes a layer that was frozen", lambda: os.pwrite(7, b"x", 0))
    attempt("maps a layer that was frozen", lambda: mmap.mmap(7, 4, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE))
for name, path in targets["layers"].items():
    attempt(f"writes {name}", lambda path=path: open_with(path, os.O_RDWR))
attempt("own: reads the memory image", lambda: read(targets["memory"]), "user")
attempt("own: reads the root file system", lambda: read(targets["rootfs"]), "user")
attempt("own: reads its device state", lambda: os.pread(5, 16, 0), "user")
attempt("own: reads a program", lambda: read("/usr/bin/env"), "user")
attempt("own: maps the image privately", lambda: mmap.mmap(os.open(targets["memory"], os.O_RDONLY), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE), "user")
attempt("own: talks over its control channel", lambda: talk(3), "user")
attempt("own: talks over its agent's channel", lambda: talk(4), "user")
attempt("own: makes a thread", make_thread, "user")
attempt("own: uses /dev/null", lambda: open_with("/dev/null", os.O_RDWR), "user")
attempt("own: uses /dev/zero", lambda: read("/dev/zero"), "user")
attempt("own: uses /dev/urandom", lambda: read("/dev/urandom"), "user")

# files of other VMs and of the user
for name, path in targets["folders"].items():
    attempt(f"lists {name}", lambda path=path: list_others(path), "user")
attempt("lists the home", lambda: list_others(targets["home"]), "root")
for name, path in targets["secrets"].items():
    attempt(f"reads {name}", lambda path=path: read(path), "user")
for name, path in targets["shared"].items():
    attempt(f"opens {name} for writing", lambda path=path: open_with(path, os.O_RDWR), "user")
    attempt(f"appends to {name}", lambda path=path: open_with(path, os.O_WRONLY | os.O_APPEND), "user")
    attempt(f"changes the mode of {name}", lambda path=path: keep_mode(path), "user")
    attempt(f"maps {name} for writing", lambda path=path: mmap.mmap(os.open(path, os.O_RDWR), 4096), "user")
    attempt(f"cuts {name}", lambda path=path: os.truncate(path, 0))
    attempt(f"removes {name}", lambda path=path: os.remove(path))
    attempt(f"links {name}", lambda path=path: os.link(path, f"{own}/link"))
    attempt(f"writes beside {name}", lambda path=path: make(f"{os.path.dirname(path)}/file"), "user")
attempt("changes the mode of a descriptor's file", lambda: os.fchmod(5, stat.S_IMODE(os.fstat(5).st_mode)), "user")
attempt("writes beside its folder", lambda: make(f"{own}/../file"), "user")
for path in ["/", "/tmp", "/usr", "/usr/lib", "/etc", "/var", "/run", "/dev", "/home", "/root"]:
    attempt(f"writes in {path}", lambda path=path: make(f"{path}/forkd-broken-vmm"))

# sockets
for name, path in targets["sockets"].items():
    attempt(f"sees {name}", lambda path=path: os.stat(path), "user")
    attempt(f"connects to {name}", lambda path=path: connect(socket.AF_UNIX, path), "user" if name == "the daemon" else "nobody")
attempt("connects to an abstract socket", lambda: connect(socket.AF_UNIX, "\0" + targets["abstract"]), "user")
attempt("connects to a port of the host", lambda: connect(socket.AF_INET, ("127.0.0.1", targets["port"])), "user")
for family, name in [(1, "unix"), (2, "inet"), (10, "inet6"), (16, "netlink"), (17, "packet"), (38, "alg"), (40, "vsock")]:
    attempt(f"makes a socket of {name}", lambda family=family: socket.socket(family, socket.SOCK_DGRAM).close())
attempt("makes a pair of sockets", lambda: [end.close() for end in socket.socketpair()], "user")

# other processes
for name, pid in targets["processes"].items():
    attempt(f"signals {name}", lambda pid=pid: os.kill(pid, 0), "user")
    attempt(f"opens {name}", lambda pid=pid: os.close(call("pidfd_open", pid, 0)), "user")
    attempt(f"reads the memory of {name}", lambda pid=pid: read(f"/proc/{pid}/maps"), "user")
    attempt(f"seizes {name}", lambda pid=pid: call("ptrace", 0x4206, pid, 0, 0))
# processes of the same family have pids in its pid namespace
F_SETOWN, F_SETSIG, FIOSETOWN, RLIMIT_CPU = 8, 10, 0x8901, 0
for name, pid in targets["relatives"].items():
    attempt(f"signals {name}", lambda pid=pid: os.kill(pid, 0))
    attempt(f"signals a thread of {name}", lambda pid=pid: call("tgkill", pid, pid, 0))
    attempt(f"opens {name}", lambda pid=pid: os.close(call("pidfd_open", pid, 0)))
    attempt(f"seizes {name}", lambda pid=pid: call("ptrace", 0x4206, pid, 0, 0))
    attempt(f"reads the memory of {name}", lambda pid=pid: call("process_vm_readv", pid, 0, 0, 0, 0, 0))
    attempt(f"limits {name}", lambda pid=pid: call("prlimit64", pid, RLIMIT_CPU, 0, 0))
    attempt(f"moves {name} to a processor", lambda pid=pid: os.sched_setaffinity(pid, {0}))
    attempt(f"slows {name} down", lambda pid=pid: os.setpriority(os.PRIO_PROCESS, pid, 19))
    attempt(f"lets a descriptor signal {name}", lambda pid=pid: fcntl.fcntl(3, F_SETOWN, pid))
    attempt(f"lets a socket signal {name}", lambda pid=pid: fcntl.ioctl(3, FIOSETOWN, pid.to_bytes(4, "little")))
if targets["frozen"]:
    attempt("own: signals a thread of its own", lambda: call("tgkill", os.getpid(), threading.get_native_id(), 0))
attempt("signals everybody", lambda: os.kill(-1, 0))
attempt("sees processes", lambda: os.listdir("/proc"), "user")
attempt("sees the host's devices", lambda: os.listdir("/sys"), "user")
attempt("starts a process", lambda: refuse_unless((os.fork() or os._exit(0)) > 0), "user")
attempt("starts another program", lambda: os.execv("/usr/bin/env", ["env"]))

# privileges
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
sets = (ctypes.c_uint32 * 6)()
call("capget", ctypes.byref(header), ctypes.byref(sets))
attempt("has capabilities", lambda: refuse_unless(any(sets)), "root")
attempt("can gain privileges", lambda: refuse_unless(libc.prctl(39, 0, 0, 0, 0) == 0))
attempt("finds programs that change the user", lambda: refuse_unless(not os.statvfs("/usr/bin").f_flag & os.ST_NOSUID))
attempt("becomes root", lambda: os.setuid(0), "root")
attempt("becomes another group", lambda: os.setgid(0), "root")
attempt("makes a device", lambda: os.mknod(f"{own}/mem", stat.S_IFCHR | 0o600, os.makedev(1, 1)), "root")
for name, flag in [("user", CLONE_NEWUSER), ("mount", CLONE_NEWNS), ("network", CLONE_NEWNET), ("pid", CLONE_NEWPID)]:
    attempt(f"makes a {name} namespace", lambda flag=flag: call("unshare", flag))
    attempt(f"starts a process in a {name} namespace", lambda flag=flag: refuse_unless((call("clone", flag | 17, 0, 0, 0, 0) or os._exit(0)) > 0))
attempt("makes a process the new way", lambda: call("clone3", 0, 0))
attempt("mounts", lambda: call("mount", b"none", own.encode(), b"tmpfs", 0, 0))
attempt("changes its root", lambda: call("chroot", own.encode()))
attempt("turns its root round", lambda: call("pivot_root", own.encode(), own.encode()))
attempt("joins a namespace", lambda: call("setns", 0, 0))
for name in ["open_tree", "fsopen", "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "add_key", "keyctl",
             "name_to_handle_at", "open_by_handle_at", "pidfd_getfd", "process_vm_readv", "kexec_load", "init_module"]:
    attempt(f"calls {name}", lambda name=name: call(name, 0, 0, 0, 0, 0, 0))

# devices
for name in targets["devices"]:
    attempt(f"opens /dev/{name}", lambda name=name: open_with(f"/dev/{name}", os.O_RDONLY | os.O_NONBLOCK))

# uses of its own folder
program = 6 if targets["clone"] else os.open(f"{own}/program", os.O_RDWR | os.O_CREAT, 0o700)
os.write(program, b"\xc3" * 4096)
attempt("runs code from its folder", lambda: mmap.mmap(program, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC), "user")
attempt("makes a file in memory", lambda: os.close(os.memfd_create("program")), "user")
attempt("makes an endless file", lambda: os.ftruncate(program, 1 << 40))

print(json.dumps({"descriptors": descriptors}), flush=True)
