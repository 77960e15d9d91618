"""Calls about packs, which are snapshots that travel, and the keys that sign them."""

from __future__ import annotations

from typing import AsyncGenerator, List, Optional

from .. import types
from .._call import Call
from .._wire import fields, path
from .client import ProgressListener
from .daemon_calls import DaemonCalls
from .upload import Content

#: A large memory is compressed before the first byte comes, and written before the answer does
_LONG_SECS = 3600.0


class PackCalls(DaemonCalls):
    async def prepare_pack(
        self,
        tag: str,
        *,
        level: Optional[int] = None,
        sign: Optional[str] = None,
        without: Optional[List[str]] = None,
        on_progress: Optional[ProgressListener] = None,
        request_timeout: Optional[float] = None,
    ) -> types.PackInfo:
        """Compresses a snapshot, so that ``read_pack`` can begin at once, and says what is in its pack. Scope admin.

        Args:
            level: Of zstd, 1 (fast) to 19 (small); without it, 3.
            sign: Name of one of the daemon's own keys.
            without: Tags or ids of snapshots that the receiver has: their data is left out.
            on_progress: Called for every step.
        """
        call = Call[types.PackInfo](
            "POST",
            path("/v1/snapshots/{}/pack", tag),
            json=fields(level=level, sign=sign, without=without),
            headers={"accept": "application/x-ndjson, application/json;q=0.9"},
            can_repeat=True,
            timeout=_LONG_SECS if request_timeout is None else request_timeout,
        )
        return await self._client.progress(call, on_progress)

    def read_pack(
        self,
        tag: str,
        *,
        level: Optional[int] = None,
        sign: Optional[str] = None,
        without: Optional[List[str]] = None,
        request_timeout: Optional[float] = None,
    ) -> AsyncGenerator[bytes, None]:
        """A snapshot with everything it needs, as one file that comes bit by bit. Scope admin.

        Args:
            level: Of zstd, 1 (fast) to 19 (small); without it, 3.
            sign: Name of one of the daemon's own keys.
            without: Tags or ids of snapshots that the receiver has: their data is left out.
        """
        query = {"level": level, "sign": sign, "without": None if without is None else ",".join(without)}
        timeout = _LONG_SECS if request_timeout is None else request_timeout
        return self._client.stream(Call[bytes]("GET", path("/v1/snapshots/{}/pack", tag), query=query, timeout=timeout))

    async def unpack(
        self, pack: Content, *, tag: Optional[str] = None, force: Optional[bool] = None, request_timeout: Optional[float] = None
    ) -> types.Unpacked:
        """Takes a pack in: it is checked as a whole, and appears at once or not at all. Scope admin.

        Args:
            tag: Without it, the name in the pack.
            force: Take the tag away from the snapshot that has it.

        Raises:
            ConflictError: the tag is taken, or the pack does not fit this machine
        """
        call = Call[types.Unpacked](
            "POST",
            "/v1/packs",
            query={"tag": tag, "force": force},
            content=pack,
            timeout=_LONG_SECS if request_timeout is None else request_timeout,
        )
        return await self._client.json(call)

    async def list_keys(self, *, request_timeout: Optional[float] = None) -> List[types.KeyInfo]:
        """Keys that sign packs, and those of others that are known."""
        return await self._client.json(Call[List[types.KeyInfo]]("GET", "/v1/keys", timeout=request_timeout))

    async def create_key(
        self,
        name: str,
        *,
        public_key: Optional[str] = None,
        idempotency_key: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> types.KeyInfo:
        """Makes a key of the daemon's own, or makes somebody's public key known. Scope admin.

        Args:
            public_key: Somebody's public key, which is known from then on; without it, a key of the daemon's own is made.
        """
        body = fields(name=name, public_key=public_key)
        call = Call[types.KeyInfo]("POST", "/v1/keys", json=body, idempotency_key=idempotency_key, timeout=request_timeout)
        return await self._client.json(call)

    async def get_key(self, name: str, *, request_timeout: Optional[float] = None) -> types.KeyInfo:
        """One key, by name or the beginning of its id; never its private half."""
        return await self._client.json(Call[types.KeyInfo]("GET", path("/v1/keys/{}", name), timeout=request_timeout))

    async def delete_key(self, name: str, *, request_timeout: Optional[float] = None) -> None:
        """Removes a key. Scope admin."""
        await self._client.empty(Call[None]("DELETE", path("/v1/keys/{}", name), timeout=request_timeout))
