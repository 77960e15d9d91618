// Bytes of a guest as text that fits into an answer. Guest output is only ever the content of a JSON string.

/** Default limit of one answer */
export const DEFAULT_BYTES = 16 * 1024;
/** Largest limit that a caller can request */
export const MAX_BYTES = 256 * 1024;

/** Number of bytes without an incomplete character at the end */
export function wholeCharacters(bytes: Uint8Array): number {
  // a character has at most four bytes, and all but the first are 10xxxxxx
  for (let back = 1; back <= Math.min(4, bytes.length); back++) {
    const byte = bytes[bytes.length - back] ?? 0;
    if ((byte & 0b1100_0000) === 0b1000_0000) continue;
    const length = byte >= 0b1111_0000 ? 4 : byte >= 0b1110_0000 ? 3 : byte >= 0b1100_0000 ? 2 : 1;
    return length > back ? bytes.length - back : bytes.length;
  }
  return bytes.length;
}

/** The bytes as text, or as base64 if they are not UTF-8 */
export function textOrBase64(bytes: Uint8Array): { content: string; encoding: "utf8" | "base64" } {
  try {
    return { content: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes), encoding: "utf8" };
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    return { content: Buffer.from(bytes).toString("base64"), encoding: "base64" };
  }
}

/** The beginning of a text, cut at a character boundary */
export function cut(text: string, maxBytes: number): string {
  if (text.length * 3 <= maxBytes) return text;
  const bytes = Buffer.from(text);
  if (bytes.length <= maxBytes) return text;
  const head = bytes.subarray(0, maxBytes);
  return head.subarray(0, wholeCharacters(head)).toString();
}
