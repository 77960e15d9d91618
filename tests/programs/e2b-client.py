"""E2B's Python SDK against a daemon: each function is one test, named on the command line."""

import asyncio
import os
import sys
import time
import urllib.request

import e2b
from e2b import AsyncSandbox, CommandExitException, Sandbox

GONE = getattr(e2b, "SandboxNotRunningException", e2b.TimeoutException)
NOT_FOUND = getattr(e2b, "FileNotFoundException", e2b.NotFoundException)


def raises(kind, work):
    try:
        work()
    except kind as error:
        return error
    raise AssertionError(f"expected {kind}")


def until(is_so):
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


def commands():
    with Sandbox.create(timeout=120, envs={"COLOUR": "blue"}) as sandbox:
        result = sandbox.commands.run("echo $COLOUR $USER $PWD; echo oops >&2")
        assert (result.stdout, result.stderr, result.exit_code) == ("blue user /home/user\n", "oops\n", 0), result
        error = raises(CommandExitException, lambda: sandbox.commands.run("echo x; exit 3"))
        assert (error.exit_code, error.stdout) == (3, "x\n"), error
        raises(e2b.TimeoutException, lambda: sandbox.commands.run("sleep 4321", timeout=0.5))
        raises(e2b.InvalidArgumentException, lambda: sandbox.commands.run("true", cwd="/nowhere"))
        raises(e2b.AuthenticationException, lambda: sandbox.commands.run("true", user="stranger"))

        cat = sandbox.commands.run("cat", background=True, stdin=True)
        sandbox.commands.send_stdin(cat.pid, "hello\n")
        assert [process.pid for process in sandbox.commands.list()][-1] == cat.pid
        assert next(iter(cat)) == ("hello\n", None, None)
        assert sandbox.commands.kill(cat.pid) is True
        assert raises(CommandExitException, cat.wait).exit_code == -1
        assert sandbox.commands.kill(999_999) is False

        terminal = sandbox.pty.create(e2b.PtySize(rows=24, cols=80))
        sandbox.pty.resize(terminal.pid, e2b.PtySize(rows=31, cols=101))
        sandbox.pty.send_stdin(terminal.pid, b"stty size; exit\n")
        output = []
        terminal.wait(on_pty=output.append)
        assert b"31 101" in b"".join(output), output


def files():
    with Sandbox.create(timeout=120) as sandbox:
        files = sandbox.files
        assert files.write("notes/a b.txt", "first").path == "/home/user/notes/a b.txt"
        assert files.read("notes/a b.txt") == "first"
        content = bytes(range(256)) * 10_000
        files.write("/srv/bytes", content)
        assert bytes(files.read("/srv/bytes", format="bytes")) == content
        files.write_files([{"path": "many/1", "data": "one"}, {"path": "many/2", "data": b"two"}])
        assert [(entry.name, entry.type.value, entry.permissions) for entry in files.list("many")] == [
            ("1", "file", "-rw-r--r--"),
            ("2", "file", "-rw-r--r--"),
        ]
        raises(NOT_FOUND, lambda: files.read("nowhere"))
        raises(NOT_FOUND, lambda: files.list("nowhere"))
        raises(e2b.InvalidArgumentException, lambda: files.write("/home/user", "x"))
        assert (files.make_dir("d"), files.make_dir("d")) == (True, False)
        assert files.rename("many/1", "d/1").path == "/home/user/d/1"
        files.remove("many")
        assert (files.exists("many"), files.exists("d/1")) == (False, True)

        # this SDK asks for changes instead of waiting for them
        watch = files.watch_dir("d")
        files.write("d/1", "again")
        seen = []
        until(lambda: seen.extend((event.type.value, event.name) for event in watch.get_new_events()) or ("write", "1") in seen)
        watch.stop()
        raises(NOT_FOUND, lambda: files.watch_dir("nowhere"))

        with urllib.request.urlopen(sandbox.download_url("d/1")) as answer:
            assert answer.read() == b"again"


def lifecycle():
    sandbox = Sandbox.create(timeout=120, metadata={"a b": "c&d"})
    query = e2b.SandboxQuery(metadata={"a b": "c&d"})
    assert [info.sandbox_id for info in Sandbox.list(query=query).next_items()] == [sandbox.sandbox_id]
    info = sandbox.get_info()
    assert (info.template_id, info.state.value, info.metadata) == ("base", "running", {"a b": "c&d"}), info
    assert Sandbox.connect(sandbox.sandbox_id).commands.run("echo same").stdout == "same\n"
    sandbox.set_timeout(600)
    assert sandbox.get_info().end_at > info.end_at
    assert sandbox.is_running()
    assert (sandbox.kill(), sandbox.kill(), sandbox.is_running()) == (True, False, False)
    raises(GONE, lambda: sandbox.commands.run("true"))
    raises(e2b.NotFoundException, lambda: Sandbox.connect(sandbox.sandbox_id))
    raises(e2b.AuthenticationException, lambda: Sandbox.create(api_key="e2b_00"))


def growing():
    sandbox = Sandbox.create(timeout=120)
    sandbox.files.write("state", "before")
    snapshot = sandbox.create_snapshot(name=f"python-{e2b.__name__}-{sandbox.sandbox_id}")
    sandbox.files.write("state", "after")
    child = Sandbox.create(snapshot.snapshot_id, timeout=60)
    assert child.files.read("state") == "before"
    child.kill()
    assert (Sandbox.delete_snapshot(snapshot.snapshot_id), Sandbox.delete_snapshot(snapshot.snapshot_id)) == (True, False)

    forks = sandbox.fork(count=2, timeout=60)
    assert [fork.files.read("state") for fork in forks] == ["after", "after"]
    for fork in forks:
        fork.kill()

    assert (sandbox.pause(), sandbox.pause(), sandbox.is_running()) == (True, False, False)
    assert sandbox.get_info().state.value == "paused"
    assert Sandbox.connect(sandbox.sandbox_id).files.read("state") == "after"
    assert sandbox.get_metrics()[0].cpu_count == 1
    sandbox.kill()

    template = e2b.Template().from_template("base").set_envs({"COLOUR": "blue"}).run_cmd("echo $COLOUR > made")
    name = f"python-{sandbox.sandbox_id}"
    e2b.Template.build(template, name)
    with Sandbox.create(name, timeout=60) as built:
        assert built.commands.run("cat made; echo $COLOUR").stdout == "blue\nblue\n"


async def _asynchronously():
    sandbox = await AsyncSandbox.create(timeout=120)
    results = await asyncio.gather(*[sandbox.commands.run(f"echo {i}") for i in range(5)])
    assert [result.stdout for result in results] == [f"{i}\n" for i in range(5)]
    changed = asyncio.Event()
    watch = await sandbox.files.watch_dir(".", lambda event: changed.set() if event.name == "new" else None)
    await sandbox.files.write("new", "1")
    await asyncio.wait_for(changed.wait(), 60)
    await watch.stop()
    sleeping = asyncio.create_task(sandbox.commands.run("sleep 4321", timeout=0))
    while not await sandbox.commands.list():
        await asyncio.sleep(0.01)
    assert await sandbox.kill()
    try:
        await sleeping
    except GONE:
        pass
    else:
        raise AssertionError("what was under way went on")
    assert not await sandbox.is_running()


def asynchronously():
    asyncio.run(_asynchronously())


globals()[sys.argv[1]]()
# the HTTP library of newer SDKs now and then aborts while the interpreter ends
os._exit(0)
