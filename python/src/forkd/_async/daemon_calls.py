"""Calls about the daemon itself, its tokens and its events."""

from __future__ import annotations

import ssl
from types import TracebackType
from typing import Any, AsyncGenerator, Dict, List, Optional, Type, TypeVar

from .. import types
from .._call import Call
from .._wire import fields, path
from .client import Client
from .events import events_of

#: Collecting garbage may read a lot
_GC_SECS = 600.0

Self = TypeVar("Self", bound="DaemonCalls")


class DaemonCalls:
    def __init__(
        self,
        url: Optional[str] = None,
        token: Optional[str] = None,
        timeout: float = 60.0,
        *,
        socket: Optional[str] = None,
        retries: Optional[int] = None,
        ssl_context: Optional[ssl.SSLContext] = None,
        base_url: Optional[str] = None,
    ) -> None:
        self._client = Client(url or base_url, token, timeout, socket, retries, ssl_context)

    @property
    def url(self) -> str:
        """Where requests go, such as ``unix:///run/user/1000/forkd/forkd.sock`` or ``https://host:8889``."""
        return self._client.url

    async def close(self) -> None:
        """Closes the connections that lie idle. The next call makes a new one."""
        self._client.close()

    async def __aenter__(self: Self) -> Self:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        await self.close()

    async def health(self, *, request_timeout: Optional[float] = None) -> types.Health:
        """Whether the daemon answers. Needs no token."""
        return await self._client.json(Call[types.Health]("GET", "/healthz", timeout=request_timeout))

    async def ready(self, *, request_timeout: Optional[float] = None) -> types.Readiness:
        """Whether the daemon takes work, and if not, why. Needs no token."""
        return await self._client.json(Call[types.Readiness]("GET", "/readyz", answers=(503,), timeout=request_timeout))

    async def version(self, *, request_timeout: Optional[float] = None) -> types.Version:
        """The daemon's version."""
        return await self._client.json(Call[types.Version]("GET", "/version", timeout=request_timeout))

    async def metrics(self, *, request_timeout: Optional[float] = None) -> str:
        """Metrics in Prometheus' text format."""
        return await self._client.text(Call[str]("GET", "/metrics", timeout=request_timeout))

    async def openapi(self, *, request_timeout: Optional[float] = None) -> Dict[str, Any]:
        """The OpenAPI document of the daemon that answers."""
        return await self._client.json(Call[Dict[str, Any]]("GET", "/v1/openapi.json", timeout=request_timeout))

    async def status(self, *, request_timeout: Optional[float] = None) -> types.Status:
        """The daemon and its host: accelerator, limits, how many of everything."""
        return await self._client.json(Call[types.Status]("GET", "/v1/status", timeout=request_timeout))

    async def config(self, *, request_timeout: Optional[float] = None) -> types.Config:
        """The daemon's settings and where each comes from. Scope admin."""
        return await self._client.json(Call[types.Config]("GET", "/v1/config", timeout=request_timeout))

    async def stop(
        self, *, kill_sandboxes: Optional[bool] = None, if_idle: Optional[bool] = None, request_timeout: Optional[float] = None
    ) -> None:
        """Stops the daemon once all requests are answered. Scope admin.

        Sandboxes go on, and the next daemon adopts them, unless ``kill_sandboxes`` is set.

        Raises:
            ConflictError: with ``if_idle``, when somebody uses the daemon (IN_USE)
        """
        body = fields(kill_sandboxes=kill_sandboxes, if_idle=if_idle)
        await self._client.empty(Call[None]("POST", "/v1/stop", json=body, timeout=request_timeout))

    async def gc(self, *, dry_run: Optional[bool] = None, request_timeout: Optional[float] = None) -> types.GarbageCollected:
        """Removes what nothing refers to; with ``dry_run`` only says what that would be. Scope admin."""
        timeout = _GC_SECS if request_timeout is None else request_timeout
        return await self._client.json(Call[types.GarbageCollected]("POST", "/v1/gc", json=fields(dry_run=dry_run), timeout=timeout))

    async def tree(self, *, request_timeout: Optional[float] = None) -> types.Tree:
        """The lineage of snapshots and sandboxes."""
        return await self._client.json(Call[types.Tree]("GET", "/v1/tree", timeout=request_timeout))

    async def stats(self, *, request_timeout: Optional[float] = None) -> List[types.SandboxStats]:
        """What every live sandbox uses."""
        return await self._client.json(Call[List[types.SandboxStats]]("GET", "/v1/stats", timeout=request_timeout))

    def events(
        self,
        *,
        since: Optional[int] = None,
        types: Optional[List[types.EventType]] = None,
        sandbox: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> AsyncGenerator[types.ForkdEvent, None]:
        """Every change of state, as it happens. A lost connection is made again and goes on after the last event that came.

        Args:
            since: Only events after this id.
            types: Only events of these types.
            sandbox: Only events of this sandbox.
            timeout: The iteration ends, without an error, after so many seconds; None: never.

        Raises:
            ForkdError: the first connection fails, or a later one for another reason than the network
        """
        return events_of(self._client, since, types, sandbox, timeout)

    async def list_tokens(self, *, request_timeout: Optional[float] = None) -> List[types.TokenInfo]:
        """Tokens, without their values. Scope admin."""
        return await self._client.json(Call[List[types.TokenInfo]]("GET", "/v1/tokens", timeout=request_timeout))

    async def create_token(
        self,
        name: str,
        *,
        scope: Optional[types.Scope] = None,
        max_sandboxes: Optional[int] = None,
        request_timeout: Optional[float] = None,
    ) -> types.NewToken:
        """Makes a token; its value is in the answer and nowhere else. Scope admin.

        Raises:
            ConflictError: the name is taken
        """
        body = fields(name=name, scope=scope, max_sandboxes=max_sandboxes)
        return await self._client.json(Call[types.NewToken]("POST", "/v1/tokens", json=body, timeout=request_timeout))

    async def rotate_token(self, name: str, *, request_timeout: Optional[float] = None) -> types.NewToken:
        """Gives a token a new value; the old one ends at once. Scope admin."""
        return await self._client.json(Call[types.NewToken]("POST", path("/v1/tokens/{}/rotate", name), timeout=request_timeout))

    async def delete_token(self, name: str, *, request_timeout: Optional[float] = None) -> None:
        """Revokes a token. Scope admin."""
        await self._client.empty(Call[None]("DELETE", path("/v1/tokens/{}", name), timeout=request_timeout))
