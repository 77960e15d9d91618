#!/usr/bin/python3
"""Leaves one Python kernel of Jupyter running that has executed something, and an MCP server that has used the browser."""

import json
import urllib.request
from uuid import uuid4

from websocket import create_connection

JUPYTER = "127.0.0.1:8888"
MCP = "http://127.0.0.1:8931/mcp"
HEADER = {"msg_id": uuid4().hex, "msg_type": "execute_request", "session": uuid4().hex, "username": "agent", "version": "5.3"}


def ask(url: str, body: object = None) -> object:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": "application/json"})) as answer:
        return json.load(answer)


kernels = ask(f"http://{JUPYTER}/api/kernels") or [ask(f"http://{JUPYTER}/api/kernels", {"name": "python3"})]
kernel = kernels[0]["id"]
socket = create_connection(f"ws://{JUPYTER}/api/kernels/{kernel}/channels", suppress_origin=True)
content = {"code": "1 + 1", "silent": False, "store_history": False}
socket.send(json.dumps({"channel": "shell", "header": HEADER, "parent_header": {}, "metadata": {}, "content": content}))
while (message := json.loads(socket.recv()))["msg_type"] != "execute_reply":
    pass
if message["content"]["status"] != "ok":
    raise SystemExit(f"the kernel cannot execute: {message['content']}")

params = {"name": "browser_eval", "arguments": {"expression": "document.title"}}
used = ask(MCP, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
if used["result"].get("isError"):
    raise SystemExit(f"the MCP server cannot use the browser: {used}")
print(f"kernel {kernel}")
