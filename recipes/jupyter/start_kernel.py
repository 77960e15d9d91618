"""Starts a kernel in the server, and runs a file in it.

As a session with a path, because editors list the kernels they may connect to by their sessions.
"""

import json
import sys
import time
import urllib.error
import urllib.request
import uuid

import websocket

SERVER = "127.0.0.1:8888"
SESSION = {"name": "warm", "path": "warm.ipynb", "type": "notebook", "kernel": {"name": "python3"}}


def post(path, body):
    request = urllib.request.Request(f"http://{SERVER}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    while True:
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError):
                raise
            time.sleep(0.2)  # the server is starting; the step's time limit is the end of this


def run(kernel_id, code):
    socket = websocket.create_connection(f"ws://{SERVER}/api/kernels/{kernel_id}/channels")
    request = {
        "channel": "shell",
        "header": {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "session": uuid.uuid4().hex, "version": "5.3"},
        "parent_header": {},
        "metadata": {},
        "content": {"code": code, "silent": False, "store_history": False, "allow_stdin": False},
    }
    socket.send(json.dumps(request))
    while True:
        message = json.loads(socket.recv())
        if message["msg_type"] == "execute_reply":
            socket.close()
            return message["content"]


kernel_id = post("/api/sessions", SESSION)["kernel"]["id"]
reply = run(kernel_id, open(sys.argv[1]).read())
if reply["status"] != "ok":
    sys.exit(f"{sys.argv[1]} failed in the kernel: {reply['ename']}: {reply['evalue']}")
