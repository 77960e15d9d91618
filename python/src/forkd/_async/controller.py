"""The whole API of a daemon. Methods that are one request and one answer are generated; this file has the others."""

from __future__ import annotations

import os
import ssl
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, AsyncGenerator, Callable, Dict, List, Literal, Mapping, Optional, Type, TypeVar, Union

from .. import types
from .._call import Call
from .._deadline import Elapsed, end_of, guest_timeout
from .._port_path import port_headers, port_target
from .._streams import TextDecoder
from .._wire import Page, fields, path
from ..errors import ForkdError, NotFoundError
from .client import Client, ProgressListener
from .controller_gen import GeneratedController
from .eval_stream import streamed_eval
from .events import events_of
from .file_watch import AsyncWatchHandle
from .port_connection import AsyncPortConnection
from .port_response import AsyncPortResponse
from .process_events import AsyncProcessEvents, place_of, process_call
from .recipe import Login, PackedRecipe, auth_header, is_path, pack_folder, pack_source, recipe_file, with_local_paths
from .upload import Content, in_thread

#: Many slow steps, each with its own limit
_BUILD_SECS = 12 * 3600.0

#: Entries that the daemon returns at most in one page of a directory
_LARGEST_PAGE = 10_000

Self = TypeVar("Self", bound="AsyncController")


