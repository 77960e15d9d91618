"""A call of every method of the controller, and the request that it must make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional

from ..helpers.both import collect


@dataclass
class Case:
    route: str
    call: Callable[[Any], Any]
    params: Optional[Dict[str, str]] = None
    query: Optional[Dict[str, Any]] = None
    body: Any = None


NETWORK = {"mode": "allow", "allow": ["example.org:443"], "egress_limit_bytes": None}
SHARES = [{"source": "/srv/data", "target": "/data"}]
LIMITS: Dict[str, Any] = {"memory_limit_mib": 64, "cpu_limit": 0.5, "cpu_weight": 50, "pids_limit": 100, "io_limit_mbps": 2.5}
WARM_UP = {"kernels": [{"language": "python", "code": "import numpy"}], "timeout_secs": 9}

CASES: List[Case] = [
    Case("getHealth", lambda c: c.health()),
    Case("getReadiness", lambda c: c.ready()),
    Case("getVersion", lambda c: c.version()),
    Case("getMetrics", lambda c: c.metrics()),
    Case("getOpenapi", lambda c: c.openapi()),
    Case("getStatus", lambda c: c.status()),
    Case("getConfig", lambda c: c.config()),
    Case("stopDaemon", lambda c: c.stop(kill_sandboxes=True), body={"kill_sandboxes": True}),
    Case("stopDaemon", lambda c: c.stop(if_idle=True), body={"if_idle": True}),
    Case("collectGarbage", lambda c: c.gc(dry_run=True), body={"dry_run": True}),
    Case("getTree", lambda c: c.tree()),
    Case("getStats", lambda c: c.stats()),
    Case("listTokens", lambda c: c.list_tokens()),
    Case(
        "createToken",
        lambda c: c.create_token("ci", scope="read", max_sandboxes=3),
        body={"name": "ci", "scope": "read", "max_sandboxes": 3},
    ),
    Case("rotateToken", lambda c: c.rotate_token("ci"), params={"name": "ci"}),
    Case("deleteToken", lambda c: c.delete_token("ci"), params={"name": "ci"}),
    Case("listImages", lambda c: c.list_images()),
    Case("getImage", lambda c: c.get_image("a/b:c"), params={"name": "a/b:c"}),
    Case(
        "createImage",
        lambda c: c.create_image(reference="python:3.13-slim", insecure_http=True, username="u", password="p"),
        body={"reference": "python:3.13-slim", "insecure_http": True, "username": "u", "password": "p"},
    ),
    Case(
        "createImage",
        lambda c: c.create_image(
            "py",
            packages=["python3"],
            copy=[{"from": "/a", "to": "/b"}],
            run=["true"],
            suite="trixie",
            mirror="http://m/",
            max_bytes=9,
            force=True,
        ),
        body={
            "name": "py",
            "packages": ["python3"],
            "copy": [{"from": "/a", "to": "/b"}],
            "run": ["true"],
            "suite": "trixie",
            "mirror": "http://m/",
            "max_bytes": 9,
            "force": True,
        },
    ),
    Case("createImage", lambda c: c.create_image("py", file="/srv/py.tar"), body={"name": "py", "file": "/srv/py.tar"}),
    Case("deleteImage", lambda c: c.delete_image("py"), params={"name": "py"}),
    Case(
        "listSnapshots",
        lambda c: c.list_snapshots(status="ready", limit=5, cursor="c", metadata={"a": "1", "b": "x=y&z"}),
        query={"status": "ready", "limit": "5", "cursor": "c", "metadata": ["a=1", "b=x=y&z"]},
    ),
    Case(
        "createSnapshot",
        lambda c: c.create_snapshot(
            "py",
            image="i",
            memory_mib=512,
            vcpus=1,
            disk_mib=64,
            warm_up=WARM_UP,
            env={"A": "b"},
            metadata={"k": "v"},
            network=NETWORK,
        ),
        body={
            "tag": "py",
            "image": "i",
            "memory_mib": 512,
            "vcpus": 1,
            "disk_mib": 64,
            "network": NETWORK,
            "warm_up": WARM_UP,
            "env": {"A": "b"},
            "metadata": {"k": "v"},
        },
    ),
    Case(
        "createSnapshot",
        lambda c: c.create_snapshot("py", kernel="k", rootfs="r", rw=True, tap="t", boot_wait_secs=1),
        body={"tag": "py", "kernel": "k", "rootfs": "r", "rw": True, "tap": "t", "boot_wait_secs": 1},
    ),
    Case("getSnapshot", lambda c: c.get_snapshot("py"), params={"tag": "py"}),
    Case("getSnapshotDetails", lambda c: c.snapshot_info("py"), params={"tag": "py"}),
    Case(
        "updateSnapshot",
        lambda c: c.update_snapshot("py", tag="py2", pool=2, metadata={}),
        params={"tag": "py"},
        body={"tag": "py2", "pool": 2, "metadata": {}},
    ),
    Case("deleteSnapshot", lambda c: c.delete_snapshot("py"), query={}),
    Case("deleteSnapshot", lambda c: c.delete_snapshot("py", cascade=True, force=False), query={"cascade": "true"}),
    Case("deleteSnapshot", lambda c: c.delete_snapshot("py", force=True), query={"force": "true"}),
    Case("compactSnapshot", lambda c: c.compact_snapshot("py", "flat"), params={"tag": "py"}, body={"to": "flat"}),
    Case(
        "listSandboxes",
        lambda c: c.list_sandboxes(tag="py", state=["running", "lost"], metadata={"job": "7"}),
        query={"tag": "py", "state": "running,lost", "metadata": "job=7"},
    ),
    Case(
        "createSandboxes",
        lambda c: c.spawn_sandboxes(
            "py",
            1,
            name="one",
            ttl_secs=60,
            idle_timeout_secs=5,
            env={"A_B": "c"},
            metadata={"k": "v"},
            network=NETWORK,
            shares=SHARES,
            **LIMITS,
        ),
        body={
            "snapshot_tag": "py",
            "n": 1,
            "name": "one",
            "ttl_secs": 60,
            "idle_timeout_secs": 5,
            **LIMITS,
            "env": {"A_B": "c"},
            "metadata": {"k": "v"},
            "network": NETWORK,
            "shares": SHARES,
        },
    ),
    Case(
        "createSandboxes",
        # As scripts for the older SDK have it.
        lambda c: c.spawn_sandboxes("py", 2, True, 256, prewarm=True, live_fork=True, hugepages=True),
        body={
            "snapshot_tag": "py",
            "n": 2,
            "per_child_netns": True,
            "memory_limit_mib": 256,
            "prewarm": True,
            "live_fork": True,
            "hugepages": True,
        },
    ),
    Case("deleteSandboxes", lambda c: c.kill_sandboxes(all=True), query={"all": "true"}),
    Case("deleteSandboxes", lambda c: c.kill_sandboxes(tag="py"), query={"tag": "py"}),
    Case("getSandbox", lambda c: c.get_sandbox("sb-1"), params={"id": "sb-1"}),
    Case(
        "updateSandbox",
        lambda c: c.update_sandbox("sb-1", name=None, ttl_secs=None, idle_timeout_secs=3),
        params={"id": "sb-1"},
        body={"name": None, "ttl_secs": None, "idle_timeout_secs": 3},
    ),
    Case("updateSandbox", lambda c: c.update_sandbox("sb-1", metadata={}), body={"metadata": {}}),
    Case("deleteSandbox", lambda c: c.kill_sandbox("sb-1"), params={"id": "sb-1"}),
    Case("pingSandbox", lambda c: c.ping_sandbox("sb-1"), params={"id": "sb-1"}),
    Case(
        "execCommand",
        lambda c: c.exec_command("sb-1", ["id"], 5, stdin="x", env={}, cwd="/", user="nobody", encoding="utf8", max_output_bytes=10),
        body={
            "args": ["id"],
            "timeout_secs": 5,
            "stdin": "x",
            "env": {},
            "cwd": "/",
            "user": "nobody",
            "encoding": "utf8",
            "max_output_bytes": 10,
        },
    ),
    Case("execCommand", lambda c: c.exec_command("sb-1", args=["id"], timeout_secs=30), body={"args": ["id"], "timeout_secs": 30}),
    Case(
        "evalCode",
        lambda c: c.eval_code("sb-1", "1", language="python", timeout_secs=2),
        body={"code": "1", "language": "python", "timeout_secs": 2},
    ),
    Case(
        "evalCode",
        lambda c: c.eval_code("sb-1", "1", context="bash-1", env={"A": "b"}),
        body={"code": "1", "context": "bash-1", "env": {"A": "b"}},
    ),
    Case("listContexts", lambda c: c.list_contexts("sb-1"), params={"id": "sb-1"}),
    Case(
        "createContext",
        lambda c: c.create_context("sb-1", "bash", cwd="/srv", env={"A": "b"}),
        body={"language": "bash", "cwd": "/srv", "env": {"A": "b"}},
    ),
    Case("deleteContext", lambda c: c.delete_context("sb-1", "bash-1"), params={"id": "sb-1", "context": "bash-1"}),
    Case("restartContext", lambda c: c.restart_context("sb-1", "bash-1"), params={"id": "sb-1", "context": "bash-1"}),
    Case("interruptContext", lambda c: c.interrupt_context("sb-1", "bash-1"), params={"id": "sb-1", "context": "bash-1"}),
    Case(
        "branchSandbox",
        lambda c: c.branch_sandbox("sb-1", tag="b", wait=False, mode="live", measure_diff=True, parent_tag="p", metadata={}),
        body={"tag": "b", "wait": False, "mode": "live", "measure_diff": True, "parent_tag": "p", "metadata": {}},
    ),
    Case("branchSandbox", lambda c: c.branch_sandbox("sb-1", "b", True, live=False), body={"tag": "b", "diff": True, "live": False}),
    Case(
        "forkSandbox",
        lambda c: c.fork_sandbox(
            "sb-1", 2, tag="t", env={}, metadata={}, network=NETWORK, shares=[], ttl_secs=1, idle_timeout_secs=2, **LIMITS
        ),
        body={
            "n": 2,
            "tag": "t",
            "env": {},
            "metadata": {},
            "network": NETWORK,
            "shares": [],
            "ttl_secs": 1,
            "idle_timeout_secs": 2,
            **LIMITS,
        },
    ),
    Case("pauseSandbox", lambda c: c.pause_sandbox("sb-1"), params={"id": "sb-1"}),
    Case("suspendSandbox", lambda c: c.suspend_sandbox("sb-1"), params={"id": "sb-1"}),
    Case("resumeSandbox", lambda c: c.resume_sandbox("sb-1"), params={"id": "sb-1"}),
    Case("getSandboxStats", lambda c: c.sandbox_stats("sb-1"), params={"id": "sb-1"}),
    Case("getNetwork", lambda c: c.get_network("sb-1"), params={"id": "sb-1"}),
    Case(
        "setNetwork",
        lambda c: c.set_network("sb-1", "allow", allow=["example.org:443"], egress_limit_bytes=None),
        params={"id": "sb-1"},
        body=NETWORK,
    ),
    Case("setNetwork", lambda c: c.set_network("sb-1", "open"), body={"mode": "open"}),
    Case("getSandboxLogs", lambda c: collect(c.logs("sb-1", source="vmm", tail=3)), query={"source": "vmm", "tail": "3"}),
    Case("getSandboxLogs", lambda c: collect(c.logs("sb-1", follow=True)), query={"follow": "true"}),
    Case(
        "readFile",
        lambda c: c.read_file("sb-1", "/a b&c", offset=1, length=7, user="nobody"),
        params={"id": "sb-1"},
        query={"path": "/a b&c", "offset": "1", "length": "7", "user": "nobody"},
    ),
    Case("readFile", lambda c: collect(c.read_file_stream("sb-1", "/x")), query={"path": "/x"}),
    Case(
        "writeFile",
        lambda c: c.write_file("sb-1", "/x", "content", mode="600", parents=True, offset=3, user="nobody"),
        query={"path": "/x", "mode": "600", "parents": "true", "offset": "3", "user": "nobody"},
        body=b"content",
    ),
    Case(
        "writeFile",
        lambda c: c.write_file("sb-1", "/x", b"\xff", mode=0o644, append=True),
        query={"path": "/x", "mode": "644", "append": "true"},
        body=b"\xff",
    ),
    Case(
        "statFile",
        lambda c: c.stat_file("sb-1", "/x", follow=True, user="nobody"),
        query={"path": "/x", "follow": "true", "user": "nobody"},
    ),
    Case(
        "listFiles",
        lambda c: c.list_files("sb-1", "/x", depth=2, limit=5, cursor="c", user="nobody"),
        query={"path": "/x", "depth": "2", "limit": "5", "cursor": "c", "user": "nobody"},
    ),
    Case("listFiles", lambda c: c.list_files("sb-1", "/x"), query={"path": "/x", "limit": "10000"}),
    Case(
        "makeDirectory",
        lambda c: c.make_directory("sb-1", "/x", mode=0o700, parents=True, user="nobody"),
        body={"path": "/x", "mode": "700", "parents": True, "user": "nobody"},
    ),
    Case(
        "moveFile",
        lambda c: c.move_file("sb-1", "/x", "/y", overwrite=True, user="nobody"),
        body={"from": "/x", "to": "/y", "overwrite": True, "user": "nobody"},
    ),
    Case(
        "copyFile",
        lambda c: c.copy_file("sb-1", "/x", "/y", recursive=True, overwrite=False, user="nobody"),
        body={"from": "/x", "to": "/y", "recursive": True, "overwrite": False, "user": "nobody"},
    ),
    Case(
        "removeFile",
        lambda c: c.remove_file("sb-1", "/x", recursive=True, user="nobody"),
        query={"path": "/x", "recursive": "true", "user": "nobody"},
    ),
    Case(
        "chmodFile",
        lambda c: c.chmod_file("sb-1", "/x", 0o4755, recursive=True, user="nobody"),
        body={"path": "/x", "mode": "4755", "recursive": True, "user": "nobody"},
    ),
    Case(
        "chownFile",
        lambda c: c.chown_file("sb-1", "/x", owner="nobody", group=0, recursive=True, user="root"),
        body={"path": "/x", "owner": "nobody", "group": "0", "recursive": True, "user": "root"},
    ),
    Case(
        "makeSymlink",
        lambda c: c.make_symlink("sb-1", "../x", "/y", user="nobody"),
        body={"target": "../x", "path": "/y", "user": "nobody"},
    ),
    Case(
        "readTar",
        lambda c: collect(c.read_tar("sb-1", "/x", plain=True, user="nobody")),
        query={"path": "/x", "plain": "true", "user": "nobody"},
    ),
    Case("writeTar", lambda c: c.write_tar("sb-1", "/x", b"tar", user="nobody"), query={"path": "/x", "user": "nobody"}, body=b"tar"),
    Case(
        "startProcess",
        lambda c: c.start_process(
            "sb-1",
            ["top"],
            env={"A": "b"},
            cwd="/",
            user="nobody",
            tag="web",
            stdin=True,
            terminal={"rows": 24, "cols": 80},
            timeout_secs=9,
        ),
        params={"id": "sb-1"},
        body={
            "args": ["top"],
            "env": {"A": "b"},
            "cwd": "/",
            "user": "nobody",
            "tag": "web",
            "stdin": True,
            "terminal": {"rows": 24, "cols": 80},
            "timeout_secs": 9,
        },
    ),
    Case("listProcesses", lambda c: c.list_processes("sb-1"), params={"id": "sb-1"}),
    Case("getProcess", lambda c: c.get_process("sb-1", 7), params={"id": "sb-1", "process": "7"}),
    Case("killProcess", lambda c: c.kill_process("sb-1", "web"), params={"id": "sb-1", "process": "web"}),
    Case("writeStdin", lambda c: c.write_stdin("sb-1", "web", "typed", close=True), query={"close": "true"}, body=b"typed"),
    Case(
        "signalProcess",
        lambda c: c.signal_process("sb-1", "web", "SIGINT", scope="process"),
        params={"id": "sb-1", "process": "web"},
        body={"signal": "SIGINT", "scope": "process"},
    ),
    Case("resizeProcess", lambda c: c.resize_process("sb-1", 7, 24, 80), body={"rows": 24, "cols": 80}),
    Case("listPorts", lambda c: c.list_ports("sb-1"), params={"id": "sb-1"}),
    Case(
        "createPreview",
        lambda c: c.create_preview("sb-1", 8000, expires_in_secs=60),
        params={"id": "sb-1", "port": "8000"},
        body={"expires_in_secs": 60},
    ),
    Case("listWorkspaces", lambda c: c.list_workspaces()),
    Case(
        "createWorkspace",
        lambda c: c.create_workspace("w", "py", per_child_netns=False, **LIMITS),
        body={"name": "w", "snapshot_tag": "py", "per_child_netns": False, **LIMITS},
    ),
    Case("getWorkspace", lambda c: c.get_workspace("w"), params={"name": "w"}),
    Case("deleteWorkspace", lambda c: c.delete_workspace("w"), params={"name": "w"}),
    Case("suspendWorkspace", lambda c: c.suspend_workspace("w", diff=True), params={"name": "w"}, body={"diff": True}),
    Case("resumeWorkspace", lambda c: c.resume_workspace("w"), params={"name": "w"}),
]

#: Reached by tests of their own
ELSEWHERE = {
    "getEvents": "test_events.py",
    "evalStream": "test_code.py",
    "watchFiles": "test_files.py",
    "watchProcess": "test_commands.py",
    "proxyRequest": "test_ports.py",
    "connectPort": "test_ports.py",
}
#: Routes that no method uses
UNUSED = {"streamProcess": "a WebSocket, for which server-sent events and requests do as well"}
