// Pages of a memory, a delta or a disk layer as a stream of runs: what is zero is not there, what was there before is only named.
// The contract is spec/pack.md.

export const PAGE = 4096;
export const MAGIC = Buffer.from("FKPAGES1");
export const HEADER_BYTES = 16;
export const RUN_BYTES = 24;
/** A run ends at the end of a block of this many pages: equal pages give equal bytes, and a reader needs memory for one block only */
export const BLOCK_PAGES = 256;

/** `end`: last run; `data`: its pages follow; `copy`: equal to earlier pages; `zero`: a zero page of a delta */
export const RUN = { end: 0, data: 1, copy: 2, zero: 3 } as const;
export type RunKind = (typeof RUN)[keyof typeof RUN];

/** `count` pages from `first`; of a copy, those from `source`, which are data or copies themselves */
export type Run = { kind: RunKind; count: number; first: number; source: number };

/** Contiguous pages: `count` from page `first`, at `offset` in a file */
export type Extent = { first: number; count: number; offset: number };

export function encodeHeader(bytes: number): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  MAGIC.copy(header);
  header.writeBigUInt64LE(BigInt(bytes), 8);
  return header;
}

export function writeRun(run: Run, into: Buffer, at: number): void {
  into.writeUInt32LE(run.kind, at);
  into.writeUInt32LE(run.count, at + 4);
  writeNumber(into, run.first, at + 8);
  writeNumber(into, run.source, at + 16);
}

export function readRun(from: Buffer): Run {
  return {
    kind: from.readUInt32LE(0) as RunKind,
    count: from.readUInt32LE(4),
    first: Number(from.readBigUInt64LE(8)),
    source: Number(from.readBigUInt64LE(16)),
  };
}

function writeNumber(into: Buffer, value: number, at: number): void {
  into.writeUInt32LE(value % 2 ** 32, at);
  into.writeUInt32LE(Math.floor(value / 2 ** 32), at + 4);
}
