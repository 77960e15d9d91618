// Extracts the ELF kernel from a bzImage. Entered directly (PVH) it boots faster, because the guest does not have to unpack it.

import { gunzip, zstdDecompress } from "node:zlib";
import { promisify } from "node:util";
import { decompressXz } from "../archive/xz.ts";
import { decodeLz4Legacy, isLz4Legacy } from "./lz4-legacy.ts";

const MAX_VMLINUX = 512 * 1024 * 1024;
const NOTE_PVH_ENTRY = 18;

/** The ELF inside a bzImage; undefined when its compression is unknown or it cannot be entered directly */
export async function extractVmlinux(image: Buffer, signal?: AbortSignal): Promise<Buffer | undefined> {
  if (isElf(image)) return hasPvhEntry(image) ? image : undefined;
  const payload = payloadOf(image);
  if (payload === undefined) return undefined;
  const elf = await unpack(payload, signal);
  return elf !== undefined && isElf(elf) && hasPvhEntry(elf) ? elf : undefined;
}

/** Release of a bzImage or an ELF kernel, as `uname -r` prints it */
export function kernelRelease(image: Buffer): string | undefined {
  if (isBzImage(image)) {
    const at = image.readUInt16LE(0x20e) + 0x200;
    return (
      image
        .subarray(at, at + 256)
        .toString("latin1")
        .split(/[\s\0]/, 1)[0] || undefined
    );
  }
  const at = image.indexOf("Linux version ");
  if (at < 0) return undefined;
  return (
    image
      .subarray(at + 14, at + 270)
      .toString("latin1")
      .split(/[\s\0]/, 1)[0] || undefined
  );
}

export function isKernelImage(image: Buffer): boolean {
  return isElf(image) || isBzImage(image);
}

function isElf(data: Buffer): boolean {
  return data.length > 64 && data.readUInt32BE(0) === 0x7f454c46 && data[4] === 2;
}

function isBzImage(data: Buffer): boolean {
  return data.length > 0x260 && data.readUInt32LE(0x202) === 0x53726448;
}

function payloadOf(image: Buffer): Buffer | undefined {
  // payload_offset and payload_length exist since boot protocol 2.08
  if (!isBzImage(image) || image.readUInt16LE(0x206) < 0x0208) return undefined;
  const setupSectors = image[0x1f1] || 4;
  const start = (setupSectors + 1) * 512 + image.readUInt32LE(0x248);
  const end = start + image.readUInt32LE(0x24c);
  return end <= image.length && end - start > 16 ? image.subarray(start, end) : undefined;
}

async function unpack(payload: Buffer, signal?: AbortSignal): Promise<Buffer | undefined> {
  const magic = payload.readUInt32BE(0);
  // the kernel's build appends the unpacked size for every format but gzip
  const packed = payload.subarray(0, payload.length - 4);
  if (magic === 0x28b52ffd) return promisify(zstdDecompress)(packed, { maxOutputLength: MAX_VMLINUX });
  if (magic >>> 16 === 0x1f8b) return promisify(gunzip)(payload, { maxOutputLength: MAX_VMLINUX });
  if (magic === 0xfd377a58) return decompressXz(packed, signal ? { signal } : {});
  if (isLz4Legacy(payload)) return decodeLz4Legacy(packed, MAX_VMLINUX);
  return undefined;
}

function hasPvhEntry(elf: Buffer): boolean {
  const headers = Number(elf.readBigUInt64LE(32));
  const size = elf.readUInt16LE(54);
  const count = elf.readUInt16LE(56);
  for (let i = 0; i < count; i++) {
    const at = headers + i * size;
    if (at + 56 > elf.length || elf.readUInt32LE(at) !== 4) continue;
    let note = Number(elf.readBigUInt64LE(at + 8));
    const end = Math.min(note + Number(elf.readBigUInt64LE(at + 32)), elf.length);
    while (note + 12 <= end) {
      const nameSize = elf.readUInt32LE(note);
      const dataSize = elf.readUInt32LE(note + 4);
      const type = elf.readUInt32LE(note + 8);
      const name = elf.subarray(note + 12, note + 12 + nameSize).toString("latin1");
      if (type === NOTE_PVH_ENTRY && name === "Xen\0") return true;
      note += 12 + align4(nameSize) + align4(dataSize);
    }
  }
  return false;
}

function align4(value: number): number {
  return (value + 3) & ~3;
}
