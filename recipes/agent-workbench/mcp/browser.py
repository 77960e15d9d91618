"""The page of this machine's browser, over its debugging socket."""

import json

from tornado.httpclient import AsyncHTTPClient
from tornado.websocket import websocket_connect

from tool import text, tool

LIST = "http://127.0.0.1:9222/json/list"
LOADED = """new Promise((done) => {
  const look = () => (document.readyState === "complete" ? done() : setTimeout(look, 20));
  look();
})"""
SEEN = "`${document.title}\\n${location.href}\\n\\n${document.body?.innerText ?? ''}`"


async def browser_open(url: str) -> "list[dict]":
    async with Page() as page:
        started = await page.call("Page.navigate", url=url)
        if "errorText" in started:
            raise OSError(f"{url}: {started['errorText']}")
        await page.evaluate(LOADED)
        return text(await page.evaluate(SEEN))


async def browser_eval(expression: str) -> "list[dict]":
    async with Page() as page:
        return text(json.dumps(await page.evaluate(expression)))


async def browser_screenshot() -> "list[dict]":
    async with Page() as page:
        shot = await page.call("Page.captureScreenshot", format="png")
        return [{"type": "image", "data": shot["data"], "mimeType": "image/png"}]


class Page:
    async def __aenter__(self) -> "Page":
        targets = json.loads((await AsyncHTTPClient().fetch(LIST)).body)
        page = next((target for target in targets if target["type"] == "page"), None)
        if page is None:
            raise ConnectionError("the browser has no page: all were closed")
        self.socket = await websocket_connect(page["webSocketDebuggerUrl"], max_message_size=64 << 20)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.socket.close()

    async def call(self, method: str, **params: object) -> dict:
        await self.socket.write_message(json.dumps({"id": 1, "method": method, "params": params}))
        while True:
            message = await self.socket.read_message()
            if message is None:
                raise ConnectionError(f"{method}: the browser closed the page")
            answer = json.loads(message)
            if answer.get("id") == 1:
                break
        if "error" in answer:
            raise OSError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    async def evaluate(self, expression: str) -> object:
        result = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise ValueError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")


TOOLS = [
    tool(browser_open, "Opens an address in the browser; gives title, address and text of the page.", url={"type": "string"}),
    tool(browser_eval, "Evaluates a JavaScript expression in the open page; gives its value as JSON.", expression={"type": "string"}),
    tool(browser_screenshot, "A picture of the open page."),
]
