"""Calls about sandboxes as wholes: made, listed, changed, branched, ended."""

from __future__ import annotations

from typing import Any, Dict, List, Literal, Optional, Union

from .. import types
from .._call import Call
from .._wire import UNSET, Key, Page, Unset, fields, joined, key_of, nullable, pairs_of, path
from .hub_calls import HubCalls

#: On top of the time-out for each child of a fork
_PER_CHILD_SECS = 0.5


class SandboxCalls(HubCalls):
    async def list_sandboxes(
        self,
        *,
        tag: Optional[str] = None,
        state: Union[types.SandboxState, List[types.SandboxState], None] = None,
        metadata: Optional[Dict[str, str]] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> Page[types.SandboxInfo]:
        """Sandboxes that run, are paused or suspended; others with ``state``. Pages only when ``limit`` is given.

        Args:
            tag: Only forks of this snapshot.
            metadata: Only those that have all of these.
            limit: Entries per page; without it, all.
            cursor: ``next_cursor`` of the page before.
        """
        query = {"tag": tag, "state": joined(state), "metadata": pairs_of(metadata), "limit": limit, "cursor": cursor}
        return await self._client.page(Call[types.SandboxInfo]("GET", "/v1/sandboxes", query=query, timeout=request_timeout))

    async def spawn_sandboxes(
        self,
        snapshot_tag: str,
        n: int = 1,
        per_child_netns: Optional[bool] = None,
        memory_limit_mib: Optional[int] = None,
        prewarm: Optional[bool] = None,
        live_fork: Optional[bool] = None,
        hugepages: Optional[bool] = None,
        *,
        cpu_limit: Optional[float] = None,
        cpu_weight: Optional[int] = None,
        pids_limit: Optional[int] = None,
        io_limit_mbps: Optional[float] = None,
        name: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        metadata: Optional[Dict[str, str]] = None,
        network: Optional[types.SetNetwork] = None,
        shares: Optional[List[types.Share]] = None,
        ttl_secs: Optional[int] = None,
        idle_timeout_secs: Optional[int] = None,
        on_timeout: Optional[types.OnTimeout] = None,
        auto_resume: Optional[bool] = None,
        idempotency_key: Key = UNSET,
        request_timeout: Optional[float] = None,
    ) -> List[types.SandboxInfo]:
        """Forks a snapshot into ``n`` sandboxes, all or none. Safe to repeat: the request carries an idempotency key.

        Args:
            memory_limit_mib: Memory of the host that each may take, its VMM included.
            cpu_limit: CPUs' worth of time, such as 0.5.
            cpu_weight: Share of the CPUs when several want them; 100 is usual.
            pids_limit: Threads of its VMM.
            io_limit_mbps: Megabytes a second that each may read, and as many that each may write, on the daemon's disk.
            name: Only for a single one.
            env: Environment of every process.
            network: What they may connect to; without it, what the snapshot says.
            shares: Folders of the daemon's machine that they see, live and read-only: only through the Unix socket, or with scope
                admin below the daemon's ``share_roots``. Without it, those of the sandbox they descend from; ``[]``: none.
            ttl_secs: They end so long after now.
            idle_timeout_secs: They end when nobody used them for so long.
            on_timeout: Whether they end or sleep when their time is over.
            auto_resume: Whether they wake up by themselves when they are suspended and somebody uses them.
            per_child_netns, prewarm, live_fork, hugepages: Of the older API, without effect.

        Raises:
            NotFoundError: there is no such snapshot
            LimitError: the host has no room for them
            InvalidRequestError: with LIMIT_UNAVAILABLE, when this host cannot keep a limit; with SHARE_FAILED, for a share that cannot be
        """
        body = fields(
            snapshot_tag=snapshot_tag,
            n=n,
            per_child_netns=per_child_netns,
            memory_limit_mib=memory_limit_mib,
            cpu_limit=cpu_limit,
            cpu_weight=cpu_weight,
            pids_limit=pids_limit,
            io_limit_mbps=io_limit_mbps,
            prewarm=prewarm,
            live_fork=live_fork,
            hugepages=hugepages,
            name=name,
            env=env,
            metadata=metadata,
            network=network,
            shares=shares,
            ttl_secs=ttl_secs,
            idle_timeout_secs=idle_timeout_secs,
            on_timeout=on_timeout,
            auto_resume=auto_resume,
        )
        return await self._client.json(Call[List[types.SandboxInfo]](**self._spawn(body, idempotency_key, request_timeout)))

    async def try_spawn_sandboxes(
        self,
        snapshot_tag: str,
        n: int = 1,
        *,
        memory_limit_mib: Optional[int] = None,
        cpu_limit: Optional[float] = None,
        cpu_weight: Optional[int] = None,
        pids_limit: Optional[int] = None,
        io_limit_mbps: Optional[float] = None,
        name: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        metadata: Optional[Dict[str, str]] = None,
        network: Optional[types.SetNetwork] = None,
        shares: Optional[List[types.Share]] = None,
        ttl_secs: Optional[int] = None,
        idle_timeout_secs: Optional[int] = None,
        on_timeout: Optional[types.OnTimeout] = None,
        auto_resume: Optional[bool] = None,
        idempotency_key: Key = UNSET,
        request_timeout: Optional[float] = None,
    ) -> List[types.ForkOutcome]:
        """Forks a snapshot into ``n`` sandboxes, each for itself: one outcome per child, in order."""
        body = fields(
            snapshot_tag=snapshot_tag,
            n=n,
            memory_limit_mib=memory_limit_mib,
            cpu_limit=cpu_limit,
            cpu_weight=cpu_weight,
            pids_limit=pids_limit,
            io_limit_mbps=io_limit_mbps,
            name=name,
            env=env,
            metadata=metadata,
            network=network,
            shares=shares,
            ttl_secs=ttl_secs,
            idle_timeout_secs=idle_timeout_secs,
            on_timeout=on_timeout,
            auto_resume=auto_resume,
            per_item=True,
        )
        answer = await self._client.json(Call[types.ForkOutcomes](**self._spawn(body, idempotency_key, request_timeout)))
        return answer["results"]

    async def get_sandbox(self, sandbox_id: str, *, request_timeout: Optional[float] = None) -> types.SandboxInfo:
        """One sandbox, by id or name."""
        return await self._client.json(Call[types.SandboxInfo]("GET", path("/v1/sandboxes/{}", sandbox_id), timeout=request_timeout))

    async def update_sandbox(
        self,
        sandbox_id: str,
        *,
        name: Union[str, Unset, None] = UNSET,
        metadata: Optional[Dict[str, str]] = None,
        ttl_secs: Union[int, Unset, None] = UNSET,
        idle_timeout_secs: Union[int, Unset, None] = UNSET,
        on_timeout: Optional[types.OnTimeout] = None,
        auto_resume: Optional[bool] = None,
        request_timeout: Optional[float] = None,
    ) -> types.SandboxInfo:
        """Renames a sandbox, replaces its metadata, changes how long it lives.

        Args:
            name: None takes it away.
            ttl_secs: It ends so long after now; None: never.
            idle_timeout_secs: It ends when nobody used it for so long; None: never.
        """
        body = {
            **nullable(name=name, ttl_secs=ttl_secs, idle_timeout_secs=idle_timeout_secs),
            **fields(metadata=metadata, on_timeout=on_timeout, auto_resume=auto_resume),
        }
        return await self._client.json(
            Call[types.SandboxInfo]("PATCH", path("/v1/sandboxes/{}", sandbox_id), json=body, timeout=request_timeout)
        )

    async def kill_sandbox(self, sandbox_id: str, *, request_timeout: Optional[float] = None) -> None:
        """Ends a sandbox; returns when its process, sockets and files are gone.

        Raises:
            NotFoundError: there is none
        """
        await self._client.empty(Call[None]("DELETE", path("/v1/sandboxes/{}", sandbox_id), timeout=request_timeout))

    async def kill_sandboxes(
        self, *, tag: Optional[str] = None, all: Optional[bool] = None, request_timeout: Optional[float] = None
    ) -> List[str]:
        """Ends all sandboxes of a snapshot (``tag``), or really all (``all``); returns their ids when they are gone."""
        # Not repeated: the second answer would not name what the first one ended.
        query = {"tag": tag, "all": all}
        return await self._client.json(Call[List[str]]("DELETE", "/v1/sandboxes", query=query, can_repeat=False, timeout=request_timeout))

    async def branch_sandbox(
        self,
        sandbox_id: str,
        tag: Optional[str] = None,
        diff: Optional[bool] = None,
        measure_diff: Optional[bool] = None,
        mode: Optional[Literal["full", "diff", "live"]] = None,
        wait: Optional[bool] = None,
        *,
        live: Optional[bool] = None,
        parent_tag: Optional[str] = None,
        metadata: Optional[Dict[str, str]] = None,
        idempotency_key: Key = UNSET,
        request_timeout: Optional[float] = None,
    ) -> types.SnapshotInfo:
        """Takes a snapshot of a running sandbox, which goes on. Safe to repeat.

        Args:
            tag: Without it, one is made up.
            wait: False: answer as soon as the source runs again; the snapshot's status is then still ``writing``.
            mode, diff, live, measure_diff, parent_tag: Of the older API: all modes are the same short pause.
        """
        body = fields(
            tag=tag, diff=diff, measure_diff=measure_diff, mode=mode, wait=wait, live=live, parent_tag=parent_tag, metadata=metadata
        )
        call = Call[types.SnapshotInfo](
            "POST",
            path("/v1/sandboxes/{}/branch", sandbox_id),
            json=body,
            idempotency_key=key_of(idempotency_key),
            timeout=request_timeout,
        )
        return await self._client.json(call)

    async def fork_sandbox(
        self,
        sandbox_id: str,
        n: int = 1,
        *,
        tag: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        metadata: Optional[Dict[str, str]] = None,
        network: Optional[types.SetNetwork] = None,
        shares: Optional[List[types.Share]] = None,
        ttl_secs: Optional[int] = None,
        idle_timeout_secs: Optional[int] = None,
        on_timeout: Optional[types.OnTimeout] = None,
        auto_resume: Optional[bool] = None,
        memory_limit_mib: Optional[int] = None,
        cpu_limit: Optional[float] = None,
        cpu_weight: Optional[int] = None,
        pids_limit: Optional[int] = None,
        io_limit_mbps: Optional[float] = None,
        idempotency_key: Key = UNSET,
        request_timeout: Optional[float] = None,
    ) -> types.ForkedSandboxes:
        """Branches a running sandbox and forks the branch into ``n``, in one request. Safe to repeat. Limits are those of
        :meth:`spawn_sandboxes`; a fork does not have its source's.

        Args:
            tag: Keeps the snapshot under this tag; without it, it goes when nothing needs it any more.
        """
        body = fields(
            n=n,
            tag=tag,
            env=env,
            metadata=metadata,
            network=network,
            shares=shares,
            ttl_secs=ttl_secs,
            idle_timeout_secs=idle_timeout_secs,
            on_timeout=on_timeout,
            auto_resume=auto_resume,
            memory_limit_mib=memory_limit_mib,
            cpu_limit=cpu_limit,
            cpu_weight=cpu_weight,
            pids_limit=pids_limit,
            io_limit_mbps=io_limit_mbps,
        )
        call = Call[types.ForkedSandboxes](
            "POST",
            path("/v1/sandboxes/{}/fork", sandbox_id),
            json=body,
            idempotency_key=key_of(idempotency_key),
            timeout=self._fork_timeout(n, request_timeout),
        )
        return await self._client.json(call)

    async def pause_sandbox(self, sandbox_id: str, *, request_timeout: Optional[float] = None) -> types.SandboxInfo:
        """Stops a sandbox's CPUs; its memory stays."""
        return await self._client.json(Call[types.SandboxInfo]("POST", path("/v1/sandboxes/{}/pause", sandbox_id), timeout=request_timeout))

    async def suspend_sandbox(self, sandbox_id: str, *, request_timeout: Optional[float] = None) -> types.SandboxInfo:
        """Saves a sandbox's memory and disk and gives back what it uses; it keeps its id and its name."""
        return await self._client.json(
            Call[types.SandboxInfo]("POST", path("/v1/sandboxes/{}/suspend", sandbox_id), timeout=request_timeout)
        )

    async def resume_sandbox(self, sandbox_id: str, *, request_timeout: Optional[float] = None) -> types.SandboxInfo:
        """Lets a paused sandbox go on, with its clock set."""
        return await self._client.json(
            Call[types.SandboxInfo]("POST", path("/v1/sandboxes/{}/resume", sandbox_id), timeout=request_timeout)
        )

    async def sandbox_stats(self, sandbox_id: str, *, request_timeout: Optional[float] = None) -> types.SandboxStats:
        """What one sandbox uses."""
        return await self._client.json(Call[types.SandboxStats]("GET", path("/v1/sandboxes/{}/stats", sandbox_id), timeout=request_timeout))

    async def get_network(self, sandbox_id: str, *, request_timeout: Optional[float] = None) -> types.Network:
        """What a sandbox may connect to, and its last connections."""
        return await self._client.json(Call[types.Network]("GET", path("/v1/sandboxes/{}/network", sandbox_id), timeout=request_timeout))

    async def set_network(
        self,
        sandbox_id: str,
        mode: types.NetworkMode,
        *,
        allow: Optional[List[str]] = None,
        egress_limit_bytes: Union[int, Unset, None] = UNSET,
        request_timeout: Optional[float] = None,
    ) -> types.Network:
        """Changes what a sandbox may connect to, at once: connections that are no longer allowed are cut off.

        Args:
            mode: "none": nothing; "allow": what the rules say; "open": any public address, and what the rules say.
            allow: Rules such as ``example.org``, ``*.example.org:443``, ``10.1.2.0/24:5432``, ``[fd00::1]:80,8000-8100``.
            egress_limit_bytes: What may leave the sandbox in all; None: any number of bytes.

        Raises:
            InvalidRequestError: something is no rule
        """
        body = {**fields(mode=mode, allow=allow), **nullable(egress_limit_bytes=egress_limit_bytes)}
        return await self._client.json(
            Call[types.Network]("PUT", path("/v1/sandboxes/{}/network", sandbox_id), json=body, timeout=request_timeout)
        )

    def _spawn(self, body: Dict[str, Any], key: Key, request_timeout: Optional[float]) -> Dict[str, Any]:
        return {
            "method": "POST",
            "path": "/v1/sandboxes",
            "json": body,
            "idempotency_key": key_of(key),
            "timeout": self._fork_timeout(body["n"], request_timeout),
        }

    def _fork_timeout(self, n: int, request_timeout: Optional[float]) -> float:
        if request_timeout is not None:
            return request_timeout
        return 0 if self._client.timeout == 0 else self._client.timeout + n * _PER_CHILD_SECS
