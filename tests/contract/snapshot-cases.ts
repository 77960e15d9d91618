// Cases for snapshots: create, list, update, compact and remove, with and without dependents.

import { PYTHON_IMAGE } from "../helpers/vm.ts";
import { above, fails, gives, including, isText, REST_AND_SDK, type Case } from "./case.ts";

const MIB = 1024 * 1024;
const DESCRIPTION = "nothing warm: for the tests";
const PLUMBING = { kernel: "/boot/vmlinuz", rootfs: "/srv/rootfs.ext4", rw: true, tap: "tap0", boot_wait_secs: 10 };

export const snapshotCases: Case[] = [
  {
    what: "a snapshot is made; what the older API asked for has no effect, and is said to have none",
    route: "createSnapshot",
    args: (c) => ({
      body: {
        tag: c.name("bare"),
        image: PYTHON_IMAGE,
        memory_mib: 128,
        cpu: "baseline",
        disk_mib: 64,
        warm_up: { kernels: [] },
        metadata: { who: c.name("bare") },
        description: DESCRIPTION,
        ...(c.driver === "cli" ? {} : PLUMBING),
      },
    }),
    expect: (c) => {
      const machine = { image: PYTHON_IMAGE, memory_mib: 128, vcpus: 1, disk_mib: 64, kernels: [] };
      const fields = { tag: c.name("bare"), status: "ready", bootable: true, ...machine };
      const warnings = c.driver === "cli" ? [] : Object.keys(PLUMBING).map((field) => new RegExp(`^${field} has no effect`));
      const lineage = { depth: 0, parent_tag: null, branched_from: null, ephemeral: false, pool: 0, error: null };
      const labels = { metadata: { who: c.name("bare") }, description: DESCRIPTION };
      return gives({ ...fields, ...lineage, ...labels, warnings, dir: isText, created_at_unix: above(1e9) }, 201);
    },
    save: "bare",
  },
  {
    what: "a guest kernel and a root file system of the older API are refused where no image is named",
    route: "createSnapshot",
    args: (c) => ({ body: { tag: c.name("none"), ...PLUMBING } }),
    expect: fails("BAD_REQUEST", { message: () => /of kernel and rootfs/, details: { fields: ["kernel", "rootfs"] } }),
    not: REST_AND_SDK("`snapshot create` has no such options"),
  },
  {
    what: "a tag is given once",
    route: "createSnapshot",
    args: (c) => ({ body: { tag: c.name("bare"), image: PYTHON_IMAGE } }),
    expect: fails("EXISTS"),
  },
  {
    what: "a snapshot of an image that does not exist",
    route: "createSnapshot",
    args: (c) => ({ body: { tag: c.name("none"), image: "no-such-image" } }),
    expect: fails("NOT_FOUND", { message: () => /no-such-image/ }),
  },
  {
    what: "a disk that is too small",
    route: "createSnapshot",
    args: (c) => ({ body: { tag: c.name("none"), image: PYTHON_IMAGE, disk_mib: 1 } }),
    expect: fails("BAD_REQUEST", { message: () => /disk_mib/ }),
  },
  {
    what: "a CPU that QEMU does not have",
    route: "createSnapshot",
    args: (c) => ({ body: { tag: c.name("no-cpu"), image: PYTHON_IMAGE, cpu: "no-such-cpu" } }),
    expect: fails("CPU_UNAVAILABLE", { message: () => /no-such-cpu/ }),
  },
  {
    what: "huge pages on a host without them",
    route: "createSnapshot",
    args: (c) => ({ body: { tag: c.name("no-huge"), image: PYTHON_IMAGE, hugepages: true } }),
    expect: fails("HUGEPAGES_UNAVAILABLE", { message: () => /not on a tmpfs|without the option huge/ }),
  },
  {
    what: "a tag that is no name",
    route: "createSnapshot",
    args: () => ({ body: { tag: "../up" } }),
    expect: fails("BAD_NAME"),
  },
  {
    what: "a refused snapshot does not exist",
    route: "getSnapshot",
    args: (c) => ({ params: { tag: c.name("none") } }),
    expect: fails("NOT_FOUND"),
  },
  {
    what: "snapshots are found by their metadata",
    route: "listSnapshots",
    args: (c) => ({ query: { metadata: [`who=${c.name("bare")}`] } }),
    expect: (c) => gives([{ tag: c.name("bare"), id: c.at("bare.id") }]),
  },
  { what: "all snapshots", route: "listSnapshots", expect: (c) => gives(including({ tag: "python" }, { tag: c.name("bare") })) },
  {
    what: "one snapshot",
    route: "getSnapshot",
    args: (c) => ({ params: { tag: c.name("bare") } }),
    expect: (c) => gives({ id: c.at("bare.id"), status: "ready", memory_mib: 128, disk_mib: 64 }),
  },
  {
    what: "sizes and lineage of a base",
    route: "getSnapshotDetails",
    args: (c) => ({ params: { tag: c.name("bare") } }),
    expect: gives({
      memory_logical_bytes: 128 * MIB,
      memory_physical_bytes: above(MIB),
      vmstate_bytes: above(1e3),
      disk_mib: 64,
      disk_layers: 1,
      disk_physical_bytes: above(1e3),
      disk_own_bytes: above(1e3),
      parent_tag: null,
      chain_depth: 0,
      ancestors: [],
      dependents: [],
      sandboxes: [],
    }),
  },
  {
    what: "details of nothing",
    route: "getSnapshotDetails",
    args: () => ({ params: { tag: "nothing" } }),
    expect: fails("NOT_FOUND"),
  },
  {
    what: "metadata is replaced",
    route: "updateSnapshot",
    args: (c) => ({ params: { tag: c.name("bare") }, body: { metadata: { stage: "two" } } }),
    expect: gives({ metadata: (value: unknown) => JSON.stringify(value) === '{"stage":"two"}' }),
    not: REST_AND_SDK("metadata is given when it is made"),
  },
  {
    what: "a description is kept until it is replaced or removed",
    route: "updateSnapshot",
    args: (c) => ({ params: { tag: c.name("bare") }, body: { description: "another" } }),
    expect: gives({ description: "another", metadata: { stage: "two" } }),
    not: REST_AND_SDK("a description is given when it is made"),
  },
  {
    what: "a description is removed",
    route: "updateSnapshot",
    args: (c) => ({ params: { tag: c.name("bare") }, body: { description: null } }),
    expect: gives({ description: null }),
    not: REST_AND_SDK("a description is given when it is made"),
  },
  {
    what: "a description that is too long",
    route: "createSnapshot",
    args: (c) => ({ body: { tag: c.name("none"), image: PYTHON_IMAGE, description: "x".repeat(1025) } }),
    expect: fails("BAD_REQUEST", { message: () => /description/ }),
  },
  {
    what: "a snapshot is renamed",
    route: "updateSnapshot",
    args: (c) => ({ params: { tag: c.name("bare") }, body: { tag: c.name("renamed") } }),
    expect: (c) => gives({ tag: c.name("renamed"), id: c.at("bare.id") }),
  },
  {
    what: "the old tag names nothing",
    route: "getSnapshot",
    args: (c) => ({ params: { tag: c.name("bare") } }),
    expect: fails("NOT_FOUND"),
  },
  {
    what: "a snapshot cannot be renamed to an existing tag",
    route: "updateSnapshot",
    args: (c) => ({ params: { tag: c.name("renamed") }, body: { tag: "python" } }),
    expect: fails("EXISTS"),
  },
  {
    what: "a missing snapshot cannot be renamed",
    route: "updateSnapshot",
    args: (c) => ({ params: { tag: c.name("bare") }, body: { tag: c.name("other") } }),
    expect: fails("NOT_FOUND"),
  },
  {
    what: "VMMs wait for it",
    route: "updateSnapshot",
    args: (c) => ({ params: { tag: c.name("renamed") }, body: { pool: 1 } }),
    expect: gives({ pool: 1 }),
  },
  {
    what: "the pool is emptied",
    route: "updateSnapshot",
    args: (c) => ({ params: { tag: c.name("renamed") }, body: { pool: 0 } }),
    expect: gives({ pool: 0 }),
  },
  {
    what: "a fork of a snapshot without kernels",
    route: "createSandboxes",
    args: (c) => ({ body: { snapshot_tag: c.name("renamed") } }),
    expect: (c) =>
      gives([{ snapshot_tag: c.name("renamed"), kernels: [], memory_mib: 128, disk_mib: 64, certificate: { disk: "private-layer" } }]),
    save: "bareChild",
  },
  {
    what: "a sandbox without kernels runs no code",
    route: "evalCode",
    args: (c) => ({ params: { id: c.at("bareChild.0.id") }, body: { code: "1" } }),
    expect: fails("KERNEL_MISSING"),
  },
  {
    what: "a snapshot with a sandbox stays, and the sandbox is named",
    route: "deleteSnapshot",
    args: (c) => ({ params: { tag: c.name("renamed") } }),
    expect: (c) => {
      const user = `sandbox ${c.at("bareChild.0.id")}`;
      return fails("IN_USE", { message: () => new RegExp(user), details: { needed_by: [user] } });
    },
  },
  {
    what: "the sandbox is ended",
    route: "deleteSandbox",
    args: (c) => ({ params: { id: c.at("bareChild.0.id") } }),
    expect: gives(null),
  },
  {
    what: "the snapshot is removed",
    route: "deleteSnapshot",
    args: (c) => ({ params: { tag: c.name("renamed") } }),
    expect: gives(null),
  },
  {
    what: "a removed snapshot is not found",
    route: "deleteSnapshot",
    args: (c) => ({ params: { tag: c.name("renamed") } }),
    expect: fails("NOT_FOUND"),
  },
];
