"""How a tool is described."""

from typing import Awaitable, Callable


def tool(run: Callable[..., Awaitable[list]], description: str, optional: "tuple[str, ...]" = (), **properties: dict) -> dict:
    required = [name for name in properties if name not in optional]
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"name": run.__name__, "description": description, "inputSchema": schema, "run": run}


def text(value: str) -> "list[dict]":
    return [{"type": "text", "text": value}]
