"""Eval whose output and results are streamed while the code runs."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, cast

from .. import types
from .._call import Call
from .._streams import EventDecoder
from .._wire import bad_answer, parse_json
from ..errors import ConnectionError, error_of_problem
from .client import Client
from .net import notify

#: Limit of stdout, and of stderr, in the result; callbacks get all output
_MOST_KEPT = 8 * 1024 * 1024


async def streamed_eval(client: Client, call: Call[bytes], callbacks: Dict[str, Optional[Callable[[Any], Any]]]) -> types.EvalResult:
    printed = {"stdout": "", "stderr": ""}
    results: List[types.DisplayResult] = []
    is_cut = False
    decoder = EventDecoder()
    chunks = client.stream(call)
    try:
        async for chunk in chunks:
            for event in decoder.feed(chunk):
                data = parse_json(event.data)
                if event.type in printed:
                    is_cut = is_cut or len(printed[event.type]) + len(data["text"]) > _MOST_KEPT
                    printed[event.type] = (printed[event.type] + data["text"])[:_MOST_KEPT]
                    await notify(callbacks[event.type], data["text"])
                elif event.type == "result":
                    results.append(data)
                    await notify(callbacks["result"], data)
                elif event.type == "end":
                    kept = {"results": results, "truncated": data["truncated"] or is_cut}
                    return cast(types.EvalResult, {**data, **printed, **kept})
                elif event.type == "error":
                    raise error_of_problem(data, {})
                else:
                    raise bad_answer(f"Code that runs has no event of the type {event.type!r}.")
    finally:
        await chunks.aclose()
    raise ConnectionError("The daemon stopped while the code ran, which was interrupted.", "DAEMON_UNREACHABLE")
