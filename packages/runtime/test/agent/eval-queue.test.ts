// Evals of one interpreter: sent one at a time, withdrawn while they wait, interrupted until they end.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { patience } from "../../../../tests/helpers/patience.ts";
import { until } from "../../../../tests/helpers/until.ts";
import { ForkdError } from "../../src/errors.ts";
import { Kernel } from "../../src/agent/kernel/kernel.ts";
import { T } from "../../src/agent/wire/protocol.ts";
import { FakeAgent, messageIn, ticking } from "./fake-agent.ts";

/** An interpreter that ends an eval when the test calls it, or at an interrupt after it has ignored some */
class FakeInterpreter {
  /** received code, in order */
  readonly codes: string[] = [];
  interrupts = 0;
  ignores = 0;
  #running: { agent: FakeAgent; stream: number; id: number } | undefined;

  async listen(): Promise<FakeAgent> {
    return FakeAgent.listen((agent, frame) => {
      const { type, stream } = frame;
      if (type === T.EXEC) {
        agent.started(stream);
        agent.control(stream, { event: "ready", language: "python", version: "3.11.2" });
      }
      if (type === T.SIGNAL && ++this.interrupts > this.ignores)
        this.#answer({ event: "error", type: "KeyboardInterrupt", message: "", traceback: "" });
      const message = messageIn(frame);
      if (message?.op !== "eval") return;
      this.codes.push(message.code ?? "");
      this.#running = { agent, stream, id: message.id };
    });
  }

  end(): void {
    this.#answer({ event: "result", text: "ended" });
  }

  #answer(message: object): void {
    if (!this.#running) return;
    const { agent, stream, id } = this.#running;
    this.#running = undefined;
    agent.control(stream, { ...message, id });
  }
}

const codeOf = async (promise: Promise<unknown>): Promise<string> =>
  promise.then(
    () => "none",
    (error: unknown) => (error instanceof ForkdError ? error.code : String(error)),
  );

describe("an eval", { timeout: patience() }, () => {
  test("is sent after the previous one was answered", async () => {
    const interpreter = new FakeInterpreter();
    await using fake = await interpreter.listen();
    const agent = await fake.connect();
    const kernel = await Kernel.start(agent, "python", { timeoutMs: patience() });
    const both = [kernel.eval("first"), kernel.eval("second")];
    await until(() => interpreter.codes.length > 0);
    await agent.call(T.PING, Buffer.alloc(0), { timeoutMs: patience() });
    assert.deepEqual(interpreter.codes, ["first"]);
    interpreter.end();
    await until(() => interpreter.codes.length > 1);
    interpreter.end();
    assert.deepEqual(
      (await Promise.all(both)).map(({ text }) => text),
      ["ended", "ended"],
    );
  });

  test("that was abandoned while it waited is never sent, and its time-out interrupts nothing", async () => {
    const interpreter = new FakeInterpreter();
    await using fake = await interpreter.listen();
    const kernel = await Kernel.start(await fake.connect(), "python", { timeoutMs: patience() });
    const first = kernel.eval("first");
    const gone = new AbortController();
    const cancelled = codeOf(kernel.eval("cancelled", { signal: gone.signal }));
    const timedOut = codeOf(kernel.eval("timed out", { timeoutMs: 1 }));
    const last = kernel.eval("last");
    gone.abort();
    assert.deepEqual(await Promise.all([cancelled, timedOut]), ["CANCELLED", "EVAL_TIMEOUT"]);
    await until(() => interpreter.codes.length > 0);
    interpreter.end();
    await first;
    await until(() => interpreter.codes.length > 1);
    interpreter.end();
    await last;
    assert.deepEqual([interpreter.codes, interpreter.interrupts], [["first", "last"], 0]);
  });

  test("that was abandoned while it ran is interrupted until it ends, and the next one runs", async (t) => {
    const interpreter = new FakeInterpreter();
    interpreter.ignores = 40;
    await using fake = await interpreter.listen();
    const kernel = await Kernel.start(await fake.connect(), "python", { timeoutMs: patience() });
    t.mock.timers.enable({ apis: ["setTimeout"] });
    assert.equal(await ticking(t, codeOf(kernel.eval("loop", { timeoutMs: 50 }))), "EVAL_TIMEOUT");
    const next = kernel.eval("next");
    await ticking(
      t,
      until(() => interpreter.codes.length > 1),
    );
    interpreter.end();
    assert.equal((await next).text, "ended");
  });
});
