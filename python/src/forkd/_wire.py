"""Encodes arguments for the wire."""

from __future__ import annotations

import enum
import json
import secrets
from typing import Any, Dict, Generic, List, Mapping, Optional, TypeVar, Union
from urllib.parse import quote, urlencode

from .errors import ForkdError, InvalidRequestError

T = TypeVar("T")


class Unset(enum.Enum):
    """Type of :data:`UNSET`."""

    UNSET = "UNSET"

    def __repr__(self) -> str:
        return "UNSET"


#: Marks an argument that was not given, where None has a meaning
UNSET = Unset.UNSET

#: Idempotency key: generated when not given; None sends none
Key = Union[str, Unset, None]


class Page(List[T], Generic[T]):
    """A list with the cursor of the next page; None on the last page."""

    next_cursor: Optional[str] = None


def path(template: str, *values: str) -> str:
    """A path from single segments; their values are escaped, so that they cannot reach another route."""
    for value in values:
        if not isinstance(value, str) or value in ("", ".", ".."):
            raise InvalidRequestError(
                f"{json.dumps(value, default=repr)} is not a name.",
                "BAD_NAME",
                hint="Use 1 to 64 letters, digits, '.', '_' or '-', starting with a letter, a digit or '_'.",
            )
    return template.format(*(quote(value, safe="") for value in values))


def query_string(values: Mapping[str, Any]) -> str:
    """``?a=1&b=x&b=y``; None and False are omitted."""
    pairs = []
    for name, value in values.items():
        if value is None or value is False:
            continue
        for item in value if isinstance(value, (list, tuple)) else [value]:
            pairs.append((name, "true" if item is True else str(item)))
    return f"?{urlencode(pairs)}" if pairs else ""


def fields(**values: Any) -> Dict[str, Any]:
    """Body fields that were given; None counts as not given. For fields that may be null see :func:`nullable`."""
    return {name: value for name, value in values.items() if value is not None}


def nullable(**values: Any) -> Dict[str, Any]:
    """Body fields that were given; None is sent as null."""
    return {name: value for name, value in values.items() if value is not UNSET}


def pairs_of(metadata: Optional[Mapping[str, str]]) -> Optional[List[str]]:
    """Filters in the form ``key=value``."""
    return None if metadata is None else [f"{key}={value}" for key, value in metadata.items()]


def joined(values: Union[str, List[Any], None]) -> Optional[str]:
    """One value, or several joined with commas."""
    return values if values is None or isinstance(values, str) else ",".join(values)


def octal(mode: Union[str, int, None]) -> Optional[str]:
    """A mode as text, such as "644"; also accepts a number, such as 0o644."""
    return f"{mode:03o}" if isinstance(mode, int) else mode


def text(value: Union[str, int, None]) -> Optional[str]:
    """A name or a number, as text."""
    return None if value is None else str(value)


def key_of(key: Key) -> Optional[str]:
    """Gives a creation an idempotency key, which makes it safe to repeat; UNSET generates one, None sends none."""
    return secrets.token_hex(16) if isinstance(key, Unset) else key


def dump_json(value: object) -> bytes:
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequestError(
            f"The arguments cannot be JSON: {error}.", "BAD_REQUEST", hint="Use text, numbers, booleans, None, lists and dictionaries."
        ) from error


def parse_json(text: str) -> Any:
    """JSON from the daemon; other content means that the server is not a daemon."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise bad_answer(f"The answer is not JSON: {json.dumps(text[:100])}.") from error


def bad_answer(message: str) -> ForkdError:
    return ForkdError(message, "BAD_ANSWER", hint="Check that the address is a forkd daemon's.")


class SourceFailed(Exception):
    """The caller's source of bytes raised; its error is the cause. Never leaves this package."""
