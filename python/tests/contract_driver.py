"""Requests of the contract as calls of the controller: one JSON object a line in, one out. Started by tests/contract/python-driver.ts."""

from __future__ import annotations

import base64
import itertools
import json
import re
import sys
from typing import Any, Callable, Dict
from urllib.parse import urlencode

from forkd import Controller, FileChange, ForkdError

Said = Dict[str, Any]

#: Routes whose method has another name than the route. It takes the path parameters, then query and body as keyword arguments
METHODS: Dict[str, Callable[[Controller], Callable[..., Any]]] = {
    "getHealth": lambda c: c.health,
    "getReadiness": lambda c: c.ready,
    "getVersion": lambda c: c.version,
    "getMetrics": lambda c: c.metrics,
    "getOpenapi": lambda c: c.openapi,
    "getStatus": lambda c: c.status,
    "getConfig": lambda c: c.config,
    "stopDaemon": lambda c: c.stop,
    "collectGarbage": lambda c: c.gc,
    "getTree": lambda c: c.tree,
    "getStats": lambda c: c.stats,
    "getHistory": lambda c: c.history,
    "getCluster": lambda c: c.cluster,
    "getSnapshotDetails": lambda c: c.snapshot_info,
    "createSandboxes": lambda c: c.spawn_sandboxes,
    "deleteSandboxes": lambda c: c.kill_sandboxes,
    "deleteSandbox": lambda c: c.kill_sandbox,
    "evalStream": lambda c: lambda *params, **given: c.eval_code(*params, **given, on_stdout=str),
    "getSandboxStats": lambda c: c.sandbox_stats,
}


#: Positional arguments
POSITIONAL = {"moveFile": ["from", "to"], "copyFile": ["from", "to"], "makeSymlink": ["target", "path"], "pullSnapshot": ["from"]}


def call(controller: Controller, route: str, said: Said) -> Any:
    params, given = said.get("params", {}), {**said.get("query", {}), **said.get("body", {})}
    if route == "getEvents":
        types = given.pop("types", None)
        events = controller.events(types=types.split(",") if types else None, **given)
        return list(itertools.islice(events, said.get("take", 1)))
    if route == "getSandboxLogs":
        return "".join(controller.logs(params["id"], **given))
    if route == "createSandboxes" and given.pop("per_item", False):
        return {"results": controller.try_spawn_sandboxes(**given)}
    if route == "watchProcess":
        return watched(controller, params, given)
    if route == "proxyRequest":
        target = f"/{params['path']}?{urlencode(given)}"
        extra: Dict[str, Any] = {"method": "POST", "body": base64.b64decode(said["bytes"])} if "bytes" in said else {}
        return controller.fetch_port(params["id"], params["port"], target, **extra).text()
    if route == "connectPort":
        return echoed(controller, params, base64.b64decode(said.get("bytes", "")))
    if route == "listPorts":
        return controller.list_ports(params["id"])
    if route == "watchFiles":
        with controller.watch_files(params["id"], given.pop("path"), **given) as watch:
            return [wire_change(change) for change in itertools.islice(watch, said.get("take", 1))]
    if route == "readTar":
        return b"".join(controller.read_tar(params["id"], given.pop("path"), **given))
    if route == "readPack":
        without = given.pop("without", None)
        return b"".join(controller.read_pack(params["tag"], without=without and without.split(","), **given))
    params.pop("path", None)  # only requests to a port have one
    places = [given.pop(name) for name in POSITIONAL.get(route, ["path"]) if name in given]
    if "bytes" in said or route in ("writeFile", "writeStdin", "writeTar", "unpack"):
        places.append(base64.b64decode(said.get("bytes", "")))
    if "set" in given and isinstance(given["set"], list):
        given["set"] = dict(pair.split("=", 1) for pair in given["set"])
    if route.startswith("list") and "metadata" in given:
        pairs = given["metadata"] if isinstance(given["metadata"], list) else [given["metadata"]]
        given["metadata"] = dict(pair.split("=", 1) for pair in pairs)
    method = METHODS[route](controller) if route in METHODS else getattr(controller, snake(route))
    return method(*params.values(), *places, **given)


def snake(route: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", route)


def wire_change(change: FileChange) -> Said:
    moved = {} if change.from_path is None else {"from": change.from_path}
    return {"type": change.type, "path": change.path, "directory": change.is_directory, **moved}


def watched(controller: Controller, params: Said, given: Said) -> Any:
    """Output and exit of a process."""
    stdout, stderr = given.get("stdout_from", 0), given.get("stderr_from", 0)
    events = list(controller.watch_process(params["id"], params["process"], from_="now" if stdout == "now" else f"{stdout}-{stderr}"))
    printed = {kind: b"".join(event.data for event in events if event.type == kind).decode() for kind in ("stdout", "stderr")}
    return {**printed, **(events[-1].exit or {})}


def echoed(controller: Controller, params: Said, data: bytes) -> bytes:
    with controller.connect_port(params["id"], params["port"]) as connection:
        connection.write(data)
        connection.close_write()
        return b"".join(iter(connection.read, b""))


def outcome(request: Dict[str, Any]) -> Dict[str, Any]:
    try:
        with Controller(request.get("url"), request.get("token"), 120) as controller:
            value = call(controller, request["route"], request["args"])
    except ForkdError as error:
        return {"code": error.code, "message": error.message, "status": error.status, "details": error.details}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    return {"value": value, "next": getattr(value, "next_cursor", None)}


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(outcome(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
