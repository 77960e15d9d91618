// Warm Node interpreter of a guest. The contract is spec/kernel-protocol.md.

import crypto from "node:crypto";
import fs from "node:fs";
import { Session } from "node:inspector";
import { createRequire, syncBuiltinESMExports } from "node:module";
import net from "node:net";
import path from "node:path";
import util from "node:util";
import vm from "node:vm";
import { bundleOf, encode } from "./display.mjs";
import { load, take, withImports } from "./imports.mjs";

const CONTROL = 3;
const MOST_TEXT = 1 << 20;
const MOST_NAME = 1 << 10;
const BRIDGE = Symbol.for("forkd.kernel");
const IMPORTS = new URL("imports.mjs", import.meta.url).href;
const INTERRUPTED = Symbol("interrupted");

// V8's REPL mode: state, redeclaration and top-level await as in a developer console
const session = new Session();
const bridge = { enter: undefined, value: undefined, load, take };
Object.defineProperty(globalThis, BRIDGE, { value: bridge });
const enter = new vm.Script(`globalThis[Symbol.for("forkd.kernel")].enter()`, { filename: import.meta.url });
const keep = "function (v) { globalThis[Symbol.for('forkd.kernel')].value = v }";

/** TypeScript runs in the same interpreter, and has its types removed first */
const language = process.argv[2] === "typescript" ? "typescript" : "node";
const { transpile, version } = language === "typescript" ? await import("./typescript.mjs") : { version: process.versions.node };

let endWait; // ends the wait for the running eval
let globalId;
let count = 0;
let current; // id of the running eval

function send(message) {
  const bytes = Buffer.from(`${typeof message === "string" ? message : JSON.stringify(message)}\n`);
  for (let at = 0; at < bytes.length;) {
    try {
      at += fs.writeSync(CONTROL, bytes, at);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    }
  }
}

// Generators

const state = new Uint32Array(4);

/** xoshiro128** */
function next() {
  const product = Math.imul(state[1], 5);
  const out = Math.imul((product << 7) | (product >>> 25), 9) >>> 0;
  const shifted = state[1] << 9;
  state[2] ^= state[0];
  state[3] ^= state[1];
  state[1] ^= state[2];
  state[0] ^= state[3];
  state[2] ^= shifted;
  state[3] = (state[3] << 11) | (state[3] >>> 21);
  return out;
}

function seedMathRandom(seed) {
  for (let at = 0; at < 4; at++) state[at] = seed.readUInt32LE(4 * at);
  for (let at = 0; at < 4; at++) {
    next();
    state[at] ^= seed.readUInt32LE(16 + 4 * at);
  }
  if (state.every((word) => word === 0)) state[0] = 1;
  for (let round = 0; round < 16; round++) next();
}

/**
 * OpenSSL keeps a generator in this process, which a fork duplicates and Node cannot reseed. So random bytes come from the
 * guest kernel, which is reseeded.
 */
function takeRandomnessFromGuestKernel() {
  const source = fs.openSync("/dev/urandom", "r");
  const fill = (view) => {
    const bytes = ArrayBuffer.isView(view) ? new Uint8Array(view.buffer, view.byteOffset, view.byteLength) : new Uint8Array(view);
    for (let at = 0; at < bytes.length;) at += fs.readSync(source, bytes, at, bytes.length - at, null);
    return view;
  };
  const { randomBytes, randomFillSync, randomInt } = crypto;
  crypto.randomFillSync = (view, offset = 0, size) => {
    if (offset === 0 && size === undefined) return fill(view);
    randomFillSync(view, offset, size); // checks the arguments
    const width = view.BYTES_PER_ELEMENT ?? 1;
    const start = (view.byteOffset ?? 0) + offset * width;
    fill(new Uint8Array(view.buffer ?? view, start, size === undefined ? (view.byteLength ?? 0) - offset * width : size * width));
    return view;
  };
  crypto.randomFill = (view, ...rest) => {
    const done = rest.pop();
    crypto.randomFillSync(view, ...rest);
    process.nextTick(done, null, view);
  };
  crypto.randomBytes = crypto.pseudoRandomBytes = (size, done) => {
    const bytes = fill(randomBytes(size));
    if (done === undefined) return bytes;
    process.nextTick(done, null, bytes);
  };
  crypto.randomInt = (low, high, done) => {
    if (high === undefined || typeof high === "function") [low, high, done] = [0, low, high];
    randomInt(low, high); // checks the arguments
    const range = high - low;
    const limit = 2 ** 48 - (2 ** 48 % range);
    let drawn;
    do drawn = fill(Buffer.alloc(6)).readUIntLE(0, 6);
    while (drawn >= limit);
    const value = low + (drawn % range);
    if (done === undefined) return value;
    process.nextTick(done, null, value);
  };
  crypto.randomUUID = () => {
    const bytes = fill(Buffer.alloc(16));
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    return bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  };
  const web = Object.getPrototypeOf(crypto.webcrypto);
  const { getRandomValues } = web;
  web.getRandomValues = (view) => fill(getRandomValues.call(crypto.webcrypto, view)); // checks the arguments
  web.randomUUID = crypto.randomUUID;
  syncBuiltinESMExports();
}

