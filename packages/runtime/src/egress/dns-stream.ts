// DNS over TCP: connections to port 53 of any address are answered by the daemon.

import type { Incoming } from "../agent/wire/connection.ts";
import { CHANNEL, DIAL_WINDOW } from "../agent/wire/protocol.ts";

const MAX_QUERY = 4096;
const IDLE_MS = 10_000;

/** Answers queries in order until the program ends the stream; undefined: the input is not a query */
export function serveDns(incoming: Incoming, answer: (message: Buffer) => Promise<Buffer | undefined>, onEnd: () => void): void {
  let pending: Buffer = Buffer.alloc(0);
  const idle = setTimeout(() => stream.cancel(), IDLE_MS);
  const onData = async (_channel: number, bytes: Buffer): Promise<void> => {
    idle.refresh();
    pending = Buffer.concat([pending, bytes]);
    while (pending.length >= 2) {
      const length = pending.readUInt16BE(0);
      if (length > MAX_QUERY) return stream.cancel();
      if (pending.length < 2 + length) return undefined;
      const message = pending.subarray(2, 2 + length);
      pending = pending.subarray(2 + length);
      const response = await answer(message);
      if (!response) return stream.cancel();
      const head = Buffer.alloc(2);
      head.writeUInt16BE(response.length);
      await stream.write(CHANNEL.stdin, Buffer.concat([head, response]));
    }
  };
  const stream = incoming.open({ window: DIAL_WINDOW, onData, onEof: () => stream.eof(CHANNEL.stdin) });
  stream.opened();
  const over = (): void => {
    clearTimeout(idle);
    onEnd();
  };
  stream.end().then(over, over);
}
