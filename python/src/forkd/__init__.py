"""fork() for virtual machines: everything this package exports."""

from ._async.commands import AsyncCommands
from ._async.controller import AsyncController
from ._async.files import AsyncFiles
from ._async.sandbox import AsyncSandbox
from ._sync.commands import Commands
from ._sync.controller import Controller
from ._sync.files import Files
from ._sync.sandbox import Sandbox
from ._version import __version__
from ._wire import UNSET, Page
from .errors import (
    AuthenticationError,
    CommandExitError,
    ConflictError,
    ConnectionError,
    EvalError,
    ForkdError,
    InvalidRequestError,
    LimitError,
    NotFoundError,
    SandboxGoneError,
    TimeoutError,
)
from .results import CommandResult, Evaluation

#: The name the older SDK used
ControllerError = ForkdError

__all__ = [
    "UNSET",
    "AsyncCommands",
    "AsyncController",
    "AsyncFiles",
    "AsyncSandbox",
    "AuthenticationError",
    "CommandExitError",
    "CommandResult",
    "Commands",
    "ConflictError",
    "ConnectionError",
    "Controller",
    "ControllerError",
    "EvalError",
    "Evaluation",
    "Files",
    "ForkdError",
    "InvalidRequestError",
    "LimitError",
    "NotFoundError",
    "Page",
    "Sandbox",
    "SandboxGoneError",
    "TimeoutError",
    "__version__",
]
