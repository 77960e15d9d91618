"""AutoGen: the state of an agent is loaded into three copies, each with a fork of its machine.

The agent finds out what is wrong with a function. Then it is copied, with all it said and saw (save_state, load_state) and with its
machine, and each copy repairs the function in another way. Tests that no copy has seen pick the winner.
"""

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient

from forkd import AsyncSandbox

MODEL = os.environ.get("OPENAI_MODEL", "scripted-repair")
MODEL_INFO = {"vision": False, "function_calling": True, "json_output": False, "structured_output": False, "family": "unknown"}
LIFE = {"timeout": 600, "idempotency_key": None}  # time to live if not ended; without a key an interrupted call creates none

SLUG = 'def slug(title):\n    return title.replace(" ", "-")\n'
TASK = """slug(title) in /srv/slug.py is wrong for many titles. A slug has only a-z and 0-9 with single hyphens between them; accents are
dropped, ß becomes ss, and where nothing is left it is "untitled". Do not repair it yet: look for random titles that break it, put them into
`found`, write how many there are as the first line of /srv/notes.txt, and stop."""
WAYS = ["the smallest change", "a regular expression", "Unicode decomposition"]
CASES = {
    "Hello World": "hello-world",
    " a  b ": "a-b",
    "C++ & you": "c-you",
    "Où est l'été?": "ou-est-l-ete",
    "Straße": "strasse",
    "!": "untitled",
}
JUDGE = f"from slug import slug\nprint(sum(slug(title) == right for title, right in {CASES!r}.items()))"


def agent_in(machine: AsyncSandbox, client: OpenAIChatCompletionClient) -> AssistantAgent:
    async def run_python(code: str) -> str:
        """Runs Python in your machine and returns what it prints and the value of its last expression. Variables and files stay."""
        done = await machine.eval(code, check=False)
        return done.traceback or f"{done.stdout}{done.result or ''}"

    return AssistantAgent(
        "mechanic",
        client,
        tools=[run_python],
        max_tool_iterations=20,
        model_client_stream=True,
        system_message="You work in a Linux machine of your own, with your tools.",
    )


async def main() -> None:
    client = OpenAIChatCompletionClient(model=MODEL, model_info=MODEL_INFO)
    async with await AsyncSandbox.create(**LIFE) as machine:
        await machine.files.write("/srv/slug.py", SLUG)
        agent = agent_in(machine, client)
        await agent.run(task=TASK)
        thought = await agent.save_state()
        print(f"branching after {len(thought['llm_context']['messages'])} messages, {len(WAYS)} ways")
        tips = await machine.fork(len(WAYS), **LIFE)
        try:
            passed = await asyncio.gather(*(continue_with(agent_in(tip, client), thought, tip, way) for tip, way in zip(tips, WAYS)))
        finally:
            await asyncio.gather(*(tip.kill() for tip in tips))
        print(f"its own machine was not touched: {(await machine.files.read('/srv/notes.txt')).splitlines()}")
    await client.close()
    print(f"winner: {WAYS[passed.index(max(passed))]}, {max(passed)} of {len(CASES)} tests")


async def continue_with(copy: AssistantAgent, thought: Mapping[str, Any], tip: AsyncSandbox, way: str) -> int:
    """One copy: the same conversation, and then another hint."""
    await copy.load_state(thought)
    result = await copy.run(task=f"Now repair it with {way}, and add a line to /srv/notes.txt.")
    found = (await tip.eval("[len(found), found[0]]")).value
    first, *later = (await tip.files.read("/srv/notes.txt")).splitlines()
    judged = await tip.commands.run(["python3", "-c", JUDGE], cwd="/srv")
    print(f"branch '{way}' on {tip.id}")
    print(f"  shared past: {found[0]} found, the first is {found[1]!r}, notes begin with '{first}'")
    print(f"  own future:  {judged.stdout.strip()} of {len(CASES)} tests pass, notes continue with {later}")
    print(f"  it says: {result.messages[-1].to_text()}")
    return int(judged.stdout)


asyncio.run(main())
