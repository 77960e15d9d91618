"""MCP: a model that forks itself, with the tools of `forkd mcp` and the official client.

The model is given three tools of the server as they are; only the machine's name is filled in. When it calls fork_sandbox, the
conversation is copied as often as the machine, and the call returns in every copy with another number, like fork().
"""

import asyncio
import json
import os
import random
from dataclasses import dataclass
from typing import Any

from mcp import Client, StdioServerParameters
from openai import AsyncOpenAI

MODEL = os.environ.get("OPENAI_MODEL", "scripted-tour-mcp")
TAG = os.environ.get("FORKD_TAG", "python")
TOOLS = ("eval_code", "exec_command", "fork_sandbox")
MOST_STEPS = 30

TASK = """You work in a Linux machine of your own. The cities in its /srv/cities.json are places [x, y]; we look for a short round trip
through all of them. Prepare it with eval_code (python): load them as `cities`, define length(tour) for a list of their indexes, put a
random order into `tour` and its length into `baseline`, and write that as the first line of /srv/notes.txt. Then call fork_sandbox with
n = 3: you continue in three copies of the machine, and the result says which copy you are. Take another way to a short trip in each, leave
the best order in `tour`, add a line to /srv/notes.txt, and say how long the trip is."""

Messages = list[dict[str, Any]]


@dataclass
class Fork:
    """A call that has not returned yet, and the machines in which it will."""

    messages: Messages
    call: str
    machines: list[str]


async def main() -> None:
    env = {name: value for name, value in os.environ.items() if name.startswith("FORKD")}
    async with Client(StdioServerParameters(command=os.environ.get("FORKD", "forkd"), args=["mcp"], env=env)) as forkd:
        [machine] = (await call_tool(forkd, "spawn_sandboxes", {"snapshot_tag": TAG}))["sandboxes"]
        spots = random.Random(7)
        cities = json.dumps([[spots.randint(0, 99), spots.randint(0, 99)] for _ in range(20)])
        await call_tool(forkd, "write_file", {"sandbox_id": machine["id"], "path": "/srv/cities.json", "content": cities})
        model = AsyncOpenAI()
        here = await think(model, forkd, machine["id"], [{"role": "user", "content": TASK}])
        if isinstance(here, str):
            raise SystemExit(f"It never forked, and says: {here}")
        print(f"branching in the middle of its thought, after {len(here.messages)} messages, {len(here.machines)} copies")
        lengths = await asyncio.gather(*(continue_with(model, forkd, here, number) for number in range(len(here.machines))))
        print(f"its own machine was not touched: {await notes(forkd, machine['id'])}")
        print(f"winner: copy {lengths.index(min(lengths))}, {min(lengths):.1f}")
    # every machine ends with the connection


async def continue_with(model: AsyncOpenAI, forkd: Client, here: Fork, number: int) -> float:
    """One copy: the same conversation, but fork_sandbox has returned another number."""
    machine = here.machines[number]
    returned = {"role": "tool", "tool_call_id": here.call, "content": f"You are copy {number} of {len(here.machines)}."}
    says = await think(model, forkd, machine, [*here.messages, returned])
    code = "[baseline, length(tour), sorted(tour) == list(range(len(cities)))]"
    baseline, length, complete = (await call_tool(forkd, "eval_code", {"sandbox_id": machine, "code": code}))["value"]
    first, *later = await notes(forkd, machine)
    print(f"branch {number} on {machine}")
    print(f"  shared past: baseline = {baseline:.1f}, notes begin with '{first}'")
    print(f"  own future:  length(tour) = {length:.1f}, notes continue with {later}")
    print(f"  it says: {says}")
    return length if complete else float("inf")


async def think(model: AsyncOpenAI, forkd: Client, machine: str, messages: Messages) -> str | Fork:
    """Asks the model and calls its tools, until it has an answer or forks."""
    tools = [openai_tool(tool) for tool in (await forkd.list_tools()).tools if tool.name in TOOLS]
    for _ in range(MOST_STEPS):
        answer = await model.chat.completions.create(model=MODEL, messages=messages, tools=tools, parallel_tool_calls=False)
        said = answer.choices[0].message
        messages = [*messages, said.model_dump(exclude_none=True)]
        if not said.tool_calls:
            return said.content or ""
        for call in said.tool_calls:
            arguments = {**json.loads(call.function.arguments), "sandbox_id": machine}
            result = await call_tool(forkd, call.function.name, arguments)
            if call.function.name == "fork_sandbox" and "sandboxes" in result:
                return Fork(messages, call.id, [copy["id"] for copy in result["sandboxes"]])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})
    raise RuntimeError(f"no answer after {MOST_STEPS} steps")


def openai_tool(tool: Any) -> dict[str, Any]:
    """As the API for models wants it, and without the name of the machine."""
    schema = tool.input_schema
    properties = {name: field for name, field in schema["properties"].items() if name != "sandbox_id"}
    required = [name for name in schema.get("required", []) if name != "sandbox_id"]
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": parameters}}


async def call_tool(forkd: Client, name: str, arguments: dict[str, Any]) -> Any:
    result = await forkd.call_tool(name, arguments)
    text = "".join(part.text for part in result.content if part.type == "text")
    return {"error": text} if result.is_error else json.loads(text)


async def notes(forkd: Client, machine: str) -> list[str]:
    return (await call_tool(forkd, "read_file", {"sandbox_id": machine, "path": "/srv/notes.txt"}))["content"].splitlines()


asyncio.run(main())
