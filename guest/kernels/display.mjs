// What a value of the Node kernel shows beside its text.

import util from "node:util";

const MOST_SHOWN = 8 << 20;
const MIME = "_toMime";
/** Methods by which a value shows itself, and what they give */
const SHOWS = { _toHtml: "text/html", _toMarkdown: "text/markdown", _toSvg: "image/svg+xml", _toPng: "image/png", _toJpeg: "image/jpeg" };

/** What a value shows beside its text; undefined when there is nothing. One that fails says why, and shows nothing */
export function bundleOf(value) {
  if (value === null || (typeof value !== "object" && typeof value !== "function") || util.types.isProxy(value)) return undefined;
  try {
    const found = typeof value[MIME] === "function" ? { ...value[MIME]() } : {};
    for (const [name, mime] of Object.entries(SHOWS)) {
      if (typeof value[name] === "function") found[mime] ??= value[name]();
    }
    return Object.keys(found).length > 0 ? found : undefined;
  } catch (error) {
    process.stderr.write(`Cannot show the value: ${util.inspect(error)}\n`);
    return undefined;
  }
}

/** With "omitted" for what is too large */
export function encode(bundle) {
  const data = {};
  const omitted = {};
  let room = MOST_SHOWN;
  for (const [mime, value] of Object.entries(bundle)) {
    const plain = ArrayBuffer.isView(value) ? Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("base64") : value;
    const size = JSON.stringify(plain)?.length;
    if (size === undefined) continue;
    if (size > room) omitted[mime] = size;
    else data[mime] = plain;
    room -= size > room ? 0 : size;
  }
  return Object.keys(omitted).length > 0 ? { data, omitted } : { data };
}
