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
        controller: The daemon it lives in.
        info: What was last heard of it; :meth:`get_info` asks again.
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
        controller: Optional[AsyncController] = None,
        url: Optional[str] = None,
        token: Optional[str] = None,
        socket: Optional[str] = None,
        retries: Optional[int] = None,
        ssl_context: Optional[ssl.SSLContext] = None,
        idempotency_key: Key = UNSET,
        request_timeout: Optional[float] = None,
    ) -> Self:
        """Forks a snapshot into one sandbox. It lives until it is killed, its time has passed, or, with ``async with``, until the
        end of the block.

        Args:
            tag: The snapshot; without it FORKD_TAG, then "python".
            timeout: It ends so many seconds after now; without it, never.
            envs: Environment of every process.
            template: E2B's name for ``tag``.
            idle_timeout: It ends when nobody used it for so many seconds.
            on_timeout: Whether it ends or sleeps when its time is over.
            auto_resume: Whether it wakes up by itself when it is suspended and somebody uses it.
            memory_limit_mib: Memory of the host that it may take, its VMM included.
            cpu_limit: CPUs' worth of time, such as 0.5.
            cpu_weight: Share of the CPUs when several want them; 100 is usual.
            pids_limit: Threads of its VMM.
            io_limit_mbps: Megabytes a second that it may read, and as many that it may write, on the daemon's disk.
            network: What it may connect to; without it, what the snapshot says.
            shares: Folders of the daemon's machine that it sees, live and read-only; see :meth:`AsyncController.spawn_sandboxes`.
            controller: Used instead of a new one; else ``url``, ``token``, ``socket``, ``retries`` and ``ssl_context`` are those of
                :class:`AsyncController`.

        Raises:
            NotFoundError: there is no such snapshot
            ConnectionError: there is no daemon
            InvalidRequestError: with LIMIT_UNAVAILABLE, when the host cannot keep a limit
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
        """A handle on a sandbox that exists, by id or name.

        Raises:
            NotFoundError: there is none
        """
        owner = controller or AsyncController(url, token, socket=socket, retries=retries, ssl_context=ssl_context)
        return cls(owner, await owner.get_sandbox(sandbox_id, request_timeout=request_timeout))

    @property
    def sandbox_id(self) -> str:
        """The same as ``id``."""
        return self.id

    async def get_info(self, *, request_timeout: Optional[float] = None) -> SandboxInfo:
        """Asks for ``info`` again."""
        self.info = await self.controller.get_sandbox(self.id, request_timeout=request_timeout)
        return self.info

    async def is_running(self, *, request_timeout: Optional[float] = None) -> bool:
        """Whether it runs now: not when it is paused, ended or gone."""
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
        as a value in ``value`` where JSON can carry it. What the code displays, such as figures and tables, is in ``results``, by
        MIME type. With a callback, output and results come as they are made.

        Args:
            language: Needed only when the snapshot has several; one that is not warm yet is started, where the image has it.
            context: Where it runs, in place of the language's own interpreter: of ``contexts``.
            envs: Set while this code runs.
            timeout: How many seconds it may run; without it, 30.
            check: False: what the code raises is a result.

        Raises:
            EvalError: the code raised an error
            TimeoutError: it ran longer than ``timeout``; the interpreter stays usable
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
        idempotency_key: Key = UNSET,
        request_timeout: Optional[float] = None,
    ) -> SnapshotInfo:
        """Takes a snapshot of it as it is now, under the given tag or a made-up one; it goes on running.

        Args:
            wait: False: do not wait until the snapshot is on disk; its status is then still ``writing``.
        """
        return await self.controller.branch_sandbox(
            self.id, tag, wait=wait, metadata=metadata, idempotency_key=idempotency_key, request_timeout=request_timeout
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
        tag: Optional[str] = None,
        idempotency_key: Key = UNSET,
        request_timeout: Optional[float] = None,
    ) -> List[Self]:
        """Forks it as it is now into ``n`` more; it goes on running. They have a life of their own: kill them, or give them a
        ``timeout``.

        Args:
            tag: Keeps the snapshot between them under this tag; without it, it goes when nothing needs it any more.

        Raises:
            LimitError: the host has no room for them
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
            ttl_secs=timeout,
            idle_timeout_secs=idle_timeout,
            on_timeout=on_timeout,
            auto_resume=auto_resume,
            idempotency_key=idempotency_key,
            request_timeout=request_timeout,
        )
        return [type(self)(self.controller, info) for info in answer["sandboxes"]]

    async def pause(self, *, request_timeout: Optional[float] = None) -> SandboxInfo:
        """Stops its CPUs; its memory stays."""
        self.info = await self.controller.pause_sandbox(self.id, request_timeout=request_timeout)
        return self.info

    async def suspend(self, *, request_timeout: Optional[float] = None) -> SandboxInfo:
        """Saves its memory and disk and gives back what it uses; it keeps its id and its name, and goes on after ``resume()``."""
        self.info = await self.controller.suspend_sandbox(self.id, request_timeout=request_timeout)
        return self.info

    async def resume(self, *, request_timeout: Optional[float] = None) -> SandboxInfo:
        """Lets it go on after ``pause()`` or ``suspend()``, with its clock set."""
        self.info = await self.controller.resume_sandbox(self.id, request_timeout=request_timeout)
        return self.info

    async def set_timeout(self, timeout: Optional[int], *, request_timeout: Optional[float] = None) -> SandboxInfo:
        """Lets it live so many seconds from now; None: until it is killed."""
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
        request_timeout: Optional[float] = None,
    ) -> SandboxInfo:
        """Renames it (None takes the name away), replaces its metadata, changes how long it lives (None: until it is killed)."""
        self.info = await self.controller.update_sandbox(
            self.id,
            name=name,
            metadata=metadata,
            ttl_secs=timeout,
            idle_timeout_secs=idle_timeout,
            on_timeout=on_timeout,
            auto_resume=auto_resume,
            request_timeout=request_timeout,
        )
        return self.info

    async def get_network(self, *, request_timeout: Optional[float] = None) -> Network:
        """What it may connect to, the counters, and its last connections."""
        return await self.controller.get_network(self.id, request_timeout=request_timeout)

    async def set_network(
        self,
        mode: NetworkMode,
        *,
        allow: Optional[List[str]] = None,
        egress_limit_bytes: Union[int, Unset, None] = UNSET,
        request_timeout: Optional[float] = None,
    ) -> Network:
        """Replaces what it may connect to; see :meth:`AsyncController.set_network`."""
        return await self.controller.set_network(
            self.id, mode, allow=allow, egress_limit_bytes=egress_limit_bytes, request_timeout=request_timeout
        )

    async def get_host(self, port: int, *, request_timeout: Optional[float] = None) -> str:
        """Host and port that lead browsers to a server inside it; ``ports.url`` and ``ports.preview`` have whole addresses.

        Raises:
            ConflictError: with NO_TCP, when the daemon listens where no browser gets to
        """
        return urlsplit(await self.ports.url(port, request_timeout=request_timeout)).netloc

    async def stats(self, *, request_timeout: Optional[float] = None) -> SandboxStats:
        """What it uses."""
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
        """What its console, its agent or its VMM wrote, as text that comes bit by bit; see :meth:`AsyncController.logs`."""
        return self.controller.logs(self.id, source=source, tail=tail, follow=follow, timeout=timeout)

    async def kill(self, *, request_timeout: Optional[float] = None) -> bool:
        """Ends it; returns when everything of it is gone. False when it was gone already."""
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
