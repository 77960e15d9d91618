// REST handlers: files of sandboxes.

import { Readable } from "node:stream";
import { readPieces } from "../../streams/body.ts";
import { nextPage } from "../handler.ts";
import { describeError } from "../../dispatch/problem.ts";
import { SSE_HEADERS, sseStream, type ServerEvent } from "../../streams/sse.ts";
import type { fileRoutes } from "../../api/files.ts";
import type { Handlers } from "../handler.ts";

/** A browser must not render a guest's file with the API's origin */
const GUEST_CONTENT = { "x-content-type-options": "nosniff" };

export const fileHandlers: Pick<Handlers, keyof typeof fileRoutes> = {
  readFile: async ({ params, query }, { services, caller }) => ({
    status: 200,
    body: Readable.from(await services.manager.files.read(params.id, query, caller), { objectMode: false }),
    headers: { "content-type": "application/octet-stream", ...GUEST_CONTENT },
  }),
  writeFile: async ({ params, query, body }, { services, caller }) => {
    const content = readPieces(body, services.limits);
    const { bytes } = await services.manager.files.write(params.id, query, content, caller);
    return { status: 200, body: { bytes } };
  },
  removeFile: async ({ params, query }, { services, caller }) => {
    await services.manager.files.remove(params.id, query, caller);
    return { status: 204 };
  },
  statFile: async ({ params, query }, { services, caller }) => {
    return { status: 200, body: await services.manager.files.stat(params.id, query, caller) };
  },
  diskUsage: async ({ params, query }, { services, caller }) => {
    return { status: 200, body: await services.manager.files.usage(params.id, query, caller) };
  },
  listFiles: async ({ params, query }, { services, caller }) => {
    const { items, nextCursor } = await services.manager.files.list(params.id, query, caller);
    return { status: 200, body: items, ...nextPage(nextCursor) };
  },
  makeDirectory: async ({ params, body }, { services, caller }) => {
    await services.manager.files.makeDirectory(params.id, body, caller);
    return { status: 204 };
  },
  moveFile: async ({ params, body }, { services, caller }) => {
    await services.manager.files.move(params.id, body, caller);
    return { status: 204 };
  },
  copyFile: async ({ params, body }, { services, caller }) => {
    await services.manager.files.copy(params.id, body, caller);
    return { status: 204 };
  },
  chmodFile: async ({ params, body }, { services, caller }) => {
    await services.manager.files.chmod(params.id, body, caller);
    return { status: 204 };
  },
  chownFile: async ({ params, body }, { services, caller }) => {
    await services.manager.files.chown(params.id, body, caller);
    return { status: 204 };
  },
  makeSymlink: async ({ params, body }, { services, caller }) => {
    await services.manager.files.symlink(params.id, body, caller);
    return { status: 204 };
  },
  watchFiles: async ({ params, query }, { services, caller }) => {
    const signal = AbortSignal.any([caller.signal, services.daemon.stopping]);
    const changes = await services.manager.files.watch(params.id, query, { ...caller, signal });
    const body = sseStream(asEvents(changes), {
      heartbeatMs: services.limits.heartbeatMs,
      over: signal,
      onFailure: (error) => ({ event: "error", data: describeError(error, caller, services).problem }),
    });
    return { status: 200, body, headers: SSE_HEADERS, flush: true };
  },
  readTar: async ({ params, query }, { services, caller }) => ({
    status: 200,
    body: Readable.from(await services.manager.files.pack(params.id, query, caller), { objectMode: false }),
    headers: { "content-type": "application/x-tar", ...GUEST_CONTENT },
  }),
  writeTar: async ({ params, query, body }, { services, caller }) => {
    const archive = readPieces(body, services.limits);
    return { status: 200, body: await services.manager.files.unpack(params.id, query, archive, caller) };
  },
};

/** Not a generator: one that was never started skips its `finally`, and the watch would stay open */
function asEvents(changes: AsyncIterable<{ type: string }>): AsyncIterable<ServerEvent> {
  return {
    [Symbol.asyncIterator]() {
      const iterator = changes[Symbol.asyncIterator]();
      return {
        next: async () => {
          const step = await iterator.next();
          return step.done === true ? { done: true, value: undefined } : { value: { event: step.value.type, data: step.value } };
        },
        return: async () => {
          await iterator.return?.();
          return { done: true, value: undefined };
        },
      };
    },
  };
}
