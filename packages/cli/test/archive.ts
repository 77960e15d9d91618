// Hand-made archives, as only a malicious guest would send them.

export type Entry = {
  name: string;
  /** "0" a file, "1" a hard link, "2" a link, "3" a character device, "5" a folder, "6" a pipe */
  type?: string;
  target?: string;
  content?: string;
  mode?: number;
  /** the size in the header, where it is false */
  size?: number;
};

const BLOCK = 512;

export function archiveOf(entries: readonly Entry[]): Buffer {
  return Buffer.concat([...entries.flatMap(blocksOf), Buffer.alloc(2 * BLOCK)]);
}

export async function* inPieces(archive: Buffer, size = 1000): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < archive.length; at += size) yield archive.subarray(at, at + size);
}

function blocksOf({ name, type = "0", target = "", content = "", mode = 0o644, size }: Entry): Buffer[] {
  const header = Buffer.alloc(BLOCK);
  const octal = (value: number, length: number): string => `${value.toString(8).padStart(length - 1, "0")}\0`;
  header.write(name, 0, 100);
  header.write(octal(mode, 8), 100);
  header.write(octal(0, 8) + octal(0, 8), 108);
  header.write(octal(size ?? content.length, 12) + octal(1_000_000_000, 12), 124);
  header.write(`        ${type}`, 148);
  header.write(target, 157, 100);
  header.write("ustar\x0000", 257, "latin1");
  header.write(octal(1, 8) + octal(3, 8), 329);
  const sum = header.reduce((all, byte) => all + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  const body = Buffer.alloc(Math.ceil(content.length / BLOCK) * BLOCK);
  body.write(content);
  return [header, body];
}
