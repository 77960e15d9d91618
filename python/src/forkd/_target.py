"""Address of the daemon: argument, then environment, then the daemon's default socket."""

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
    """Address of requests, as the transport needs it."""

    #: Address shown to users and in errors
    url: str
    #: Value of the Host header
    host_header: str
    #: Path of a Unix socket; None: TCP
    socket: Optional[str] = None
    #: The socket has the default path: its folder must belong to this user, or another user may listen there
    uid: Optional[int] = None
    host: str = ""
    port: int = 0
    is_tls: bool = False
    #: Prefix of paths
    prefix: str = ""


def resolve_target(url: Optional[str], socket: Optional[str], env: Mapping[str, str] = os.environ) -> Target:
    """``unix:///path`` and ``unix:/path`` name a socket; other addresses are http or https."""
    if url:
        return _parse_url(url)
    if socket:
        return _unix(socket)
    if env.get("FORKD_URL"):
        return _parse_url(env["FORKD_URL"])
    # No fallback to the TCP port: on a shared machine another user's daemon may listen there.
    if env.get("FORKD_SOCKET"):
        return _unix(env["FORKD_SOCKET"])
    uid = _uid()
    return _unix(_default_socket(env, uid), uid)


def resolve_store(target: Target, env: Mapping[str, str] = os.environ) -> Optional[str]:
    """Id of the store that FORKD_HOME names, sent to the default socket: a daemon of another store must refuse the request."""
    home = env.get("FORKD_HOME")
    if not home or target.socket is None or os.path.abspath(target.socket) != _default_socket(env, _uid()):
        return None
    return _store_id(os.path.realpath(home))


def resolve_token(token: Optional[str], env: Mapping[str, str] = os.environ) -> Optional[str]:
    """The token to send. One that is not a valid header value is refused before anything is sent."""
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


def resolve_project(project: Optional[str], env: Mapping[str, str] = os.environ) -> Optional[str]:
    """The project to name; None: that of the token."""
    given = (env.get("FORKD_PROJECT", "") if project is None else project).strip()
    if given == "":
        return None
    if not re.fullmatch(r"\*|[A-Za-z0-9_.-]{1,64}", given):
        raise InvalidRequestError(
            f"{json.dumps(given)} is not the name of a project.",
            "BAD_NAME",
            hint="Check FORKD_PROJECT, or the argument project.",
        )
    return given


def refuse_foreign_folder(target: Target) -> None:
    """Only this user may have write access to the default folder."""
    if target.socket is None or target.uid is None:
        return
    folder = os.path.dirname(target.socket)
    info = os.lstat(folder)
    if stat.S_ISDIR(info.st_mode) and info.st_uid == target.uid and info.st_mode & 0o022 == 0:
        return
    raise OSError(f"{folder} is not a folder that only you can write to, so another user may listen there")


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


def _default_socket(env: Mapping[str, str], uid: int) -> str:
    """As in the daemon: a store other than the default one has a run folder named after it."""
    if env.get("FORKD_RUN"):
        return f"{os.path.abspath(env['FORKD_RUN'])}/forkd.sock"
    if env.get("XDG_RUNTIME_DIR"):
        base = os.path.abspath(f"{env['XDG_RUNTIME_DIR']}/forkd")
    else:
        temporary = env.get("TMPDIR") or env.get("TMP") or env.get("TEMP") or "/tmp"
        base = os.path.abspath(f"{temporary}/forkd-{uid}")
    if not env.get("FORKD_HOME"):
        return f"{base}/forkd.sock"
    data = env.get("XDG_DATA_HOME") or f"{env.get('HOME', '')}/.local/share"
    usual = os.path.realpath("/var/lib/forkd" if uid == 0 else f"{data}/forkd")
    home = os.path.realpath(env["FORKD_HOME"])
    return f"{base}/forkd.sock" if home == usual else f"{base}-{_store_id(home)}/forkd.sock"


def _store_id(path: str) -> str:
    """FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in os.fsencode(path):
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def _uid() -> int:
    return 0 if sys.platform == "win32" else os.getuid()
