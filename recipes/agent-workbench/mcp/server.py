#!/usr/bin/python3
"""An MCP server over streamable HTTP: the files, the shell and the browser of this machine as tools.

Each message is answered by itself, in JSON: there are no sessions, and nothing to lose when the machine is forked.
"""

import asyncio
import json
from urllib.parse import urlsplit

import tornado.web

import browser
import files
import shell

PORT = 8931
VERSIONS = ["2025-11-25", "2025-06-18", "2025-03-26"]
TOOLS = {tool["name"]: tool for tool in [*files.TOOLS, *shell.TOOLS, *browser.TOOLS]}
MAX_BODY_BYTES = 16 << 20

INVALID_REQUEST, NO_SUCH_METHOD, INVALID_PARAMS = -32600, -32601, -32602


class Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Mcp(tornado.web.RequestHandler):
    def prepare(self) -> None:
        # A page in this machine's browser must not be able to use the tools: neither from its own origin, nor under a
        # name of its own that leads here, nor with a form.
        host, origin = self.request.host_name, self.request.headers.get("Origin")
        if not is_local(host) or (origin is not None and not is_local(urlsplit(origin).hostname)):
            raise tornado.web.HTTPError(403)
        if self.request.method == "POST" and not self.request.headers.get("Content-Type", "").startswith("application/json"):
            raise tornado.web.HTTPError(415)

    async def post(self) -> None:
        try:
            message = json.loads(self.request.body)
        except ValueError:
            message = None
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            self.set_status(400)
            self.finish(failure(None, INVALID_REQUEST, "Not a message of JSON-RPC 2.0."))
        elif "id" not in message or "method" not in message:
            self.set_status(202)  # a notification, or an answer to what was never asked
        else:
            self.finish(await answer(message))


async def answer(message: dict) -> dict:
    params = message.get("params") or {}
    try:
        if message["method"] == "initialize":
            result = initialize(params)
        elif message["method"] == "ping":
            result = {}
        elif message["method"] == "tools/list":
            shown = ("name", "description", "inputSchema")
            result = {"tools": [{key: tool[key] for key in shown} for tool in TOOLS.values()]}
        elif message["method"] == "tools/call":
            result = await call(params)
        else:
            raise Refused(NO_SUCH_METHOD, f"There is no method {message['method']}.")
    except Refused as refused:
        return failure(message["id"], refused.code, str(refused))
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def initialize(params: dict) -> dict:
    asked = params.get("protocolVersion")
    return {
        "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "agent-workbench", "version": "1.0.0"},
    }


async def call(params: dict) -> dict:
    tool = TOOLS.get(params.get("name", ""))
    if tool is None:
        raise Refused(INVALID_PARAMS, f"There is no tool {params.get('name')}.")
    arguments = params.get("arguments") or {}
    schema = tool["inputSchema"]
    missing = [name for name in schema.get("required", []) if name not in arguments]
    unknown = [name for name in arguments if name not in schema["properties"]]
    if missing or unknown:
        raise Refused(INVALID_PARAMS, f"{tool['name']}: missing arguments {missing}, unknown arguments {unknown}.")
    try:
        return {"content": await tool["run"](**arguments)}
    except Exception as error:  # whatever a tool met is for the model to read
        return {"content": [{"type": "text", "text": f"{type(error).__name__}: {error}"}], "isError": True}


def failure(id_: object, code: int, message: str) -> dict:
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message}}


def is_local(name: "str | None") -> bool:
    return name is not None and (name in ("localhost", "127.0.0.1", "::1") or name.endswith(".localhost"))


async def main() -> None:
    tornado.web.Application([("/mcp", Mcp)]).listen(PORT, "127.0.0.1", max_body_size=MAX_BODY_BYTES)
    await asyncio.Event().wait()


asyncio.run(main())
