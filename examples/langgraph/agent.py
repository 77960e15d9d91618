"""LangGraph: a checkpoint of the graph and a branch of the machine belong together.

The tool `branch` interrupts the graph. From that checkpoint the graph is forked once for each way, as LangGraph does it (update_state on
a checkpoint), and each fork continues with a fork of the machine.
"""

import asyncio
import json
import os
import random

os.environ.setdefault("LANGSMITH_TRACING", "false")  # nothing is sent to LangSmith, whatever else is set

from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, ToolRuntime, tools_condition
from langgraph.types import StateSnapshot, interrupt

from forkd import AsyncSandbox

MODEL = os.environ.get("OPENAI_MODEL", "scripted-tour")
LIFE = {"timeout": 600, "idempotency_key": None}  # time to live if not ended; without a key an interrupted call creates none

TASK = """The cities in /srv/cities.json are places [x, y]. We look for a short round trip through all of them.
Prepare it: load them as `cities`, define length(tour) for a list of their indexes, put a random order into `tour` and its length into
`baseline`, and write that as the first line of /srv/notes.txt. Then call `branch` with three ways to a short trip.
Go the way that is yours, leave the best order in `tour`, add a line to /srv/notes.txt, and say how long the trip is."""


@tool
async def run_python(code: str, runtime: ToolRuntime[AsyncSandbox]) -> str:
    """Runs Python in your machine and returns what it prints and the value of its last expression. Variables and files stay."""
    done = await runtime.context.eval(code, check=False)
    return done.traceback or f"{done.stdout}{done.result or ''}"


@tool
def branch(ways: list[str]) -> str:
    """Copies you and your machine once for each way. The result says which way is yours."""
    return interrupt(ways)


def build_graph() -> CompiledStateGraph:
    tools = [run_python, branch]
    model = ChatOpenAI(model=MODEL).bind_tools(tools)

    async def think(state: MessagesState) -> MessagesState:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState, context_schema=AsyncSandbox)
    graph.add_node("think", think)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition)
    graph.add_edge("tools", "think")
    return graph.compile(checkpointer=InMemorySaver())


async def main() -> None:
    graph = build_graph()
    thread = {"configurable": {"thread_id": "traveller"}}
    async with await AsyncSandbox.create(**LIFE) as machine:
        spots = random.Random(7)
        await machine.files.write("/srv/cities.json", json.dumps([[spots.randint(0, 99), spots.randint(0, 99)] for _ in range(20)]))
        await graph.ainvoke({"messages": [("user", TASK)]}, thread, context=machine)
        here = await graph.aget_state(thread)
        ways = here.interrupts[0].value
        print(f"branching in the middle of its thought, at a checkpoint with {len(here.values['messages'])} messages, {len(ways)} ways")
        tips = await machine.fork(len(ways), **LIFE)
        try:
            lengths = await asyncio.gather(*(continue_with(graph, here, tip, way) for tip, way in zip(tips, ways)))
        finally:
            await asyncio.gather(*(tip.kill() for tip in tips))
        print(f"its own machine was not touched: {(await machine.files.read('/srv/notes.txt')).splitlines()}")
    best = min(lengths)
    print(f"winner: {ways[lengths.index(best)]}, {best:.1f}")


async def continue_with(graph: CompiledStateGraph, here: StateSnapshot, tip: AsyncSandbox, way: str) -> float:
    """One copy: the same checkpoint, but `branch` has returned this way."""
    call = here.values["messages"][-1].tool_calls[0]
    returned = ToolMessage(f"Your way is: {way}.", tool_call_id=call["id"])
    fork = await graph.aupdate_state(here.config, {"messages": [returned]}, as_node="tools")
    end = await graph.ainvoke(None, fork, context=tip)
    baseline, length, complete = (await tip.eval("[baseline, length(tour), sorted(tour) == list(range(len(cities)))]")).value
    first, *later = (await tip.files.read("/srv/notes.txt")).splitlines()
    print(f"branch '{way}' on {tip.id}")
    print(f"  shared past: baseline = {baseline:.1f}, notes begin with '{first}'")
    print(f"  own future:  length(tour) = {length:.1f}, notes continue with {later}")
    print(f"  it says: {end['messages'][-1].text}")
    return length if complete else float("inf")


asyncio.run(main())
