"""The path of a request to a server in a guest."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional
from urllib.parse import quote

from .errors import InvalidRequestError

#: Hop-by-hop headers
_OWN_HEADERS = {"host", "connection", "content-length", "transfer-encoding", "upgrade", "x-forkd-token"}
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def port_target(target: str) -> str:
    """Path and query, resolved here, so that ``..`` cannot reach another route."""
    raw, has_query, query = target.partition("#")[0].partition("?")
    segments: List[str] = []
    parts = raw.lstrip("/").split("/") if raw.strip("/") else [""]
    for i, part in enumerate(parts):
        plain = re.sub("%2e", ".", part, flags=re.IGNORECASE)
        if plain == "..":
            del segments[-1:]
        if plain not in (".", ".."):
            segments.append(quote(part, safe="%!$&'()*+,;=:@~-._"))
        elif i == len(parts) - 1:
            segments.append("")
    return "/" + "/".join(segments) + (f"?{quote(query, safe='%!$&()*+,;=:@~-._/?')}" if has_query else "")


def port_headers(headers: Optional[Mapping[str, str]]) -> Dict[str, str]:
    """Headers for the server, without hop-by-hop headers."""
    given = {name.lower(): value for name, value in (headers or {}).items()}
    for name in given:
        if name in _OWN_HEADERS or not _TOKEN.fullmatch(name):
            raise InvalidRequestError(f"The header {name!r} cannot be set.", "BAD_REQUEST", hint="Leave it out.")
    return given