class AsyncController(GeneratedController):
    """A daemon: every route is a method. Results are the objects of the API, as dictionaries. Paths of guests are absolute; a path
    that is not UTF-8 is ``base64:`` and its bytes.

    Calls that are safe to repeat (reads, removals, and creations, which carry a key) are tried up to three times when the
    connection breaks or the daemon is busy. Programs and code are never run twice.

    Every call takes ``request_timeout``: the seconds that it may take; 0 is no limit.

    Args:
        url: ``http://…``, ``https://…`` or ``unix:///path``; without it FORKD_URL, FORKD_SOCKET, then the daemon's default socket.
        token: Without it FORKD_TOKEN; a Unix socket needs none.
        timeout: The seconds that a call may take; 0 is no limit.
        socket: Path of the daemon's Unix socket.
        retries: How often a call that is safe to repeat is repeated; without it, twice.
        ssl_context: For https, where the system's own certificates are not enough.
        base_url: The older SDK's name for ``url``.
        project: The project to act in, for a token of scope operator; ``*`` lists across all. Without it FORKD_PROJECT, else that of
            the token.
    """

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
        project: Optional[str] = None,
    ) -> None:
        self._client = Client(url or base_url, token, timeout, socket, retries, ssl_context, project)

    @property
    def url(self) -> str:
        """Address of the daemon, such as ``unix:///run/user/1000/forkd/forkd.sock`` or ``https://host:8889``."""
        return self._client.url

    async def close(self) -> None:
        """Closes idle connections. The next call opens a new one."""
        self._client.close()

    async def __aenter__(self: Self) -> Self:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        await self.close()

    def events(
        self,
        *,
        since: Optional[int] = None,
        types: Optional[List[types.EventType]] = None,
        sandbox: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> AsyncGenerator[types.ForkdEvent, None]:
        """Every change of state, as it happens. After a lost connection the iteration continues with the event after the last one.

        Args:
            since: Only events after this id.
            types: Only events of these types.
            sandbox: Only events of this sandbox.
            timeout: The iteration ends, without an error, after so many seconds; None: never.

        Raises:
            ForkdError: the first connection fails, or a later one for another reason than the network
        """
        return events_of(self._client, since, types, sandbox, timeout)

    async def build_recipe(
        self,
        recipe: Union[str, os.PathLike[str], None] = None,
        *,
        source: Optional[str] = None,
        files: Optional[Mapping[str, Union[str, bytes]]] = None,
        tag: Optional[str] = None,
        set: Optional[Mapping[str, str]] = None,
        test: Optional[bool] = None,
        no_cache: Optional[bool] = None,
        registry: Optional[Login] = None,
        on_progress: Optional[ProgressListener] = None,
        request_timeout: Optional[float] = None,
    ) -> types.BuiltRecipe:
        """Builds a recipe into a snapshot. Needs the scope admin.

        Steps that did not change since an earlier build are not repeated, and another build of the same tag is waited for. A build
        ends when its connection does; completed steps are kept. Of a folder, only the files that the recipe names are sent.

        Args:
            recipe: A recipe that comes with forkd, or the path of a folder with a ``recipe.yaml``.
            source: Instead of that, the content of a ``recipe.yaml``.
            files: With ``source``, the files that it names, by their paths.
            tag: Of the snapshot; without it, the recipe's own.
            set: Values of the recipe's variables.
            test: Run the recipe's tests; if one fails, the tag keeps the snapshot it has.
            no_cache: Repeat all steps, and make the image again.
            registry: User name and password for the registry of the recipe's image.
            on_progress: Called for every step.

        Raises:
            InvalidRequestError: RECIPE_INVALID, BUILD_FAILED or TESTS_FAILED; ``details["output"]`` has the end of a step's output
        """
        if (recipe is None) == (source is None):
            raise ValueError("build_recipe needs either a recipe or the source of one")
        packed = pack_source(source, files) if source is not None else await self._packed(os.fspath(recipe or ""), set)
        pairs = None if set is None else [f"{name}={value}" for name, value in set.items()]
        with TemporaryFile() as file:
            await in_thread(packed.write, file)
            call = Call[types.BuiltRecipe](
                "POST",
                "/v1/recipes/build",
                query={"recipe": packed.recipe, "tag": tag, "set": pairs, "test": test, "no_cache": no_cache},
                content=file if packed.entries else b"",
                headers={"accept": "application/x-ndjson, application/json;q=0.9", **auth_header(registry)},
                timeout=_BUILD_SECS if request_timeout is None else request_timeout,
            )
            try:
                return await self._client.progress(call, on_progress)
            except ForkdError as error:
                raise with_local_paths(error, packed.shown) from None

    async def _packed(self, recipe: str, variables: Optional[Mapping[str, str]]) -> PackedRecipe:
        """A name that the daemon knows is left to it; so is one that is no folder here, for which its error has similar names."""
        if not is_path(recipe) and any(known["name"] == recipe for known in await self.list_recipes()):
            return PackedRecipe(recipe=recipe)
        file = recipe_file(recipe)
        if file is not None:
            return await pack_folder(file, self.check_recipe, variables)
        if is_path(recipe):
            raise NotFoundError(
                f"There is no recipe {recipe}: it has no recipe.yaml.", "NOT_FOUND", hint="Name a folder with a recipe.yaml."
            )
        return PackedRecipe(recipe=recipe)

    async def eval_code(
        self,
        sandbox_id: str,
        code: str,
        *,
        language: Optional[types.Language] = None,
        context: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        timeout_secs: Optional[float] = None,
        on_stdout: Optional[Callable[[str], Any]] = None,
        on_stderr: Optional[Callable[[str], Any]] = None,
        on_result: Optional[Callable[[types.DisplayResult], Any]] = None,
        idempotency_key: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> types.EvalResult:
        """Runs code in a warm interpreter, which keeps its state. Code that raises is a result, not an error. Not repeated after a
        failure unless ``idempotency_key`` is given. With a callback, output and results are reported while the code runs.

        Args:
            language: Needed only when the snapshot has several; one that is not warm yet is started, where the image has it.
            context: The interpreter that runs the code, in place of the language's first one.
            env: Set while this code runs.
            timeout_secs: How long the code may run (default 30).
        """
        body = fields(code=code, language=language, context=context, env=env, timeout_secs=timeout_secs)
        timeout = guest_timeout(timeout_secs, request_timeout)
        if on_stdout is None and on_stderr is None and on_result is None:
            at = path("/v1/sandboxes/{}/eval", sandbox_id)
            return await self._client.json(Call[types.EvalResult]("POST", at, json=body, idempotency_key=idempotency_key, timeout=timeout))
        at = path("/v1/sandboxes/{}/eval/stream", sandbox_id)
        call = Call[bytes]("POST", at, json=body, headers={"accept": "text/event-stream"}, timeout=timeout)
        return await streamed_eval(self._client, call, {"stdout": on_stdout, "stderr": on_stderr, "result": on_result})

    async def logs(
        self,
        sandbox_id: str,
        *,
        source: Optional[Literal["console", "agent", "vmm"]] = None,
        tail: Optional[int] = None,
        follow: bool = False,
        timeout: Optional[float] = None,
        request_timeout: Optional[float] = None,
    ) -> AsyncGenerator[str, None]:
        """Log of the guest's console, the agent or the VMM, as text in pieces.

        Args:
            source: Without it, the console.
            tail: Only the last lines.
            follow: Continues until the sandbox ends, or ``timeout`` seconds have passed.
        """
        query = {"source": source, "tail": tail, "follow": follow}
        call = Call[bytes]("GET", path("/v1/sandboxes/{}/logs", sandbox_id), query=query, timeout=request_timeout)
        text = TextDecoder()
        chunks = self._client.stream(call, is_endless=follow, until=end_of(timeout))
        try:
            async for chunk in chunks:
                part = text.feed(chunk)
                if part != "":
                    yield part
            rest = text.finish()
            if rest != "":
                yield rest
        except Elapsed:
            return
        finally:
            await chunks.aclose()

    async def read_file(
        self,
        sandbox_id: str,
        file_path: str,
        *,
        offset: Optional[int] = None,
        length: Optional[int] = None,
        user: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> bytes:
        """Reads a file of the guest, or a part of it. Here and in all calls about files, ``user`` is the user of the guest whose
        rights count and who owns what is new; without it, root."""
        pieces: List[bytes] = []
        stream = self.read_file_stream(sandbox_id, file_path, offset=offset, length=length, user=user, request_timeout=request_timeout)
        async for piece in stream:
            pieces.append(piece)
        return b"".join(pieces)

    async def list_files(
        self,
        sandbox_id: str,
        directory: str,
        *,
        depth: Optional[int] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        user: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> Page[types.ListedFile]:
        """Lists a directory of the guest, in the order of the paths: all of it, or one page with ``limit`` or ``cursor``.

        Args:
            depth: Without it 1: only the entries of the directory itself.
        """
        query: Dict[str, Any] = {"path": directory, "depth": depth, "limit": limit, "cursor": cursor, "user": user}
        at = path("/v1/sandboxes/{}/files/list", sandbox_id)
        if limit is not None or cursor is not None:
            return await self._client.page(Call[types.ListedFile]("GET", at, query=query, timeout=request_timeout))
        whole: Page[types.ListedFile] = Page()
        query["limit"] = _LARGEST_PAGE
        while True:
            page = await self._client.page(Call[types.ListedFile]("GET", at, query=query, timeout=request_timeout))
            whole.extend(page)
            if page.next_cursor is None:
                return whole
            query["cursor"] = page.next_cursor

    async def watch_files(
        self,
        sandbox_id: str,
        directory: str,
        *,
        recursive: Optional[bool] = None,
        debounce_ms: Optional[int] = None,
        user: Optional[str] = None,
    ) -> AsyncWatchHandle:
        """Reports changes in a directory of the guest. Returns when the guest reports every later change.

        Args:
            recursive: Also everything below, and directories that are created there later.
            debounce_ms: Changes are collected for so long, and repeated ones reported once; 0: each change is reported. Without it, 50.
        """
        query = {"path": directory, "recursive": recursive, "debounce_ms": debounce_ms, "user": user}
        return await AsyncWatchHandle.open(self._client, path("/v1/sandboxes/{}/files/watch", sandbox_id), query)

    def stream_process(
        self,
        sandbox_id: str,
        args: List[str],
        *,
        env: Optional[Dict[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        tag: Optional[str] = None,
        stdin: Optional[bool] = None,
        terminal: Optional[types.TerminalSize] = None,
        timeout_secs: Optional[float] = None,
    ) -> AsyncProcessEvents:
        """Starts a process and watches it from its first byte: ``started``, its output, ``exit``. After a lost connection the watch
        continues where it was. The request is sent with the first step of the iteration."""
        body = fields(args=args, env=env, cwd=cwd, user=user, tag=tag, stdin=stdin, terminal=terminal, timeout_secs=timeout_secs)
        call = process_call("POST", path("/v1/sandboxes/{}/processes", sandbox_id), {}, body)
        return AsyncProcessEvents(self._client, call, lambda process: _output_path(sandbox_id, process))

    def watch_process(self, sandbox_id: str, process: Union[int, str], *, from_: str = "start", follow: bool = True) -> AsyncProcessEvents:
        """Watches a process: ``started``, its output from any position that is kept, ``exit``. After a lost connection the watch
        continues where it was.

        Args:
            from_: "start" (all that is kept), "now", or a cursor.
            follow: False: ends with the output that exists now.
        """
        # query_string leaves False out, and the daemon's default is true.
        query = {**place_of(from_), "follow": None if follow else "false"}
        call = process_call("GET", _output_path(sandbox_id, str(process)), query)
        return AsyncProcessEvents(self._client, call, lambda known: _output_path(sandbox_id, known))

    async def fetch_port(
        self,
        sandbox_id: str,
        port: int,
        target: str = "/",
        *,
        method: str = "GET",
        headers: Optional[Mapping[str, str]] = None,
        body: Optional[Content] = None,
        request_timeout: Optional[float] = None,
    ) -> AsyncPortResponse:
        """An HTTP request to a server in the guest; bodies are streamed both ways. Every answer of the server is a result, redirects
        included, which are not followed; only a failure to get an answer is an error. ``request_timeout`` bounds the wait for the
        answer and each silence in it.

        Args:
            target: Path and query.

        Raises:
            ForkdError: with PORT_CLOSED, when no process listens on the port
        """
        call = Call[bytes](
            method.upper(),
            path("/v1/sandboxes/{}/proxy/{}", sandbox_id, str(port)) + port_target(target),
            headers=port_headers(headers),
            content=body,
            can_repeat=False,
            is_proxied=True,
            timeout=request_timeout,
        )
        return AsyncPortResponse(await self._client.open(call))

    async def connect_port(self, sandbox_id: str, port: int, *, request_timeout: Optional[float] = None) -> AsyncPortConnection:
        """A TCP connection to a server in the guest.

        Raises:
            ForkdError: with PORT_CLOSED, when no process listens on the port
        """
        call = Call[bytes](
            "GET",
            path("/v1/sandboxes/{}/ports/{}/connect", sandbox_id, str(port)),
            headers={"connection": "Upgrade", "upgrade": "tcp"},
            can_repeat=False,
            is_upgrade=True,
            timeout=request_timeout,
        )
        stream, first = (await self._client.open(call)).detach()
        return AsyncPortConnection(stream, first)


def _output_path(sandbox_id: str, process: str) -> str:
    return path("/v1/sandboxes/{}/processes/{}/output", sandbox_id, process)
