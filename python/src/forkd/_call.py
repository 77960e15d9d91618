"""One call of the API, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Generic, Mapping, Optional, Tuple, TypeVar

from .errors import ErrorContext

#: What the answer is
A = TypeVar("A")


@dataclass(frozen=True)
class Call(Generic[A]):
    method: str
    #: without the query
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    json: Optional[Dict[str, Any]] = None
    #: what is uploaded
    content: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    idempotency_key: Optional[str] = None
    #: None: GET, DELETE, and what has an idempotency key
    can_repeat: Optional[bool] = None
    #: statuses beyond 2xx that are answers, not errors
    answers: Tuple[int, ...] = ()
    #: a server in a guest answers, with any status, unless the daemon says that it is its own answer
    is_proxied: bool = False
    #: 101 is the answer, and another protocol follows
    is_upgrade: bool = False
    #: seconds; None: the client's own, 0: for ever
    timeout: Optional[float] = None

    @property
    def is_safe(self) -> bool:
        if self.can_repeat is not None:
            return self.can_repeat
        return self.method in ("GET", "DELETE") or self.idempotency_key is not None


@dataclass(frozen=True)
class Origin:
    """Names a request in errors."""

    method: str
    base: str
    target: str

    @property
    def context(self) -> ErrorContext:
        return {"method": self.method, "url": self.base + self.target}
