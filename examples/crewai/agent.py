"""CrewAI: an agent's messages are given to three copies of it, each with a fork of its machine.

The agent finds out what is wrong with a function. Then it is copied, with all it said and saw and with its machine, and each copy
repairs the function in another way. Tests that no copy has seen pick the winner.
"""

import asyncio
import logging
import os

# CrewAI sends usage data, asks for its newest version, and offers to upload traces: none of that.
for name in ("CREWAI_DISABLE_TELEMETRY", "CREWAI_DISABLE_TRACKING", "CREWAI_DISABLE_VERSION_CHECK", "OTEL_SDK_DISABLED"):
    os.environ.setdefault(name, "true")
os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")

from crewai import LLM, Agent
from crewai.events.utils.console_formatter import set_suppress_console_output
from crewai.lite_agent_output import LiteAgentOutput
from crewai.tools import tool

from forkd import Sandbox

MODEL = os.environ.get("OPENAI_MODEL", "scripted-repair")
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


def agent_in(machine: Sandbox) -> Agent:
    @tool("run_python")
    def run_python(code: str) -> str:
        """Runs Python in your machine and returns what it prints and the value of its last expression. Variables and files stay."""
        done = machine.eval(code, check=False)
        return done.traceback or f"{done.stdout}{done.result or ''}"

    return Agent(
        role="mechanic",
        goal="Repair programs",
        backstory="You work in a Linux machine of your own.",
        llm=LLM(model=f"openai/{MODEL}", base_url=os.environ.get("OPENAI_BASE_URL")),
        tools=[run_python],
    )


async def main() -> None:
    set_suppress_console_output(True)  # its frames around every step
    logging.getLogger("crewai").setLevel(logging.ERROR)
    with Sandbox.create(**LIFE) as machine:
        machine.files.write("/srv/slug.py", SLUG)
        before = await agent_in(machine).kickoff_async(TASK)
        print(f"branching after {len(before.messages)} messages, {len(WAYS)} ways")
        tips = machine.fork(len(WAYS), **LIFE)
        try:
            passed = await asyncio.gather(*(continue_with(before, tip, way) for tip, way in zip(tips, WAYS)))
        finally:
            for tip in tips:
                tip.kill()
        print(f"its own machine was not touched: {machine.files.read('/srv/notes.txt').splitlines()}")
    print(f"winner: {WAYS[passed.index(max(passed))]}, {max(passed)} of {len(CASES)} tests")


async def continue_with(before: LiteAgentOutput, tip: Sandbox, way: str) -> int:
    """One copy: the same conversation, and then another hint."""
    thought = [message for message in before.messages if message["role"] != "system"]  # each copy has its own
    hint = {"role": "user", "content": f"Now repair it with {way}, and add a line to /srv/notes.txt."}
    result = await agent_in(tip).kickoff_async([*thought, hint])
    found = tip.eval("[len(found), found[0]]").value
    first, *later = tip.files.read("/srv/notes.txt").splitlines()
    judged = tip.commands.run(["python3", "-c", JUDGE], cwd="/srv").stdout
    print(f"branch '{way}' on {tip.id}")
    print(f"  shared past: {found[0]} found, the first is {found[1]!r}, notes begin with '{first}'")
    print(f"  own future:  {judged.strip()} of {len(CASES)} tests pass, notes continue with {later}")
    print(f"  it says: {result.raw}")
    return int(judged)


asyncio.run(main())
