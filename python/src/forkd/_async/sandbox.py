"""One sandbox as an object."""

from __future__ import annotations

import os
import ssl
from types import TracebackType
from typing import Any, AsyncGenerator, Callable, Dict, List, Literal, Optional, Type, TypeVar, Union
from urllib.parse import urlsplit

from .._wire import UNSET, Key, Unset
from ..errors import EvalError, NotFoundError, SandboxGoneError
from ..results import Evaluation, evaluation
from ..types import (
    Context,
    DisplayResult,
    Language,
    Network,
    NetworkMode,
    OnTimeout,
    Pong,
    SandboxInfo,
    SandboxStats,
    SetNetwork,
    Share,
    SnapshotInfo,
)
from .commands import AsyncCommands
from .contexts import AsyncContexts
from .controller import AsyncController
from .files import AsyncFiles
from .ports import AsyncPorts
from .pty import AsyncPty

#: The snapshot of :meth:`AsyncSandbox.create` when neither it nor FORKD_TAG names one
DEFAULT_TAG = "python"

Self = TypeVar("Self", bound="AsyncSandbox")


class AsyncSandbox:
    """A running VM, forked from a snapshot. At the end of ``async with`` it is killed.

    Attributes:
        id: The sandbox's id.
        commands: Its commands.
        contexts: Its interpreters, for :meth:`eval`.
        files: Its files.
        ports: Servers inside it.
        pty: Its terminals.
        controller: The daemon of the sandbox.
        info: The last known state; :meth:`get_info` refreshes it.
    """

    def __init__(self, controller: AsyncController, info: SandboxInfo) -> None:
        self.controller = controller
        self.id: str = info["id"]
        self.info = info
        self.commands = AsyncCommands(controller, self.id)
        self.contexts = AsyncContexts(controller, self.id)
        self.files = AsyncFiles(controller, self.id)
        self.ports = AsyncPorts(controller, self.id)
        self.pty = AsyncPty(controller, self.id)

    @classmethod
    async def create(
        cls: Type[Self],
        tag: Optional[str] = None,
        timeout: Optional[int] = None,
        metadata: Optional[Dict[str, str]] = None,
        envs: Optional[Dict[str, str]] = None,
        *,
        template: Optional[str] = None,
        name: Optional[str] = None,
        idle_timeout: Optional[int] = None,
        on_timeout: Optional[OnTimeout] = None,
        auto_resume: Optional[bool] = None,
        memory_limit_mib: Optional[int] = None,
        cpu_limit: Optional[float] = None,
        cpu_weight: Optional[int] = None,
        pids_limit: Optional[int] = None,
        io_limit_mbps: Optional[float] = None,
        network: Optional[SetNetwork] = None,
        shares: Optional[List[Share]] = None,
        isolation: Optional[Literal["any", "kvm"]] = None,
        controller: Optional[AsyncController] = None,
        url: Optional[str] = None,
        token: Optional[str] = None,
        socket: Optional[str] = None,
        retries: Optional[int] = None,
        ssl_context: Optional[ssl.SSLContext] = None,
        idempotency_key: Key = UNSET,
        request_timeout: Optional[float] = None,
    ) -> Self:
        """Forks a snapshot into one sandbox. It runs until it is killed, its time-out passes, or, with ``async with``, the block ends.

        Args:
            tag: The snapshot; without it FORKD_TAG, then "python".
            timeout: Seconds until it ends; without it, it does not end by itself.
            envs: Environment of every process.
            template: E2B's name for ``tag``.
            idle_timeout: Seconds without use after which it ends.
            on_timeout: Whether it ends or is suspended when its time-out passes.
            auto_resume: Whether the next use of the suspended sandbox resumes it.
            memory_limit_mib: Limit of host memory, its VMM included.
            cpu_limit: Limit of CPU time, in CPUs, such as 0.5.
            cpu_weight: Weight when sandboxes compete for CPUs; the default is 100.
            pids_limit: Limit of threads of its VMM.
            io_limit_mbps: Limit of reads, and of writes, on the daemon's disk, in megabytes per second.
            network: Network policy; without it, that of the snapshot.
            shares: Folders of the daemon's host that it sees, live and read-only; see :meth:`AsyncController.spawn_sandboxes`.
            isolation: Whether it may be emulated; see :meth:`AsyncController.spawn_sandboxes`.
            controller: Used instead of a new one; else ``url``, ``token``, ``socket``, ``retries`` and ``ssl_context`` are those of
                :class:`AsyncController`.

        Raises:
            NotFoundError: the snapshot does not exist
            ConnectionError: the daemon cannot be reached
            InvalidRequestError: with LIMIT_UNAVAILABLE, when the host cannot enforce a limit
        """
        owner = controller or AsyncController(url, token, socket=socket, retries=retries, ssl_context=ssl_context)
        [info] = await owner.spawn_sandboxes(
            tag or template or os.environ.get("FORKD_TAG") or DEFAULT_TAG,
            memory_limit_mib=memory_limit_mib,
            cpu_limit=cpu_limit,
            cpu_weight=cpu_weight,
            pids_limit=pids_limit,
            io_limit_mbps=io_limit_mbps,
            name=name,
            env=envs,
            metadata=metadata,
            network=network,
            shares=shares,
            isolation=isolation,
            ttl_secs=timeout,
            idle_timeout_secs=idle_timeout,
            on_timeout=on_timeout,
            auto_resume=auto_resume,
            idempotency_key=idempotency_key,
            request_timeout=request_timeout,
        )
        return cls(owner, info)

    @classmethod
    async def connect(
        cls: Type[Self],
        sandbox_id: str,
        *,
        controller: Optional[AsyncController] = None,
        url: Optional[str] = None,
        token: Optional[str] = None,
        socket: Optional[str] = None,
        retries: Optional[int] = None,
        ssl_context: Optional[ssl.SSLContext] = None,
        request_timeout: Optional[float] = None,
    ) -> Self:
        """A handle on an existing sandbox, by id or name.

        Raises:
            NotFoundError: no such sandbox
        """
        owner = controller or AsyncController(url, token, socket=socket, retries=retries, ssl_context=ssl_context)
        return cls(owner, await owner.get_sandbox(sandbox_id, request_timeout=request_timeout))

    @property
    def sandbox_id(self) -> str:
        """Alias of ``id``."""
        return self.id

    async def get_info(self, *, request_timeout: Optional[float] = None) -> SandboxInfo:
        """Refreshes ``info``."""
        self.info = await self.controller.get_sandbox(self.id, request_timeout=request_timeout)
        return self.info

    async def is_running(self, *, request_timeout: Optional[float] = None) -> bool:
        """Whether it is running: False when it is paused, suspended, ended or lost."""
        try:
            return (await self.get_info(request_timeout=request_timeout))["state"] == "running"
        except NotFoundError:
            return False

    async def eval(
        self,
        code: str,
        *,
        language: Optional[Language] = None,
        context: Union[str, Context, None] = None,
        envs: Optional[Dict[str, str]] = None,
        timeout: Optional[float] = None,
        check: bool = True,
        on_stdout: Optional[Callable[[str], Any]] = None,
        on_stderr: Optional[Callable[[str], Any]] = None,
        on_result: Optional[Callable[[DisplayResult], Any]] = None,
        request_timeout: Optional[float] = None,
    ) -> Evaluation:
        """Runs code in the warm interpreter, which keeps its state. The last expression is the result: as text in ``result``, and
        as a value in ``value`` if JSON can represent it. Displayed objects, such as figures and tables, are in ``results``, by MIME
        type. With a callback, output and results are reported while the code runs.

        Args:
            language: Needed only when the snapshot has several. An interpreter that is not warm is started, if the image has one.
            context: An interpreter of ``contexts``, in place of the language's first one.
            envs: Environment variables while this code runs.
            timeout: Seconds that it may run; without it, 30.
            check: False: return a result, also when the code raises an error.

        Raises:
            EvalError: the code raised an error
            TimeoutError: the code ran longer than ``timeout``; the interpreter stays usable
        """
        answer = await self.controller.eval_code(
            self.id,
            code,
            language=language,
            context=context["id"] if isinstance(context, dict) else context,
            env=envs,
            timeout_secs=timeout,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_result=on_result,
            request_timeout=request_timeout,
        )
        result = evaluation(answer)
        if check and result.exit_code != 0:
            raise EvalError(result)
        return result

    async def branch(
        self,
        tag: Optional[str] = None,
        *,
        metadata: Optional[Dict[str, str]] = None,
        wait: Optional[bool] = None,
        hold: Optional[bool] = None,
        idempotency_key: Key = UNSET,
        request_timeout: Optional[float] = None,
    ) -> SnapshotInfo:
        """Takes a snapshot of the sandbox, under the given tag or a generated one. The sandbox continues to run.

        Args:
            wait: False: do not wait until the snapshot is on disk; its status is then still ``writing``.
            hold: Freezes its processes a little longer than the pause, and in forks until clock and randomness are the fork's own.
        """
        return await self.controller.branch_sandbox(
            self.id, tag, wait=wait, hold=hold, metadata=metadata, idempotency_key=idempotency_key, request_timeout=request_timeout
        )

    async def fork(
        self: Self,
        n: int = 1,
        *,
        timeout: Optional[int] = None,
        metadata: Optional[Dict[str, str]] = None,
        envs: Optional[Dict[str, str]] = None,
        idle_timeout: Optional[int] = None,
        on_timeout: Optional[OnTimeout] = None,
        auto_resume: Optional[bool] = None,
        memory_limit_mib: Optional[int] = None,
        cpu_limit: Optional[float] = None,
        cpu_weight: Optional[int] = None,
        pids_limit: Optional[int] = None,
        io_limit_mbps: Optional[float] = None,
        network: Optional[SetNetwork] = None,
        shares: Optional[List[Share]] = None,
        isolation: Optional[Literal["any", "kvm"]] = None,
        tag: Optional[str] = None,
        idempotency_key: Key = UNSET,
        request_timeout: Optional[float] = None,
    ) -> List[Self]:
        """Forks the running sandbox into ``n`` sandboxes; it continues to run. Each fork has its own lifetime: kill it, or set
        ``timeout``.

        Args:
            tag: Keeps the intermediate snapshot under this tag; without it, it is removed when nothing depends on it.

        Raises:
            LimitError: the host has not enough resources
        """
        answer = await self.controller.fork_sandbox(
            self.id,
            n,
            tag=tag,
            env=envs,
            metadata=metadata,
            memory_limit_mib=memory_limit_mib,
            cpu_limit=cpu_limit,
            cpu_weight=cpu_weight,
            pids_limit=pids_limit,
            io_limit_mbps=io_limit_mbps,
            network=network,
            shares=shares,
            isolation=isolation,
            ttl_secs=timeout,
            idle_timeout_secs=idle_timeout,
            on_timeout=on_timeout,
            auto_resume=auto_resume,
            idempotency_key=idempotency_key,
            request_timeout=request_timeout,
        )
        return [type(self)(self.controller, info) for info in answer["sandboxes"]]

    async def pause(self, *, request_timeout: Optional[float] = None) -> SandboxInfo:
        """Stops its CPUs; its memory stays allocated."""
        self.info = await self.controller.pause_sandbox(self.id, request_timeout=request_timeout)
        return self.info

    async def suspend(self, *, request_timeout: Optional[float] = None) -> SandboxInfo:
        """Saves its memory and disk and frees its resources. It keeps its id and name; ``resume()`` continues it."""
        self.info = await self.controller.suspend_sandbox(self.id, request_timeout=request_timeout)
        return self.info

    async def resume(self, *, request_timeout: Optional[float] = None) -> SandboxInfo:
        """Continues a paused or suspended sandbox and sets its clock."""
        self.info = await self.controller.resume_sandbox(self.id, request_timeout=request_timeout)
        return self.info

    async def set_timeout(self, timeout: Optional[int], *, request_timeout: Optional[float] = None) -> SandboxInfo:
        """Sets the seconds from now until it ends; None: it does not end by itself."""
        return await self.update(timeout=timeout, request_timeout=request_timeout)

    async def update(
        self,
        *,
        name: Union[str, Unset, None] = UNSET,
        metadata: Optional[Dict[str, str]] = None,
        timeout: Union[int, Unset, None] = UNSET,
        idle_timeout: Union[int, Unset, None] = UNSET,
        on_timeout: Optional[OnTimeout] = None,
        auto_resume: Optional[bool] = None,
        rotate_access: Optional[bool] = None,
        request_timeout: Optional[float] = None,
    ) -> SandboxInfo:
        """Changes its name (None removes it), metadata or time to live (None: it does not end by itself).

        ``rotate_access`` gives it new access tokens of E2B's protocol and revokes the previous ones at once.
        """
        self.info = await self.controller.update_sandbox(
            self.id,
            name=name,
            metadata=metadata,
            ttl_secs=timeout,
            idle_timeout_secs=idle_timeout,
            on_timeout=on_timeout,
            auto_resume=auto_resume,
            rotate_access=rotate_access,
            request_timeout=request_timeout,
        )
        return self.info

    async def get_network(self, *, request_timeout: Optional[float] = None) -> Network:
        """Network policy, counters and recent connections."""
        return await self.controller.get_network(self.id, request_timeout=request_timeout)

    async def set_network(
        self,
        mode: NetworkMode,
        *,
        allow: Optional[List[str]] = None,
        deny: Optional[List[str]] = None,
        egress_limit_bytes: Union[int, Unset, None] = UNSET,
        request_timeout: Optional[float] = None,
    ) -> Network:
        """Replaces the network policy; see :meth:`AsyncController.set_network`."""
        return await self.controller.set_network(
            self.id, mode, allow=allow, deny=deny, egress_limit_bytes=egress_limit_bytes, request_timeout=request_timeout
        )

    async def get_host(self, port: int, *, request_timeout: Optional[float] = None) -> str:
        """Host and port under which browsers reach a server inside it; ``ports.url`` and ``ports.preview`` return whole addresses.

        Raises:
            ConflictError: with NO_TCP, when the daemon has no address for browsers
        """
        return urlsplit(await self.ports.url(port, request_timeout=request_timeout)).netloc

    async def stats(self, *, request_timeout: Optional[float] = None) -> SandboxStats:
        """Resource usage."""
        return await self.controller.sandbox_stats(self.id, request_timeout=request_timeout)

    async def ping(self, *, request_timeout: Optional[float] = None) -> Pong:
        """One round trip to the agent inside the guest."""
        return await self.controller.ping_sandbox(self.id, request_timeout=request_timeout)

    def logs(
        self,
        *,
        source: Optional[Literal["console", "agent", "vmm"]] = None,
        tail: Optional[int] = None,
        follow: bool = False,
        timeout: Optional[float] = None,
    ) -> AsyncGenerator[str, None]:
        """Log of its console, its agent or its VMM, as text in pieces; see :meth:`AsyncController.logs`."""
        return self.controller.logs(self.id, source=source, tail=tail, follow=follow, timeout=timeout)

    async def kill(self, *, request_timeout: Optional[float] = None) -> bool:
        """Ends it; returns when all its resources are freed. False when it had ended already."""
        try:
            await self.controller.kill_sandbox(self.id, request_timeout=request_timeout)
            return True
        except (NotFoundError, SandboxGoneError):
            return False

    async def __aenter__(self: Self) -> Self:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        await self.kill()
        await self.controller.close()
