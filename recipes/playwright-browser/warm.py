#!/usr/bin/python3
"""Waits until the browser's page has loaded, and draws it once. Prints what the page says of itself."""

import json
import sys
from urllib.parse import quote
from urllib.request import Request, urlopen

from websocket import WebSocketTimeoutException, create_connection

BROWSER = "http://127.0.0.1:9222"
SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 60
LOADED = """new Promise((done) => {
  const look = () => (document.readyState === "complete" ? done(`complete: ${document.title}`) : setTimeout(look, 20));
  look();
})"""


def main() -> None:
    page = next(target for target in json.loads(ask("GET", "/json/list")) if target["type"] == "page")
    try:
        print(draw(page["webSocketDebuggerUrl"]))
    except WebSocketTimeoutException:
        # On a machine that is far too busy a page may come to nothing, and it does not recover. Another one does.
        ask("PUT", f"/json/new?{quote(page['url'])}")
        ask("GET", f"/json/close/{page['id']}")
        raise SystemExit(f"The page was not drawn within {SECONDS} s. Another one is open now.") from None


def draw(address: str) -> str:
    socket = create_connection(address, suppress_origin=True, timeout=SECONDS)

    def call(method: str, **params: object) -> dict:
        socket.send(json.dumps({"id": 1, "method": method, "params": params}))
        while (answer := json.loads(socket.recv())).get("id") != 1:
            pass  # events
        if "error" in answer:
            raise SystemExit(f"{method}: {answer['error']['message']}")
        return answer["result"]

    loaded = call("Runtime.evaluate", expression=LOADED, awaitPromise=True, returnByValue=True)
    call("Page.captureScreenshot")
    return loaded["result"]["value"]


def ask(method: str, path: str) -> bytes:
    with urlopen(Request(BROWSER + path, method=method)) as answer:
        return answer.read()


main()
