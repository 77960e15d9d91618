"""Tests that are written once and run against the blocking and the asynchronous half."""

from __future__ import annotations

import inspect
import unittest
from typing import Any, Callable, Dict, List, Type

import forkd


class Half:
    """The differences between the halves, behind the same names."""

    def __init__(self, name: str, controller: Any, sandbox: Any) -> None:
        self.name = name
        self.Controller = controller
        self.Sandbox = sandbox

    def __repr__(self) -> str:
        return self.name


SYNC = Half("sync", forkd.Controller, forkd.Sandbox)
ASYNC = Half("async", forkd.AsyncController, forkd.AsyncSandbox)


class HalfCase(unittest.IsolatedAsyncioTestCase):
    """``self.half`` is one of the two; results go through :func:`get`, iterations through :func:`collect`."""

    half: Half = SYNC

    def controller(self, **options: Any) -> Any:
        made = self.half.Controller(**options)
        self.addAsyncCleanup(closed, made)
        return made


def both(namespace: Dict[str, Any]) -> Callable[[Type[HalfCase]], None]:
    """Puts one class for each half into a module, in place of the decorated one."""

    def decorate(case: Type[HalfCase]) -> None:
        for half in (SYNC, ASYNC):
            name = f"{case.__name__}_{half.name}"
            namespace[name] = type(name, (case,), {"half": half, "__module__": case.__module__})

    return decorate


async def get(value: Any) -> Any:
    """The result of a call of either half."""
    return await value if inspect.isawaitable(value) else value


async def collect(iteration: Any) -> List[Any]:
    """All items of an iteration of either half."""
    if hasattr(iteration, "__aiter__"):
        return [item async for item in iteration]
    return list(iteration)


async def step(iteration: Any) -> Any:
    """The next item of an iteration of either half."""
    return await iteration.__anext__() if hasattr(iteration, "__anext__") else next(iteration)


async def closed(thing: Any) -> None:
    """Closes a controller or an iteration of either half."""
    await get(thing.aclose() if hasattr(thing, "aclose") else thing.close())
