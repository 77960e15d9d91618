#!/usr/bin/python3
"""Waits until the browser's page has loaded, and draws it once. Prints what the page says of itself."""

import json
import urllib.request

from websocket import create_connection

PORT = 9222
LOADED = """new Promise((done) => {
  const look = () => (document.readyState === "complete" ? done(`complete: ${document.title}`) : setTimeout(look, 20));
  look();
})"""

with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/json/list") as answer:
    page = next(target for target in json.load(answer) if target["type"] == "page")
socket = create_connection(page["webSocketDebuggerUrl"], suppress_origin=True)


def call(method: str, **params: object) -> dict:
    socket.send(json.dumps({"id": 1, "method": method, "params": params}))
    while (answer := json.loads(socket.recv())).get("id") != 1:
        pass  # events
    if "error" in answer:
        raise SystemExit(f"{method}: {answer['error']['message']}")
    return answer["result"]


loaded = call("Runtime.evaluate", expression=LOADED, awaitPromise=True, returnByValue=True)
call("Page.captureScreenshot")
print(loaded["result"]["value"])
