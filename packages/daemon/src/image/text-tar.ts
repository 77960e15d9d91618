// A small tar of text files owned by root.

import { writeFile } from "node:fs/promises";
import { encodeHeader, endOfTar, paddingOf, rootHeader } from "./tar-write.ts";

/** Readable by its owner alone until unpacked: it may hold passwords for mirrors */
export async function writeTextTar(path: string, files: Readonly<Record<string, string>>): Promise<void> {
  const parts: Buffer[] = [];
  for (const [name, text] of Object.entries(files)) {
    const data = Buffer.from(text);
    parts.push(encodeHeader(rootHeader({ path: name, type: "file", mode: 0o644, size: data.length })), data, paddingOf(data.length));
  }
  await writeFile(path, Buffer.concat([...parts, endOfTar()]), { mode: 0o600 });
}