// Evaluation

/** The value behind an inspector's description of it */
function fetch({ type, objectId, unserializableValue, value }) {
  if (type === "undefined") return undefined;
  const argument = objectId ? { objectId } : unserializableValue ? { unserializableValue } : { value };
  session.post("Runtime.callFunctionOn", { functionDeclaration: keep, objectId: globalId, arguments: [argument] });
  const fetched = bridge.value;
  bridge.value = undefined;
  return fetched;
}

function evaluate(id, code) {
  const expression = `${withImports(code)}\n//# sourceURL=eval-${id}`;
  return new Promise((resolve, reject) => {
    endWait = () => reject(INTERRUPTED);
    const answered = (error, answer) => {
      if (error) reject(INTERRUPTED);
      else if (answer.exceptionDetails) reject(new Thrown(fetch(answer.result), answer.exceptionDetails));
      else resolve({ value: fetch(answer.result) }); // in an object, because resolving with a promise would adopt it
    };
    bridge.enter = () => session.post("Runtime.evaluate", { expression, replMode: true, objectGroup: "eval" }, answered);
    try {
      enter.runInThisContext({ breakOnSigint: true });
    } catch {
      reject(INTERRUPTED); // only SIGINT makes it throw
    }
  });
}

/** Carries a thrown value, which need not be an Error */
class Thrown extends Error {
  constructor(value, details) {
    super();
    this.value = value;
    this.details = details;
  }
}

function describe(error, id) {
  if (error === INTERRUPTED) return { type: "KeyboardInterrupt", message: "", traceback: "KeyboardInterrupt" };
  const { value, details } = error instanceof Thrown ? error : { value: error };
  if (!util.types.isNativeError(value) && !(value instanceof Error)) {
    const text = util.inspect(value);
    return { type: value === null ? "null" : typeof value, message: text, traceback: `Uncaught ${text}` };
  }
  const all = String(value.stack ?? value).split("\n");
  const lines = all.filter((line) => !line.includes(IMPORTS));
  const end = lines.findIndex((line) => /^\s+at .*(node:inspector|node:internal\/|node:vm)/.test(line) || line.includes(import.meta.url));
  const shown = end < 0 ? lines : lines.slice(0, end);
  // code that does not compile has no frames; an error that it throws, as JSON.parse does, has
  const isOfCode = lines.length === all.length && !shown.some((line) => /^\s+at /.test(line));
  if (value.name === "SyntaxError" && details?.scriptId && isOfCode) {
    shown.push(`    at eval-${id}:${details.lineNumber + 1}:${details.columnNumber + 1}`);
  }
  return { type: String(value.name), message: String(value.message), traceback: shown.join("\n") };
}

function failure(id, error) {
  let described;
  try {
    described = describe(error, id);
  } catch {
    described = { type: "Error", message: "<no message>", traceback: "" }; // the thrown value throws when it is read
  }
  const { type, message, traceback } = described;
  return JSON.stringify({ event: "error", id, count, type: type.slice(0, MOST_NAME), message: cut(message), traceback: cut(traceback) });
}

function cut(text) {
  return text.length > MOST_TEXT ? `${text.slice(0, MOST_TEXT)}…` : text;
}

/** JSON text of a value that JSON preserves */
function jsonOf(value) {
  let room = MOST_TEXT;
  const survives = (item) => {
    room -= 1;
    if (typeof item === "string") room -= item.length;
    if (room < 0) return false;
    if (item === null || typeof item === "string" || typeof item === "boolean") return true;
    if (typeof item === "number") return Number.isFinite(item) && !Object.is(item, -0);
    if (typeof item !== "object" || util.types.isProxy(item)) return false;
    const keys = Reflect.ownKeys(item);
    if (Array.isArray(item)) return keys.length === item.length + 1 && item.every(survives);
    const prototype = Object.getPrototypeOf(item);
    if (prototype !== Object.prototype && prototype !== null) return false;
    return keys.every((key) => {
      if (typeof key !== "string" || key === "toJSON" || key === "__proto__") return false;
      const { enumerable, value: member } = Object.getOwnPropertyDescriptor(item, key);
      room -= key.length;
      return enumerable && member !== undefined && survives(member);
    });
  };
  try {
    if (!survives(value)) return undefined;
    const text = JSON.stringify(value);
    return text.length <= MOST_TEXT ? text : undefined;
  } catch {
    return undefined; // too deep or a cycle
  }
}

