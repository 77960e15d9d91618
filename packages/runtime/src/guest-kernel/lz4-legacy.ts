// Decodes the lz4 "legacy" format of compressed Linux kernels.

const MAGIC = 0x184c2102;
const MAX_BLOCK = 8 * 1024 * 1024;

export function isLz4Legacy(data: Buffer): boolean {
  return data.length > 8 && data.readUInt32LE(0) === MAGIC;
}

/** Decodes at most `maxBytes`; stops at the first bytes that are not a block, because kernels append their size */
export function decodeLz4Legacy(data: Buffer, maxBytes: number): Buffer {
  const blocks: Buffer[] = [];
  let total = 0;
  for (let at = 4; at + 4 < data.length;) {
    const size = data.readUInt32LE(at);
    if (size === MAGIC) {
      at += 4;
      continue;
    }
    if (size === 0 || at + 4 + size > data.length) break;
    const block = decodeBlock(data.subarray(at + 4, at + 4 + size));
    total += block.length;
    if (total > maxBytes) throw new RangeError(`lz4 stream is larger than ${maxBytes} bytes`);
    blocks.push(block);
    at += 4 + size;
  }
  return Buffer.concat(blocks);
}

function decodeBlock(input: Buffer): Buffer {
  const output = Buffer.alloc(MAX_BLOCK);
  let read = 0;
  let written = 0;
  const byte = (): number => {
    const value = input[read++];
    if (value === undefined) throw new RangeError("lz4 block is cut short");
    return value;
  };
  const lengthOf = (nibble: number): number => {
    let length = nibble;
    if (nibble === 15) {
      let more: number;
      do {
        more = byte();
        length += more;
      } while (more === 255);
    }
    return length;
  };
  while (read < input.length) {
    const token = byte();
    const literals = lengthOf(token >> 4);
    if (read + literals > input.length || written + literals > MAX_BLOCK) throw new RangeError("lz4 literals run over the end");
    input.copy(output, written, read, read + literals);
    read += literals;
    written += literals;
    if (read >= input.length) break;
    const offset = byte() | (byte() << 8);
    const length = lengthOf(token & 15) + 4;
    if (offset === 0 || offset > written || written + length > MAX_BLOCK) throw new RangeError("lz4 match is out of range");
    // A match may overlap its own output, so it is copied in steps no longer than its distance.
    for (let left = length; left > 0;) {
      const step = Math.min(left, offset);
      output.copy(output, written, written - offset, written - offset + step);
      written += step;
      left -= step;
    }
  }
  return output.subarray(0, written);
}
