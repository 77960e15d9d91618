"""The whole API of a daemon, one method per route."""

from __future__ import annotations

from typing import List, Optional

from .. import types
from .._call import Call
from .._wire import UNSET, Key, fields, key_of, path
from .port_calls import PortCalls


class AsyncController(PortCalls):
    """A daemon: every route is a method. Answers are the API's own objects, as dictionaries.

    Calls that are safe to repeat (reads, removals, and creations, which carry a key) are tried up to three times when the
    connection breaks or the daemon is busy. Programs and code are never run twice.

    Every call takes ``request_timeout``: how many seconds it may take; 0 is for ever.

    Args:
        url: ``http://…``, ``https://…`` or ``unix:///path``; without it FORKD_URL, FORKD_SOCKET, then the daemon's default socket.
        token: Without it FORKD_TOKEN; a Unix socket needs none.
        timeout: How many seconds a call may take; 0 is for ever.
        socket: Path of the daemon's Unix socket.
        retries: How often a call that is safe to repeat is repeated; without it, twice.
        ssl_context: For https, where the system's own certificates are not enough.
        base_url: The older SDK's name for ``url``.
    """

    async def list_workspaces(self, *, request_timeout: Optional[float] = None) -> List[types.WorkspaceInfo]:
        """Workspaces: sandboxes with a name that can sleep and go on."""
        return await self._client.json(Call[List[types.WorkspaceInfo]]("GET", "/v1/workspaces", timeout=request_timeout))

    async def create_workspace(
        self,
        name: str,
        snapshot_tag: str,
        *,
        per_child_netns: Optional[bool] = None,
        memory_limit_mib: Optional[int] = None,
        cpu_limit: Optional[float] = None,
        cpu_weight: Optional[int] = None,
        pids_limit: Optional[int] = None,
        io_limit_mbps: Optional[float] = None,
        idempotency_key: Key = UNSET,
        request_timeout: Optional[float] = None,
    ) -> types.WorkspaceInfo:
        """Forks a snapshot under a name that outlives the sandbox. Safe to repeat. Limits are those of :meth:`spawn_sandboxes`."""
        body = fields(
            name=name,
            snapshot_tag=snapshot_tag,
            per_child_netns=per_child_netns,
            memory_limit_mib=memory_limit_mib,
            cpu_limit=cpu_limit,
            cpu_weight=cpu_weight,
            pids_limit=pids_limit,
            io_limit_mbps=io_limit_mbps,
        )
        call = Call[types.WorkspaceInfo](
            "POST", "/v1/workspaces", json=body, idempotency_key=key_of(idempotency_key), timeout=request_timeout
        )
        return await self._client.json(call)

    async def get_workspace(self, name: str, *, request_timeout: Optional[float] = None) -> types.WorkspaceInfo:
        """One workspace."""
        return await self._client.json(Call[types.WorkspaceInfo]("GET", path("/v1/workspaces/{}", name), timeout=request_timeout))

    async def delete_workspace(self, name: str, *, request_timeout: Optional[float] = None) -> None:
        """Ends a workspace with its sandbox and its saved state."""
        await self._client.empty(Call[None]("DELETE", path("/v1/workspaces/{}", name), timeout=request_timeout))

    async def suspend_workspace(
        self, name: str, *, diff: Optional[bool] = None, request_timeout: Optional[float] = None
    ) -> types.WorkspaceInfo:
        """Saves a workspace's state and ends its sandbox."""
        call = Call[types.WorkspaceInfo]("POST", path("/v1/workspaces/{}/suspend", name), json=fields(diff=diff), timeout=request_timeout)
        return await self._client.json(call)

    async def resume_workspace(self, name: str, *, request_timeout: Optional[float] = None) -> types.WorkspaceInfo:
        """Goes on from a workspace's saved state."""
        return await self._client.json(Call[types.WorkspaceInfo]("POST", path("/v1/workspaces/{}/resume", name), timeout=request_timeout))
