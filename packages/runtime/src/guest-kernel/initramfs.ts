// Writes an initramfs: a newc cpio archive in a fixed order, so that equal input gives equal bytes.

const MODE_DIR = 0o040000;
const MODE_FILE = 0o100000;
const MODE_CHAR = 0o020000;

export type InitramfsEntry =
  | { kind: "dir"; path: string; mode: number }
  | { kind: "file"; path: string; mode: number; data: Uint8Array }
  | { kind: "char"; path: string; mode: number; major: number; minor: number };

/** Paths are relative to the root, without a leading slash, parents first */
export function packInitramfs(entries: readonly InitramfsEntry[]): Buffer {
  const parts: Buffer[] = [];
  let inode = 1;
  for (const entry of entries) {
    const data = entry.kind === "file" ? Buffer.from(entry.data.buffer, entry.data.byteOffset, entry.data.byteLength) : Buffer.alloc(0);
    const type = entry.kind === "dir" ? MODE_DIR : entry.kind === "file" ? MODE_FILE : MODE_CHAR;
    const dev = entry.kind === "char" ? { major: entry.major, minor: entry.minor } : { major: 0, minor: 0 };
    parts.push(header(inode++, type | entry.mode, entry.kind === "dir" ? 2 : 1, data.length, dev, entry.path), pad4(data));
  }
  parts.push(header(0, 0, 1, 0, { major: 0, minor: 0 }, "TRAILER!!!"));
  return Buffer.concat(parts);
}

function header(inode: number, mode: number, links: number, size: number, dev: { major: number; minor: number }, path: string): Buffer {
  const name = Buffer.from(`${path}\0`, "utf8");
  // ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize, check
  const fields = [inode, mode, 0, 0, links, 0, size, 0, 0, dev.major, dev.minor, name.length, 0];
  const text = `070701${fields.map((field) => field.toString(16).toUpperCase().padStart(8, "0")).join("")}`;
  return pad4(Buffer.concat([Buffer.from(text, "ascii"), name]));
}

function pad4(data: Buffer): Buffer {
  const rest = data.length % 4;
  return rest === 0 ? data : Buffer.concat([data, Buffer.alloc(4 - rest)]);
}
