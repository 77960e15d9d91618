"""Where the daemon is: argument, then environment, then the daemon's default socket."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from dataclasses import dataclass
from typing import Mapping, Optional
from urllib.parse import urlsplit

from .errors import InvalidRequestError


@dataclass(frozen=True)
class Target:
    """Where requests go, as the transport needs it."""

    #: How it is shown, and how its requests are named in errors
    url: str
    #: Value of the Host header
    host_header: str
    #: Path of a Unix socket; None: TCP
    socket: Optional[str] = None
    #: Nobody chose the socket's path: its folder must belong to this user, or somebody else may listen there
    uid: Optional[int] = None
    host: str = ""
    port: int = 0
    is_tls: bool = False
    #: What paths are appended to
    prefix: str = ""


def resolve_target(url: Optional[str], socket: Optional[str], env: Mapping[str, str] = os.environ) -> Target:
    """``unix:///path`` and ``unix:/path`` name a socket, everything else is http or https."""
    if url:
        return _parse_url(url)
    if socket:
        return _unix(socket)
    if env.get("FORKD_URL"):
        return _parse_url(env["FORKD_URL"])
    # Never the port as a second try: on a shared machine it may be somebody else's daemon.
    if env.get("FORKD_SOCKET"):
        return _unix(env["FORKD_SOCKET"])
    uid = _uid()
    return _unix(f"{_run_folder(env, uid)}/forkd.sock", uid)


def resolve_token(token: Optional[str], env: Mapping[str, str] = os.environ) -> Optional[str]:
    """The token to send; one that cannot be a header is refused before anything is sent."""
    given = (env.get("FORKD_TOKEN", "") if token is None else token).strip()
    if given == "":
        return None
    if not re.fullmatch(r"[\x21-\x7e]+", given):
        raise InvalidRequestError(
            "The token is not valid: it has characters that no token has.",
            "BAD_REQUEST",
            hint="Check FORKD_TOKEN, or the argument token.",
        )
    return given


def refuse_foreign_folder(target: Target) -> None:
    """The default folder must be one that only this user can write to."""
    if target.socket is None or target.uid is None:
        return
    folder = os.path.dirname(target.socket)
    info = os.lstat(folder)
    if stat.S_ISDIR(info.st_mode) and info.st_uid == target.uid and info.st_mode & 0o022 == 0:
        return
    raise OSError(f"{folder} is not a folder that only you can write to, so somebody else may listen there")


def _unix(path: str, uid: Optional[int] = None) -> Target:
    return Target(url=f"unix://{path}", host_header="forkd", socket=path, uid=uid)


def _parse_url(text: str) -> Target:
    unix = re.fullmatch(r"unix:(?://)?(/.+)", text, re.DOTALL)
    if unix:
        return _unix(unix.group(1))
    try:
        parts = urlsplit(text)
        port = parts.port
        (parts.hostname or "").encode("idna")
    except ValueError:
        raise _no_address(text) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None or re.search(r"[\s\x00-\x1f]", text):
        raise _no_address(text)
    is_tls = parts.scheme == "https"
    return Target(
        url=text.rstrip("/"),
        host_header=parts.netloc,
        host=parts.hostname,
        port=port if port is not None else (443 if is_tls else 80),
        is_tls=is_tls,
        prefix=parts.path.rstrip("/"),
    )


def _no_address(text: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{json.dumps(text)} is not an address of a daemon.",
        "BAD_REQUEST",
        hint="Use http://HOST:PORT, https://HOST:PORT or unix:///PATH.",
    )


def _run_folder(env: Mapping[str, str], uid: int) -> str:
    """The same folder as the daemon's own."""
    if env.get("FORKD_RUN"):
        return env["FORKD_RUN"]
    if env.get("XDG_RUNTIME_DIR"):
        return f"{env['XDG_RUNTIME_DIR']}/forkd"
    temporary = env.get("TMPDIR") or env.get("TMP") or env.get("TEMP") or "/tmp"
    if len(temporary) > 1 and temporary.endswith("/"):
        temporary = temporary[:-1]
    return f"{temporary}/forkd-{uid}"


def _uid() -> int:
    return 0 if sys.platform == "win32" else os.getuid()
