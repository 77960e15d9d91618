// Representations of a value besides its text, for the Node kernel.

import util from "node:util";

const MOST_SHOWN = 8 << 20;
/** The host takes time and memory for each value of an array or an object, and gives up a kernel that sends too many */
const MOST_VALUES = 500_000;
const MIME = "_toMime";
/** Methods that return a representation, and its media type */
const SHOWS = { _toHtml: "text/html", _toMarkdown: "text/markdown", _toSvg: "image/svg+xml", _toPng: "image/png", _toJpeg: "image/jpeg" };

/** Representations of a value besides its text; undefined if there are none. A method that fails prints its error */
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

/** With "omitted" for representations that are too large */
export function encode(bundle) {
  const data = {};
  const omitted = {};
  let room = MOST_SHOWN;
  let values = MOST_VALUES;
  for (const [mime, value] of Object.entries(bundle)) {
    const plain = ArrayBuffer.isView(value) ? Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("base64") : value;
    const text = JSON.stringify(plain);
    if (text === undefined) continue;
    const count = typeof plain === "string" ? 0 : (text.match(/[,[{]/g)?.length ?? 0);
    if (text.length > room || count > values) {
      omitted[mime] = text.length;
      continue;
    }
    data[mime] = plain;
    room -= text.length;
    values -= count;
  }
  return Object.keys(omitted).length > 0 ? { data, omitted } : { data };
}
