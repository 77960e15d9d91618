"""E2B's Python SDK against a daemon: each function is one test, named on the command line."""

import asyncio
import datetime
import os
import sys
import time
import urllib.request

import e2b
from e2b import AsyncSandbox, CommandExitException, Sandbox

GONE = getattr(e2b, "SandboxNotRunningException", e2b.TimeoutException)
NOT_FOUND = getattr(e2b, "FileNotFoundException", e2b.NotFoundException)
# Same value as in tests/helpers/patience.ts
PATIENCE_SECS = int(20 * float(os.environ.get("FORKD_TEST_REFERENCE_MS", 10_000)) / 1000)


def raises(kind, work):
    try:
        work()
    except kind as error:
        return error
    raise AssertionError(f"expected {kind}")


def until(is_so):
    deadline = time.monotonic() + PATIENCE_SECS
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


def commands():
    with Sandbox.create(timeout=PATIENCE_SECS, envs={"COLOUR": "blue"}) as sandbox:
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
    with Sandbox.create(timeout=PATIENCE_SECS) as sandbox:
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

        # this SDK polls for changes
        watch = files.watch_dir("d")
        files.write("d/1", "again")
        assert ("write", "1") in [(event.type.value, event.name) for event in watch.get_new_events()]
        for name in ("2", "3"):
            files.write("d/" + name, "new")
            # changes made by this client are complete in the next poll
            events = [(event.type.value, event.name) for event in watch.get_new_events()]
            assert events == [("create", name), ("chmod", name), ("write", name)], events
        watch.stop()
        watch = files.watch_dir("d", recursive=True)
        files.make_dir("d/e")
        files.write("d/e/f", "new")
        events = [(event.type.value, event.name) for event in watch.get_new_events()]
        assert ("create", "e") in events and ("write", "e/f") in events, events
        assert events.count(("create", "e/f")) == 1, events
        watch.stop()
        raises(NOT_FOUND, lambda: files.watch_dir("nowhere"))

        with urllib.request.urlopen(sandbox.download_url("d/1")) as answer:
            assert answer.read() == b"again"


def lifecycle():
    sandbox = Sandbox.create(timeout=PATIENCE_SECS, metadata={"a b": "c&d"})
    query = e2b.SandboxQuery(metadata={"a b": "c&d"})
    assert [info.sandbox_id for info in Sandbox.list(query=query).next_items()] == [sandbox.sandbox_id]
    info = sandbox.get_info()
    assert (info.template_id, info.state.value, info.metadata) == ("base", "running", {"a b": "c&d"}), info
    assert Sandbox.connect(sandbox.sandbox_id).commands.run("echo same").stdout == "same\n"
    sandbox.set_timeout(2 * PATIENCE_SECS)
    assert sandbox.get_info().end_at > info.end_at
    assert sandbox.is_running()
    assert (sandbox.kill(), sandbox.kill(), sandbox.is_running()) == (True, False, False)
    raises(GONE, lambda: sandbox.commands.run("true"))
    raises(e2b.NotFoundException, lambda: Sandbox.connect(sandbox.sandbox_id))
    raises(e2b.AuthenticationException, lambda: Sandbox.create(api_key="e2b_00"))


def growing():
    sandbox = Sandbox.create(timeout=PATIENCE_SECS)
    sandbox.files.write("state", "before")
    snapshot = sandbox.create_snapshot(name=f"python-{e2b.__name__}-{sandbox.sandbox_id}")
    sandbox.files.write("state", "after")
    child = Sandbox.create(snapshot.snapshot_id, timeout=PATIENCE_SECS)
    assert child.files.read("state") == "before"
    child.kill()
    assert (Sandbox.delete_snapshot(snapshot.snapshot_id), Sandbox.delete_snapshot(snapshot.snapshot_id)) == (True, False)

    forks = sandbox.fork(count=2, timeout=PATIENCE_SECS)
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
    with Sandbox.create(name, timeout=PATIENCE_SECS) as built:
        assert built.commands.run("cat made; echo $COLOUR").stdout == "blue\nblue\n"


def newest():
    network = {"deny_out": ["203.0.113.7", "198.51.100.0/24"], "mask_request_host": "localhost:${PORT}"}
    sandbox = Sandbox.create(timeout=PATIENCE_SECS, network=network)
    info = sandbox.get_info()
    assert info.started_at.microsecond % 1000 == 0, info.started_at
    younger = Sandbox.create(timeout=PATIENCE_SECS)
    found = [each.sandbox_id for each in Sandbox.list(query=e2b.SandboxQuery(started_after=info.started_at), order="asc").next_items()]
    assert found == [sandbox.sandbox_id, younger.sandbox_id], found
    younger.kill()

    sandbox.files.make_dir("d")
    watch = sandbox.files.watch_dir("d", include_entry=True)
    sandbox.files.write("d/new", "content")
    seen = []
    until(lambda: seen.extend(watch.get_new_events()) or any(event.name == "new" and event.entry for event in seen))
    assert {event.entry.path for event in seen if event.entry} == {"/home/user/d/new"}, seen
    watch.stop()

    boot_id = sandbox.files.read("/proc/sys/kernel/random/boot_id")
    assert sandbox.pause(mode="filesystem") and not sandbox.is_running()
    sandbox.connect()
    assert sandbox.files.read("d/new") == "content"
    assert sandbox.files.read("/proc/sys/kernel/random/boot_id") != boot_id
    now = datetime.datetime.now()
    assert sandbox.get_metrics(start=now - datetime.timedelta(hours=2), end=now - datetime.timedelta(hours=1)) == []
    for wrong in (":x", "base:"):
        raises(Exception, lambda: e2b.Template.assign_tags("base", wrong))
    sandbox.kill()


def killed():
    sandbox = Sandbox.create(timeout=PATIENCE_SECS)
    command = sandbox.commands.run("sleep 4321", background=True, timeout=0)
    sandbox.kill()
    error = raises(GONE, command.wait)
    assert "sandbox was killed or reached its end of life" in str(error), error


async def _asynchronously():
    sandbox = await AsyncSandbox.create(timeout=PATIENCE_SECS)
    results = await asyncio.gather(*[sandbox.commands.run(f"echo {i}") for i in range(5)])
    assert [result.stdout for result in results] == [f"{i}\n" for i in range(5)]
    changed = asyncio.Event()
    watch = await sandbox.files.watch_dir(".", lambda event: changed.set() if event.name == "new" else None)
    await sandbox.files.write("new", "1")
    await asyncio.wait_for(changed.wait(), PATIENCE_SECS)
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
        raise AssertionError("a running command survived")
    assert not await sandbox.is_running()


def asynchronously():
    asyncio.run(_asynchronously())


globals()[sys.argv[1]]()
# Skip interpreter shutdown: the HTTP library of newer SDKs sometimes aborts there
os._exit(0)
