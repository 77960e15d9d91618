// Headless Chromium, driven over its debugging socket. It can connect only to this machine.

import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { patience } from "./patience.ts";
import { until } from "./until.ts";

const PROGRAMS = ["chromium", "chromium-browser", "google-chrome"];
const POLL_MS = 20;

type Answer = { id?: number; result?: Record<string, unknown>; error?: { message: string }; method?: string };
type Evaluated = { result: { value?: unknown }; exceptionDetails?: { text: string; exception?: { description?: string } } };

export class Browser implements AsyncDisposable {
  readonly #process: ChildProcess;
  readonly #folder: string;
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, (answer: Answer) => void>();
  #next = 1;

  private constructor(process: ChildProcess, folder: string, socket: WebSocket) {
    this.#process = process;
    this.#folder = folder;
    this.#socket = socket;
    socket.addEventListener("message", ({ data }) => {
      const answer = JSON.parse(String(data)) as Answer;
      this.#waiting.get(answer.id ?? 0)?.(answer);
      this.#waiting.delete(answer.id ?? 0);
    });
  }

  /** Returns a string with the reason when this machine has no browser */
  static async start(): Promise<Browser | string> {
    for (const program of PROGRAMS) {
      const folder = await mkdtemp(join(tmpdir(), "forkd-test-browser-"));
      const child = spawn(program, options(folder), { stdio: "ignore", env: { ...process.env, HOME: folder } });
      const failed = once(child, "exit").then(([code]) => `${program} ended with ${String(code)}`);
      const missing = new Promise<string>((resolve) => child.once("error", () => resolve(`there is no ${program}`)));
      const looking = new AbortController();
      const bounded = AbortSignal.any([looking.signal, AbortSignal.timeout(patience())]);
      const port = await Promise.race([debuggingPort(folder, bounded), failed, missing]);
      looking.abort();
      if (typeof port === "object") {
        const socket = new WebSocket(`ws://127.0.0.1:${port.port}${port.path}`);
        await once(socket, "open");
        return new Browser(child, folder, socket);
      }
      child.kill("SIGKILL");
      await rm(folder, { recursive: true, force: true });
    }
    return `none of ${PROGRAMS.join(", ")} can be started`;
  }

  async open(url: string): Promise<Page> {
    const { targetId } = await this.call("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await this.call("Target.attachToTarget", { targetId, flatten: true });
    const page = new Page(this, String(sessionId));
    await page.go(url);
    return page;
  }

  async call(method: string, params: object = {}, sessionId?: string): Promise<Record<string, unknown>> {
    const id = this.#next++;
    const { result, error } = await new Promise<Answer>((resolve) => {
      this.#waiting.set(id, resolve);
      this.#socket.send(JSON.stringify({ id, method, params, ...(sessionId === undefined ? {} : { sessionId }) }));
    });
    if (error) throw new Error(`${method}: ${error.message}`);
    return result ?? {};
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = this.#process.exitCode === null ? once(this.#process, "exit") : Promise.resolve();
    this.#socket.send(JSON.stringify({ id: this.#next++, method: "Browser.close" }));
    await Promise.race([ended, sleep(patience(2), undefined, { ref: false })]);
    if (this.#process.exitCode === null) {
      this.#process.kill("SIGKILL");
      await ended;
    }
    await rm(this.#folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

export class Page {
  readonly #browser: Browser;
  readonly #session: string;

  constructor(browser: Browser, session: string) {
    this.#browser = browser;
    this.#session = session;
  }

  async go(url: string): Promise<void> {
    const { errorText } = await this.#browser.call("Page.navigate", { url }, this.#session);
    if (errorText !== undefined) throw new Error(`${url}: ${JSON.stringify(errorText)}`);
    await until(async () => (await this.evaluate("document.readyState")) === "complete");
  }

  /** Evaluates a JavaScript expression and awaits its value if it is a promise */
  async evaluate(expression: string): Promise<unknown> {
    const params = { expression, awaitPromise: true, returnByValue: true };
    const { result, exceptionDetails } = (await this.#browser.call("Runtime.evaluate", params, this.#session)) as unknown as Evaluated;
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  /** All cookies that the browser would send to the URL, including HttpOnly ones */
  async cookies(url: string): Promise<{ name: string; domain: string; httpOnly: boolean }[]> {
    const { cookies } = await this.#browser.call("Network.getCookies", { urls: [url] }, this.#session);
    return cookies as { name: string; domain: string; httpOnly: boolean }[];
  }
}

function options(folder: string): string[] {
  return [
    "--headless=new",
    "--no-sandbox", // Chromium's own sandbox does not work in containers or as root; the pages are trusted
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--metrics-recording-only",
    // All other destinations go through a proxy port without a listener, so they fail
    "--proxy-server=http://127.0.0.1:1",
    "--proxy-bypass-list=*.localhost;localhost;127.0.0.1",
    "--remote-debugging-port=0",
    `--user-data-dir=${folder}`,
    "about:blank",
  ];
}

async function debuggingPort(folder: string, signal: AbortSignal): Promise<{ port: string; path: string } | string> {
  while (!signal.aborted) {
    const text = await readFile(join(folder, "DevToolsActivePort"), "utf8").catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "ENOENT") throw error;
      return "";
    });
    const [port = "", path = ""] = text.split("\n");
    if (path !== "") return { port, path };
    await sleep(POLL_MS);
  }
  return "it opened no debugging port";
}
