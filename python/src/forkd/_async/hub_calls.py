"""Calls about snapshots that go to other machines and come from them."""

from __future__ import annotations

from typing import Optional

from .. import types
from .._call import Call
from .._wire import UNSET, Key, fields, key_of, path
from .client import ProgressListener
from .snapshot_calls import SnapshotCalls

#: Gigabytes over a slow line
_LONG_SECS = 6 * 3600.0


class HubCalls(SnapshotCalls):
    async def push_snapshot(
        self,
        tag: str,
        to: str,
        *,
        level: Optional[int] = None,
        sign: Optional[str] = None,
        username: Optional[str] = None,
        password: Optional[str] = None,
        insecure_http: Optional[bool] = None,
        on_progress: Optional[ProgressListener] = None,
        idempotency_key: Key = UNSET,
        request_timeout: Optional[float] = None,
    ) -> types.PushedSnapshot:
        """Sends a snapshot, with all it builds on, to an OCI registry (``oci://HOST/NAME[:TAG]``) or to an address that takes PUT.
        What the other side has is not sent again, and a push that broke off goes on. Scope admin. May take six hours unless
        ``request_timeout`` says otherwise.

        Args:
            level: Of zstd: 1 is fast, 19 is small; without it, 3.
            sign: Name of one of the daemon's own keys.
            username, password: For the registry or the web server.
            insecure_http: Plain http to a server that is not the daemon's machine.
            on_progress: Called for every step.
        """
        body = fields(to=to, level=level, sign=sign, username=username, password=password, insecure_http=insecure_http)
        call = Call[types.PushedSnapshot](
            "POST",
            path("/v1/snapshots/{}/push", tag),
            json=body,
            headers=_LINES,
            idempotency_key=key_of(idempotency_key),
            timeout=_long(request_timeout),
        )
        return await self._client.progress(call, on_progress)

    async def pull_snapshot(
        self,
        source: str,
        *,
        tag: Optional[str] = None,
        force: Optional[bool] = None,
        hub: Optional[str] = None,
        username: Optional[str] = None,
        password: Optional[str] = None,
        login_host: Optional[str] = None,
        insecure_http: Optional[bool] = None,
        on_progress: Optional[ProgressListener] = None,
        idempotency_key: Key = UNSET,
        request_timeout: Optional[float] = None,
    ) -> types.Unpacked:
        """Gets a snapshot, with all it builds on, from an OCI registry, a web server, or a hub (``owner/name[@version]``). It is
        checked before anything of it is used; what is here is not fetched again, and a pull that broke off goes on. Scope admin.

        Args:
            tag: Without it, what the snapshot was called where it was made.
            force: Takes the tag away from the snapshot that has it.
            hub: Address of the index in which aliases are looked up; without it, the daemon's setting ``hub_url``.
            username, password: For the registry or the web server.
            login_host: ``HOST[:PORT]`` that the login is for; needed with a name of a hub, as the index says which server has it.
            insecure_http: Plain http to a server that is not the daemon's machine.
            on_progress: Called for every step.

        Raises:
            ConflictError: the tag is taken
        """
        body = {
            "from": source,
            **fields(
                tag=tag,
                force=force,
                hub=hub,
                username=username,
                password=password,
                login_host=login_host,
                insecure_http=insecure_http,
            ),
        }
        call = Call[types.Unpacked](
            "POST",
            "/v1/snapshots/pull",
            json=body,
            headers=_LINES,
            idempotency_key=key_of(idempotency_key),
            timeout=_long(request_timeout),
        )
        return await self._client.progress(call, on_progress)

    async def list_hub(
        self, *, hub: Optional[str] = None, insecure_http: Optional[bool] = None, request_timeout: Optional[float] = None
    ) -> types.HubListing:
        """What the index of a hub has; without ``hub``, of the one that the daemon is set to. Scope admin."""
        query = {"hub": hub, "insecure_http": insecure_http}
        return await self._client.json(Call[types.HubListing]("GET", "/v1/hub", query=query, timeout=request_timeout))


_LINES = {"accept": "application/x-ndjson, application/json;q=0.9"}


def _long(request_timeout: Optional[float]) -> float:
    return _LONG_SECS if request_timeout is None else request_timeout
