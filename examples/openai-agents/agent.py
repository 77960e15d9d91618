"""OpenAI Agents SDK: an agent branches in the middle of its thought.

When it calls the tool `branch`, its machine is forked and its conversation copied, once for each way that it named. The call returns
in every copy, each time with another way, like fork().
"""

import asyncio
import json
import os
import random

os.environ.setdefault("OPENAI_AGENTS_DISABLE_TRACING", "1")  # else every run is sent to OpenAI

from agents import Agent, RunContextWrapper, Runner, RunResult, function_tool

from forkd import AsyncSandbox

MODEL = os.environ.get("OPENAI_MODEL", "scripted-tour")
LIFE = {"timeout": 600, "idempotency_key": None}  # time to live if not ended; without a key an interrupted call creates none

TASK = """The cities in /srv/cities.json are places [x, y]. We look for a short round trip through all of them.
Prepare it: load them as `cities`, define length(tour) for a list of their indexes, put a random order into `tour` and its length into
`baseline`, and write that as the first line of /srv/notes.txt. Then call `branch` with three ways to a short trip.
Go the way that is yours, leave the best order in `tour`, add a line to /srv/notes.txt, and say how long the trip is."""


@function_tool
async def run_python(machine: RunContextWrapper[AsyncSandbox], code: str) -> str:
    """Runs Python in your machine and returns what it prints and the value of its last expression. Variables and files stay."""
    done = await machine.context.eval(code, check=False)
    return done.traceback or f"{done.stdout}{done.result or ''}"


@function_tool
def branch(ways: list[str]) -> str:
    """Copies you and your machine once for each way. The result says which way is yours."""
    return json.dumps(ways)


async def main() -> None:
    agent = Agent(
        name="traveller",
        model=MODEL,
        instructions="You work in a Linux machine of your own, with your tools.",
        tools=[run_python, branch],
        tool_use_behavior={"stop_at_tool_names": ["branch"]},
    )
    async with await AsyncSandbox.create(**LIFE) as machine:
        spots = random.Random(7)
        await machine.files.write("/srv/cities.json", json.dumps([[spots.randint(0, 99), spots.randint(0, 99)] for _ in range(20)]))
        before = await Runner.run(agent, TASK, context=machine)
        ways = json.loads(before.final_output)
        print(f"branching in the middle of its thought, after {len(before.raw_responses)} answers of the model, {len(ways)} ways")
        tips = await machine.fork(len(ways), **LIFE)
        try:
            lengths = await asyncio.gather(*(continue_with(agent, before, tip, way) for tip, way in zip(tips, ways)))
        finally:
            await asyncio.gather(*(tip.kill() for tip in tips))
        print(f"its own machine was not touched: {(await machine.files.read('/srv/notes.txt')).splitlines()}")
    best = min(lengths)
    print(f"winner: {ways[lengths.index(best)]}, {best:.1f}")


async def continue_with(agent: Agent[AsyncSandbox], before: RunResult, tip: AsyncSandbox, way: str) -> float:
    """One copy: the same conversation, but `branch` has returned this way."""
    *thought, returned = before.to_input_list()
    result = await Runner.run(agent, [*thought, {**returned, "output": f"Your way is: {way}."}], context=tip)
    judged = await tip.eval("[baseline, length(tour), sorted(tour) == list(range(len(cities)))]")
    baseline, length, complete = judged.value
    first, *later = (await tip.files.read("/srv/notes.txt")).splitlines()
    print(f"branch '{way}' on {tip.id}")
    print(f"  shared past: baseline = {baseline:.1f}, notes begin with '{first}'")
    print(f"  own future:  length(tour) = {length:.1f}, notes continue with {later}")
    print(f"  it says: {result.final_output}")
    return length if complete else float("inf")


asyncio.run(main())
