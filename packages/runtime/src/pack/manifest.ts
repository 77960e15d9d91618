// The manifest of a pack. The contract is spec/pack.md.

import * as z from "zod";
import { hexOf } from "../util/digest.ts";
import { LAYER_ID } from "../disk/layer.ts";
import { ForkdError } from "../errors.ts";
import { ImageConfig, imageId } from "../image/manifest.ts";
import { ENGINE_NAME, snapshotManifest } from "../snapshot/manifest.ts";
import { SNAPSHOT_ID } from "../snapshot/tags.ts";
import { NAME } from "../util/name.ts";
import { schemaProblem } from "../util/schema-problem.ts";

export const PACK_FORMAT = "forkd.pack";
export const PACK_VERSION = 1;
export const MANIFEST_MEDIA_TYPE = "application/vnd.forkd.snapshot.manifest.v1+json";
/** A larger manifest is refused before it is parsed: real chains are short */
export const MAX_MANIFEST_BYTES = 4 * 1024 * 1024;
const MAX_LINKS = 1000;

const digest = z.string().regex(/^sha256:[0-9a-f]{64}$/);
const size = z.int().min(0);

const KINDS = ["image", "memory", "delta", "disk-layer", "state"] as const;
export type BlobKind = (typeof KINDS)[number];

/** "plain": the bytes of a file; "pages": the difference from zeroes or from a base, see spec/pack.md */
export const MEDIA_TYPES: Record<BlobKind, string> = {
  image: "application/vnd.forkd.image.v1.squashfs+zstd",
  memory: "application/vnd.forkd.memory.v1.pages+zstd",
  delta: "application/vnd.forkd.delta.v1.pages+zstd",
  "disk-layer": "application/vnd.forkd.disk-layer.v1.pages+zstd",
  state: "application/vnd.forkd.state.v1+zstd",
};

const blob = z.strictObject({
  kind: z.enum(KINDS),
  mediaType: z.string(),
  /** of the compressed bytes */
  digest,
  size,
  /** of the uncompressed bytes */
  contentDigest: digest,
  contentSize: size,
});
export type PackBlob = z.infer<typeof blob>;

const MAX_MEMORY_MIB = 1024 * 1024;
const MAX_VCPUS = 64;

const { kernels, env, network, mounts, branchedFrom, depth, createdAt, guestKernelId, agentKey } = snapshotManifest.shape;

// a pack says nothing about huge pages: the host that unpacks it may have none
const shape = snapshotManifest.shape.shape.omit({ hugepages: true }).extend({
  vcpus: z.int().min(1).max(MAX_VCPUS),
  memoryMiB: z.int().min(1).max(MAX_MEMORY_MIB),
});

export const packLink = z.strictObject({
  id: z.string().regex(SNAPSHOT_ID),
  createdAt,
  shape,
  guestKernelId,
  agentKey,
  agentProtocol: z.int(),
  /** `pages`: number of pages written to the memory file or the delta */
  memory: z.discriminatedUnion("kind", [
    z.strictObject({ kind: z.literal("base"), pages: size, content: digest }),
    z.strictObject({ kind: z.literal("delta"), base: z.string().regex(SNAPSHOT_ID), pages: size, content: digest }),
  ]),
  disk: z
    .strictObject({
      sizeMiB: z.int().min(1),
      /** lowest first; `bytes`: size of the file, `pages`: its non-zero pages */
      layers: z
        .array(z.strictObject({ id: z.string().regex(LAYER_ID), bytes: size, pages: size, content: digest }))
        .min(1)
        .max(64),
    })
    .nullable(),
  state: z.strictObject({ content: digest, bytes: size }),
  kernels,
  env,
  network: network.unwrap(),
  mounts: mounts.unwrap(),
  branchedFrom,
  depth,
});
export type PackLink = z.infer<typeof packLink>;

const packManifest = z.strictObject({
  format: z.literal(PACK_FORMAT),
  version: z.literal(PACK_VERSION),
  head: z.string().regex(SNAPSHOT_ID),
  /** name of the head where it was made */
  name: z.string().regex(NAME),
  /** requirements for a fork */
  requires: z.strictObject({
    architecture: z.string(),
    engine: z.string().regex(ENGINE_NAME),
    /** this one or a newer one */
    engineVersion: z.string().regex(/^\d+(\.\d+){1,3}$/),
    machine: z.string(),
    cpu: z.string(),
    /** CPU model, with KVM */
    vendor: z.string().optional(),
    features: z.array(z.string()).optional(),
    accelerator: z.enum(["kvm", "tcg"]),
    agentProtocol: z.int(),
  }),
  compression: z.strictObject({ algorithm: z.literal("zstd"), level: z.int().min(1).max(19) }),
  image: z.strictObject({ id: digest, rootfs: digest, bytes: z.int().positive(), config: ImageConfig }),
  /** from the base to the head */
  links: z.array(packLink).min(1).max(MAX_LINKS),
  /** each content once, in the order in which the links refer to them */
  blobs: z.array(blob).min(1),
});
export type PackManifest = z.infer<typeof packManifest>;

/** Sorted keys, no white space: equal facts give equal bytes */
export function canonicalJson(value: unknown): Buffer {
  return Buffer.from(JSON.stringify(sorted(value)));
}

