"""Calls about what sandboxes are made from: images and snapshots."""

from __future__ import annotations

from typing import Dict, List, Optional

from .. import types
from .._call import Call
from .._wire import UNSET, Key, Page, fields, key_of, pairs_of, path
from .client import ProgressListener
from .pack_calls import PackCalls

#: A boot with a long warm-up, or a large download
_LONG_SECS = 3600.0


class SnapshotCalls(PackCalls):
    async def list_images(self, *, request_timeout: Optional[float] = None) -> List[types.ImageInfo]:
        """Images, the root file systems that snapshots boot from."""
        return await self._client.json(Call[List[types.ImageInfo]]("GET", "/v1/images", timeout=request_timeout))

    async def get_image(self, name: str, *, request_timeout: Optional[float] = None) -> types.ImageInfo:
        """One image, by name or id."""
        return await self._client.json(Call[types.ImageInfo]("GET", path("/v1/images/{}", name), timeout=request_timeout))

    async def create_image(
        self,
        name: Optional[str] = None,
        *,
        packages: Optional[List[str]] = None,
        copy: Optional[List[types.CreateImagePackagesCopy]] = None,
        run: Optional[List[str]] = None,
        suite: Optional[str] = None,
        mirror: Optional[str] = None,
        force: Optional[bool] = None,
        reference: Optional[str] = None,
        insecure_http: Optional[bool] = None,
        username: Optional[str] = None,
        password: Optional[str] = None,
        file: Optional[str] = None,
        max_bytes: Optional[int] = None,
        on_progress: Optional[ProgressListener] = None,
        idempotency_key: Key = UNSET,
        request_timeout: Optional[float] = None,
    ) -> types.CreatedImageInfo:
        """Builds an image from Debian packages, pulls one from a registry, or imports a file of the daemon's machine. Scope admin.
        May take an hour unless ``request_timeout`` says otherwise.

        Args:
            name: Its name; an image of a registry is otherwise named after its reference.
            packages: Debian packages; none: a minimal Debian.
            copy: Files and folders of the daemon's machine, ``{"from": …, "to": …}``, copied before the commands run; only through
                the Unix socket.
            run: Shell commands inside the new root, in order.
            suite: Release of the distribution; without it, the one of the daemon's machine.
            mirror: Where packages come from; without it, the apt sources of the daemon's machine.
            force: Build even when an image made from the same inputs is there.
            reference: An image of an OCI registry.
            insecure_http: Plain http to a registry that is not the daemon's machine.
            username, password: For the registry.
            file: Absolute path of an archive, or of a folder that is an OCI layout; only through the Unix socket.
            max_bytes: Limit of the unpacked size.
            on_progress: Called for every step.
        """
        body = fields(
            name=name,
            packages=packages,
            copy=copy,
            run=run,
            suite=suite,
            mirror=mirror,
            force=force,
            reference=reference,
            insecure_http=insecure_http,
            username=username,
            password=password,
            file=file,
            max_bytes=max_bytes,
        )
        call = Call[types.CreatedImageInfo](
            "POST", "/v1/images", json=body, headers=_LINES, idempotency_key=key_of(idempotency_key), timeout=_long(request_timeout)
        )
        return await self._client.progress(call, on_progress)

    async def delete_image(self, name: str, *, request_timeout: Optional[float] = None) -> None:
        """Removes a name of an image, and the data with the last one. Scope admin."""
        await self._client.empty(Call[None]("DELETE", path("/v1/images/{}", name), timeout=request_timeout))

    async def list_snapshots(
        self,
        *,
        status: Optional[types.SnapshotStatus] = None,
        metadata: Optional[Dict[str, str]] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> Page[types.SnapshotInfo]:
        """Snapshots; pages only when ``limit`` is given.

        Args:
            status: Only those.
            metadata: Only those that have all of these.
            limit: Entries per page; without it, all.
            cursor: ``next_cursor`` of the page before.
        """
        query = {"status": status, "metadata": pairs_of(metadata), "limit": limit, "cursor": cursor}
        return await self._client.page(Call[types.SnapshotInfo]("GET", "/v1/snapshots", query=query, timeout=request_timeout))

    async def create_snapshot(
        self,
        tag: str,
        *,
        image: Optional[str] = None,
        memory_mib: Optional[int] = None,
        vcpus: Optional[int] = None,
        disk_mib: Optional[int] = None,
        warm_up: Optional[types.WarmUp] = None,
        env: Optional[Dict[str, str]] = None,
        metadata: Optional[Dict[str, str]] = None,
        network: Optional[types.SetNetwork] = None,
        kernel: Optional[str] = None,
        rootfs: Optional[str] = None,
        rw: Optional[bool] = None,
        tap: Optional[str] = None,
        boot_wait_secs: Optional[float] = None,
        on_progress: Optional[ProgressListener] = None,
        idempotency_key: Key = UNSET,
        request_timeout: Optional[float] = None,
    ) -> types.SnapshotInfo:
        """Boots an image, warms it and freezes it. Scope admin. May take an hour unless ``request_timeout`` says otherwise.

        Args:
            image: A stored image; without it, the daemon's default image.
            disk_mib: Room for what guests write, on the host's disk; without it, that is in their memory.
            warm_up: Programs to run (``exec``) and interpreters to keep warm (``kernels``); without it, a python kernel where the
                image has python3.
            env: Environment of every process.
            network: What it may connect to during the warm-up, and its forks unless they say otherwise; without it, nothing.
            kernel, rootfs, rw, tap, boot_wait_secs: Of the older API, without effect.
            on_progress: Called for every step.

        Raises:
            ConflictError: the tag is taken
        """
        body = fields(
            tag=tag,
            image=image,
            memory_mib=memory_mib,
            vcpus=vcpus,
            disk_mib=disk_mib,
            warm_up=warm_up,
            env=env,
            metadata=metadata,
            network=network,
            kernel=kernel,
            rootfs=rootfs,
            rw=rw,
            tap=tap,
            boot_wait_secs=boot_wait_secs,
        )
        call = Call[types.SnapshotInfo](
            "POST", "/v1/snapshots", json=body, headers=_LINES, idempotency_key=key_of(idempotency_key), timeout=_long(request_timeout)
        )
        return await self._client.progress(call, on_progress)

    async def get_snapshot(self, tag: str, *, request_timeout: Optional[float] = None) -> types.SnapshotInfo:
        """One snapshot."""
        return await self._client.json(Call[types.SnapshotInfo]("GET", path("/v1/snapshots/{}", tag), timeout=request_timeout))

    async def snapshot_info(self, tag: str, *, request_timeout: Optional[float] = None) -> types.SnapshotDetails:
        """Sizes and lineage of a snapshot."""
        return await self._client.json(Call[types.SnapshotDetails]("GET", path("/v1/snapshots/{}/info", tag), timeout=request_timeout))

    async def update_snapshot(
        self,
        snapshot_tag: str,
        *,
        tag: Optional[str] = None,
        metadata: Optional[Dict[str, str]] = None,
        pool: Optional[int] = None,
        request_timeout: Optional[float] = None,
    ) -> types.SnapshotInfo:
        """Renames a snapshot (``tag``), replaces its metadata, sets how many VMMs wait for it (``pool``). Scope admin."""
        body = fields(tag=tag, metadata=metadata, pool=pool)
        return await self._client.json(
            Call[types.SnapshotInfo]("PATCH", path("/v1/snapshots/{}", snapshot_tag), json=body, timeout=request_timeout)
        )

    async def delete_snapshot(
        self, tag: str, *, cascade: Optional[bool] = None, force: Optional[bool] = None, request_timeout: Optional[float] = None
    ) -> None:
        """Removes a snapshot. Scope admin.

        Args:
            cascade: Also removes the snapshots that build on it.
            force: Takes the tag away; what is still needed of it stays until nothing needs it.

        Raises:
            ConflictError: something needs it, with what in ``details``
        """
        query = {"cascade": cascade, "force": force}
        await self._client.empty(Call[None]("DELETE", path("/v1/snapshots/{}", tag), query=query, timeout=request_timeout))

    async def compact_snapshot(
        self, tag: str, to: str, *, idempotency_key: Key = UNSET, request_timeout: Optional[float] = None
    ) -> types.SnapshotInfo:
        """A copy of a snapshot, under the tag ``to``, that builds on no other. Scope admin."""
        call = Call[types.SnapshotInfo](
            "POST",
            path("/v1/snapshots/{}/compact", tag),
            json={"to": to},
            idempotency_key=key_of(idempotency_key),
            timeout=_long(request_timeout),
        )
        return await self._client.json(call)


_LINES = {"accept": "application/x-ndjson, application/json;q=0.9"}


def _long(request_timeout: Optional[float]) -> float:
    return _LONG_SECS if request_timeout is None else request_timeout