// Displays

/** Shows values while code runs, like display() in notebooks */
function display(...values) {
  if (current === undefined) return; // called by code that outlives its eval
  for (const value of values) {
    const bundle = { "text/plain": cut(util.inspect(value)), ...bundleOf(value) };
    send({ event: "display", id: current, ...encode(bundle) });
  }
}

/** Sets environment variables; returns a function that restores them */
function setEnvironment(env) {
  const before = Object.keys(env).map((name) => [name, process.env[name]]);
  Object.assign(process.env, env);
  return () => {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  };
}

async function flush() {
  for (const stream of [process.stdout, process.stderr]) {
    if (stream.writableLength > 0) await new Promise((done) => stream.write("", done));
  }
}

async function answer({ id, code, env, warm }) {
  let message;
  if (!warm) count++;
  current = id;
  const restore = env ? setEnvironment(env) : undefined;
  try {
    let { value } = await evaluate(id, transpile ? transpile(String(code)) : String(code));
    if (util.types.isPromise(value)) {
      const interrupted = new Promise((_, reject) => (endWait = () => reject(INTERRUPTED)));
      value = await Promise.race([value, interrupted]);
    }
    const text = value === undefined ? null : cut(util.inspect(value));
    const json = value === undefined ? undefined : jsonOf(value);
    const bundle = json === undefined ? bundleOf(value) : undefined;
    const head = JSON.stringify({ event: "result", id, count, text, ...(bundle ? encode(bundle) : {}) });
    message = json === undefined ? head : `${head.slice(0, -1)},"json":${json}}`;
  } catch (error) {
    message = failure(id, error);
  }
  endWait = undefined;
  current = undefined;
  restore?.();
  session.post("Runtime.releaseObjectGroup", { objectGroup: "eval" });
  await flush();
  return message;
}

// Interrupts

// Node's own method, a SIGINT listener that vm removes and restores around breakOnSigint, has moments in which SIGINT
// ends the process. So the watchdog behind breakOnSigint is always on: a signal then breaks running code, and nothing
// else. An eval that waits is interrupted by a message.
const watchdog = process.binding("contextify");

// Control channel

function parse(line) {
  try {
    const message = JSON.parse(line);
    return typeof message === "object" && message !== null ? message : {};
  } catch {
    return {};
  }
}

let evals = Promise.resolve();

function handle(message) {
  if (message.op === "eval") {
    evals = evals.then(() => answer(message)).then(send);
  } else if (message.op === "interrupt") {
    if (message.id === undefined || message.id === current) endWait?.();
  } else if (message.op === "environment") {
    evals = evals.then(() => void Object.assign(process.env, message.env));
  } else if (message.op === "reseed") {
    const seed = Buffer.from(String(message.seed), "hex");
    if (seed.length === 32) {
      seedMathRandom(seed);
      send({ event: "reseeded", id: message.id, generators: ["Math.random", "crypto"] });
    } else {
      send({ event: "error", id: message.id, type: "RangeError", message: "a seed is 32 bytes in hex", traceback: "" });
    }
  }
}

class SystemExit extends Error {
  name = "SystemExit";
}

async function main() {
  watchdog.startSigintWatchdog();
  session.connect();
  session.post("Runtime.evaluate", { expression: "globalThis" }, (_, answered) => (globalId = answered.result.objectId));
  takeRandomnessFromGuestKernel();
  seedMathRandom(crypto.randomBytes(32));
  const exit = process.exit.bind(process);
  Math.random = () => ((next() >>> 5) * 2 ** 26 + (next() >>> 6)) / 2 ** 53;
  process.exit = (code) => {
    throw new SystemExit(String(code ?? 0));
  };
  for (const event of ["uncaughtException", "unhandledRejection"]) {
    process.on(event, (error) => process.stderr.write(`Uncaught ${util.inspect(error)}\n`));
  }
  globalThis.require = createRequire(path.join(process.cwd(), "eval"));
  Object.defineProperty(globalThis, "display", { value: display, writable: true, configurable: true });
  // common paths run once: code that is loaded now is shared by all forks
  for (const code of ["1 + 1", "({ a: [1] })", "null.x", "await 1"]) await answer({ id: 0, code, warm: true });

  let received = "";
  const control = new net.Socket({ fd: CONTROL, readable: true, writable: false });
  control.setEncoding("utf8");
  control.on("data", (text) => {
    const lines = (received + text).split("\n");
    received = lines.pop();
    lines.map(parse).forEach(handle);
  });
  control.on("close", () => exit(0));
  control.on("end", () => exit(0));
  control.on("error", () => exit(0));
  send({ event: "ready", language, version });
}

await main();
