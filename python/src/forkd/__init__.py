"""fork() for virtual machines: everything this package exports."""

from ._async.command_handle import AsyncCommandHandle
from ._async.commands import AsyncCommands
from ._async.contexts import AsyncContexts
from ._async.controller import AsyncController
from ._async.file_watch import AsyncWatchHandle
from ._async.files import AsyncFiles
from ._async.port_connection import AsyncPortConnection
from ._async.port_response import AsyncPortResponse
from ._async.ports import AsyncPorts
from ._async.process_events import AsyncProcessEvents
from ._async.pty import AsyncPty
from ._async.sandbox import AsyncSandbox
from ._sync.command_handle import CommandHandle
from ._sync.commands import Commands
from ._sync.contexts import Contexts
from ._sync.controller import Controller
from ._sync.file_watch import WatchHandle
from ._sync.files import Files
from ._sync.port_connection import PortConnection
from ._sync.port_response import PortResponse
from ._sync.ports import Ports
from ._sync.process_events import ProcessEvents
from ._sync.pty import Pty
from ._sync.sandbox import Sandbox
from ._version import __version__
from ._wire import UNSET, Page
from .errors import (
    AuthenticationError,
    CommandExitError,
    ConflictError,
    ConnectionError,
    EvalError,
    FileError,
    ForkdError,
    InvalidRequestError,
    LimitError,
    NotFoundError,
    SandboxGoneError,
    TimeoutError,
)
from .results import CommandResult, EntryInfo, Evaluation, FileChange, ProcessEvent, ProcessInfo, PtySize

#: Name of the class in the older SDK
ControllerError = ForkdError

# Aliases with the names of E2B's SDK
AuthenticationException = AuthenticationError
CommandExitException = CommandExitError
InvalidArgumentException = InvalidRequestError
NotFoundException = NotFoundError
RateLimitException = LimitError
SandboxException = ForkdError
TimeoutException = TimeoutError

__all__ = [
    "UNSET",
    "AsyncCommandHandle",
    "AsyncCommands",
    "AsyncContexts",
    "AsyncController",
    "AsyncFiles",
    "AsyncPortConnection",
    "AsyncPortResponse",
    "AsyncPorts",
    "AsyncProcessEvents",
    "AsyncPty",
    "AsyncSandbox",
    "AsyncWatchHandle",
    "AuthenticationError",
    "AuthenticationException",
    "CommandExitError",
    "CommandExitException",
    "CommandHandle",
    "CommandResult",
    "Commands",
    "ConflictError",
    "ConnectionError",
    "Contexts",
    "Controller",
    "ControllerError",
    "EntryInfo",
    "EvalError",
    "Evaluation",
    "FileChange",
    "FileError",
    "Files",
    "ForkdError",
    "InvalidArgumentException",
    "InvalidRequestError",
    "LimitError",
    "NotFoundError",
    "NotFoundException",
    "Page",
    "PortConnection",
    "PortResponse",
    "Ports",
    "ProcessEvent",
    "ProcessEvents",
    "ProcessInfo",
    "Pty",
    "PtySize",
    "RateLimitException",
    "Sandbox",
    "SandboxException",
    "SandboxGoneError",
    "TimeoutError",
    "TimeoutException",
    "WatchHandle",
    "__version__",
]
