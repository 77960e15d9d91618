"""One call of the API, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Generic, Mapping, Optional, Tuple, TypeVar

from .errors import ErrorContext

#: Type of the answer
A = TypeVar("A")


#: Headers of long work, whose progress arrives line by line
LINES = {"accept": "application/x-ndjson, application/json;q=0.9"}


@dataclass(frozen=True)
class Call(Generic[A]):
    method: str
    #: without the query
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    json: Optional[Dict[str, Any]] = None
    #: request body
    content: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    idempotency_key: Optional[str] = None
    #: None: true for GET, DELETE and calls with an idempotency key
    can_repeat: Optional[bool] = None
    #: statuses beyond 2xx that are answers, not errors
    answers: Tuple[int, ...] = ()
    #: the answer is that of a server in a guest, with any status, unless a header marks it as the daemon's
    is_proxied: bool = False
    #: expects status 101 and a switch of protocols
    is_upgrade: bool = False
    #: seconds; None: the client's default, 0: no limit
    timeout: Optional[float] = None

    @property
    def is_safe(self) -> bool:
        if self.can_repeat is not None:
            return self.can_repeat
        return self.method in ("GET", "DELETE") or self.idempotency_key is not None


@dataclass(frozen=True)
class Origin:
    """Request line for error messages."""

    method: str
    base: str
    target: str

    @property
    def context(self) -> ErrorContext:
        return {"method": self.method, "url": self.base + self.target}