/** Throws PACK_VERSION or PACK_INVALID. Its statements about the content are not verified yet */
export function parsePackManifest(bytes: Buffer): PackManifest {
  if (bytes.length > MAX_MANIFEST_BYTES) throw packInvalid(`its manifest has ${bytes.length} bytes, more than ${MAX_MANIFEST_BYTES}`);
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    throw packInvalid("its manifest is not JSON", error);
  }
  const { format, version } = Object(value) as Record<string, unknown>;
  if (format !== PACK_FORMAT) throw packInvalid(`its manifest is not one of a forkd pack`);
  if (version !== PACK_VERSION)
    throw new ForkdError(
      "PACK_VERSION",
      // only a number is shown: another value may be nested deeper than JSON.stringify allows
      `Cannot use this pack: it has ${typeof version === "number" ? `version ${version}` : "no version"}, this forkd knows ${PACK_VERSION}.`,
    );
  const parsed = packManifest.safeParse(value);
  if (!parsed.success) throw packInvalid(`its manifest is not valid: ${schemaProblem(parsed.error)}`);
  if (!canonicalJson(parsed.data).equals(bytes)) throw packInvalid("its manifest is not in canonical form");
  checkChain(parsed.data);
  checkBlobs(parsed.data);
  return parsed.data;
}

export function packInvalid(why: string, cause?: unknown): ForkdError {
  return new ForkdError("PACK_INVALID", `Cannot use this pack: ${why}.`, { cause });
}

export function headOf({ links }: PackManifest): PackLink {
  const head = links.at(-1);
  if (!head) throw packInvalid("it has no snapshot");
  return head;
}

/** The parts of a link, and their kinds */
export function contentsOf(one: PackLink): { kind: BlobKind; content: string; contentSize?: number }[] {
  const layers = one.disk?.layers ?? [];
  return [
    { kind: one.memory.kind === "base" ? "memory" : "delta", content: one.memory.content },
    ...layers.map(({ content }) => ({ kind: "disk-layer" as const, content })),
    { kind: "state", content: one.state.content, contentSize: one.state.bytes },
  ];
}

function checkChain({ head, links, image, requires }: PackManifest): void {
  const ids = new Set<string>();
  for (const [at, { id, memory, depth, shape, disk }] of links.entries()) {
    if (ids.has(id)) throw packInvalid(`its chain has a cycle: ${id} is in it twice`);
    ids.add(id);
    const below = links[at - 1];
    if (memory.kind === "base" && below) throw packInvalid(`its chain is broken: ${id} builds on no other, and is not the first`);
    if (memory.kind === "delta" && memory.base === id) throw packInvalid(`its chain has a cycle: ${id} builds on itself`);
    if (memory.kind === "delta" && memory.base !== below?.id)
      throw packInvalid(`a link of its chain is missing: ${id} builds on ${memory.base}, which is not the one before it`);
    if (depth !== at) throw packInvalid(`its chain is broken: ${id} says that it is at depth ${depth} and is at ${at}`);
    const first = links[0]?.shape;
    if (JSON.stringify({ ...shape, engineVersion: "" }) !== JSON.stringify({ ...first, engineVersion: "" }))
      throw packInvalid(`its chain is broken: the machine of ${id} is another one than that of ${links[0]?.id}`);
    const layers = disk?.layers.map((layer) => layer.id) ?? [];
    if (new Set(layers).size !== layers.length) throw packInvalid(`the disk of ${id} has a layer twice`);
    const maxPages = shape.memoryMiB * 256;
    if (memory.pages > maxPages) throw packInvalid(`the memory of ${id} has more pages than its machine`);
  }
  const last = links.at(-1);
  if (last?.id !== head) throw packInvalid("the last link of its chain is not its head");
  const { engine, engineVersion, machine, cpu, vendor, features, accelerator } = last.shape;
  const { agentProtocol } = last;
  for (const [key, value] of Object.entries({ engine, engineVersion, machine, cpu, vendor, features, accelerator, agentProtocol }))
    if (JSON.stringify(requires[key as keyof typeof requires]) !== JSON.stringify(value))
      throw packInvalid(`what it requires is not what its head was made with (${key})`);
  if (imageId(hexOf(image.rootfs), image.config) !== image.id)
    throw packInvalid("the id of its image is not that of its root file system and configuration");
}

function checkBlobs({ blobs, links, image }: PackManifest): void {
  const wanted = [...links.flatMap(contentsOf), { kind: "image" as const, content: image.rootfs, contentSize: image.bytes }];
  const expected = new Map<string, (typeof wanted)[number]>();
  for (const want of wanted) {
    const before = expected.get(want.content);
    if (before && before.kind !== want.kind) throw packInvalid(`${want.content} is named as ${before.kind} and as ${want.kind}`);
    expected.set(want.content, want);
  }
  const order = [...new Set(wanted.map(({ content }) => content))];
  if (order.length !== blobs.length || order.some((content, at) => blobs[at]?.contentDigest !== content))
    throw packInvalid("its blobs are not those that its links name");
  const digests = new Set<string>();
  for (const { digest, contentDigest, kind, mediaType, contentSize } of blobs) {
    if (digests.has(digest)) throw packInvalid(`the blob ${digest} is in it twice`);
    digests.add(digest);
    const want = expected.get(contentDigest);
    if (want?.kind !== kind || mediaType !== MEDIA_TYPES[kind])
      throw packInvalid(`the blob ${digest} is of another kind than its link says`);
    if (want.contentSize !== undefined && want.contentSize !== contentSize)
      throw packInvalid(`the blob ${digest} has another size than its link says`);
  }
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  return Object.fromEntries(entries.toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([key, item]) => [key, sorted(item)]));
}
