// The whole API of a daemon. Methods that are one request and one answer are generated; this file has the others.

import { Client } from "./client.ts";
import { GeneratedController } from "./controller.gen.ts";
import { guestTimeoutMs } from "./deadline.ts";
import { streamedEval } from "./eval-stream.ts";
import { eventsOf } from "./events.ts";
import { FileWatch } from "./file-watch.ts";
import { placeOf, processEventsOf, type ProcessStreamEvent } from "./process-events.ts";
import { buildRecipe, type BuildRecipeOptions, type RecipeSource } from "./recipe.ts";
import { concat, textOf } from "./streams.ts";
import { path, split, type QueryValues } from "./wire.ts";
import type { CallOptions, ControllerOptions, Page } from "./call-options.ts";
import type { ListFilesOptions, LogsOptions, ReadFileOptions, SpawnOptions } from "./options.gen.ts";
import type {
  EvalHandlers,
  EvalOptions,
  EventsOptions,
  PortRequest,
  ProcessFields,
  WatchFilesOptions,
  WatchProcessOptions,
} from "./options.ts";
import type { Duplex } from "./ports-node.ts";
import type * as wire from "./schema.gen.ts";

/** Entries that the daemon returns at most in one page of a directory */
const LARGEST_PAGE = 10_000;

type OlderSpawnOptions = SpawnOptions & { snapshotTag: string };

/**
 * A daemon: every route is a method. Results are the objects of the API (snake_case); required arguments come first, everything else
 * is one object of options. Nothing has to be closed. Paths of guests are absolute; a path that is not UTF-8 is `base64:` and its bytes.
 *
 * Calls that are safe to repeat (reads, removals, and creations, which carry a key) are tried up to three times when the connection
 * breaks or the daemon is busy. Programs and code are never run twice.
 *
 * @example
 * ```ts
 * const controller = new Controller(); // FORKD_URL, FORKD_TOKEN, or this machine's own daemon
 * const [child] = await controller.spawnSandboxes("python");
 * await controller.execCommand(child.id, ["uname", "-a"]);
 * ```
 */
export class Controller extends GeneratedController {
  /** @internal */
  protected readonly client: Client;

  constructor(opts: ControllerOptions = {}) {
    super();
    this.client = new Client(opts);
  }

  /** Address of the daemon, such as `unix:///run/user/1000/forkd/forkd.sock` or `https://host:8889` */
  get url(): string {
    return this.client.url;
  }

  /**
   * Every change of state, as it happens. After a lost connection the iteration continues with the event after the last one; it ends
   * when the signal aborts.
   *
   * @throws ForkdError when the first connection fails, or a later one for another reason than the network
   * @example
   * ```ts
   * for await (const event of controller.events({ types: ["sandbox.ended", "sandbox.lost"], signal })) {
   *   console.log(event.sandbox, event.reason);
   * }
   * ```
   */
  events(opts: EventsOptions = {}): AsyncIterable<wire.Event> {
    return eventsOf(this.client, opts);
  }

  /**
   * Builds a recipe into a snapshot. Steps that did not change since an earlier build are not repeated, and another build of the same
   * tag is waited for. A build ends when its call is aborted; completed steps are kept. Needs the scope admin.
   *
   * @param recipe A recipe that comes with forkd, the path of a folder with a `recipe.yaml` (only with Node), or the content of one.
   * Of a folder, only the files that the recipe names are sent.
   * @throws InvalidRequestError with RECIPE_INVALID, BUILD_FAILED or TESTS_FAILED; `details.output` has the end of a step's output
   * @example
   * ```ts
   * const { snapshot } = await controller.buildRecipe("./my-recipe", { set: { rows: "5" }, onProgress: (p) => console.log(p.step) });
   * ```
   */
  async buildRecipe(recipe: string | RecipeSource, opts: BuildRecipeOptions = {}): Promise<wire.BuiltRecipe> {
    return await buildRecipe(this.client, recipe, opts);
  }

  /**
   * Forks a snapshot into `n` sandboxes, all or none. Safe to repeat: the request carries an idempotency key.
   *
   * @throws NotFoundError when the snapshot does not exist
   * @throws LimitError when the host has no room for them
   * @throws InvalidRequestError when the host cannot enforce a limit (LIMIT_UNAVAILABLE), or a share cannot be offered (SHARE_FAILED)
   * @example
   * ```ts
   * const children = await controller.spawnSandboxes("python", { n: 10, ttlSecs: 600 });
   * ```
   */
  override async spawnSandboxes(tag: string, opts?: SpawnOptions): Promise<wire.Sandbox[]>;
  /** The form of the older SDK, with the tag among the options. */
  override async spawnSandboxes(opts: OlderSpawnOptions): Promise<wire.Sandbox[]>;
  override async spawnSandboxes(first: string | OlderSpawnOptions, rest: SpawnOptions = {}): Promise<wire.Sandbox[]> {
    const { snapshotTag, ...opts } = typeof first === "string" ? { ...rest, snapshotTag: first } : first;
    return await super.spawnSandboxes(snapshotTag, opts);
  }

  /**
   * Runs code in a warm interpreter, which keeps its state. Code that raises is a result with `error` set, not an error. Not repeated
   * after a failure unless `idempotencyKey` is given. With a callback, output and results are reported while the code runs.
   *
   * @throws TimeoutError after `timeoutSecs`; the interpreter stays usable
   */
  async evalCode(sandboxId: string, code: string, opts: EvalOptions & EvalHandlers = {}): Promise<wire.EvalResult> {
    const { onStdout, onStderr, onResult, context, ...rest } = opts;
    const { fields, call } = split(rest);
    const json: wire.Eval = { code, ...fields, ...(context === undefined ? {} : { context: contextId(context) }) };
    const asked = { ...call, timeoutMs: guestTimeoutMs(opts), json };
    if (!onStdout && !onStderr && !onResult) return await this.client.json("POST", path`/v1/sandboxes/${sandboxId}/eval`, asked);
    return await streamedEval(this.client, path`/v1/sandboxes/${sandboxId}/eval/stream`, asked, { onStdout, onStderr, onResult });
  }

  /**
   * Log of the guest's console, the agent or the VMM, as text in pieces. With `follow` it continues until the signal aborts, which ends
   * the iteration without an error.
   */
  async *logs(sandboxId: string, opts: LogsOptions = {}): AsyncGenerator<string> {
    const { fields: query, call } = split(opts);
    try {
      const isEndless = opts.follow === true;
      yield* textOf(this.client.stream("GET", path`/v1/sandboxes/${sandboxId}/logs`, { ...call, query }, { isEndless }));
    } catch (error) {
      if (opts.follow === true && opts.signal?.aborted === true) return;
      throw error;
    }
  }

  /** Reads a file of the guest, or a part of it. */
  async readFile(sandboxId: string, filePath: string, opts: ReadFileOptions = {}): Promise<Uint8Array> {
    return await concat(this.readFileStream(sandboxId, filePath, opts));
  }

  /** Lists a directory of the guest, in the order of the paths: all of it, or one page with `limit` or `cursor`. */
  async listFiles(sandboxId: string, directory: string, opts: ListFilesOptions = {}): Promise<Page<wire.ListedFile>> {
    const { fields, call } = split(opts);
    const page = (more: QueryValues): Promise<Page<wire.ListedFile>> =>
      this.client.page(path`/v1/sandboxes/${sandboxId}/files/list`, { ...call, query: { path: directory, ...fields, ...more } });
    if (opts.limit !== undefined || opts.cursor !== undefined) return await page({});
    const all: wire.ListedFile[] = [];
    for (let cursor: string | null | undefined; cursor !== null;) {
      const next = await page({ limit: LARGEST_PAGE, cursor });
      for (const file of next) all.push(file);
      cursor = next.nextCursor;
    }
    return Object.defineProperty(all, "nextCursor", { value: null }) as Page<wire.ListedFile>;
  }

  /** Reports changes in a directory of the guest. Resolves when the guest reports every later change. */
  async watchFiles(sandboxId: string, directory: string, opts: WatchFilesOptions = {}): Promise<FileWatch> {
    const { fields } = split(opts);
    return await FileWatch.open(this.client, path`/v1/sandboxes/${sandboxId}/files/watch`, { path: directory, ...fields }, opts.signal);
  }

  /**
   * Starts a process and watches it from its first byte: `started`, its output, `exit`. After a lost connection the watch continues where
   * it was.
   */
  streamProcess(
    sandboxId: string,
    args: string[],
    opts: ProcessFields & { signal?: AbortSignal } = {},
  ): AsyncGenerator<ProcessStreamEvent> {
    const { fields } = split(opts);
    const json: wire.StartProcess = { args, ...fields };
    const request = { method: "POST" as const, path: path`/v1/sandboxes/${sandboxId}/processes`, call: { json } };
    return processEventsOf(this.client, { ...request, outputPath: (process) => outputPath(sandboxId, process) }, opts.signal);
  }

  /**
   * Watches a process: `started`, its output from any position that is kept, `exit`. After a lost connection the watch continues where
   * it was.
   */
  watchProcess(sandboxId: string, process: string, opts: WatchProcessOptions = {}): AsyncGenerator<ProcessStreamEvent> {
    // queryString leaves false out, and the daemon's default is true
    const query = { ...placeOf(opts.from), follow: opts.follow === false ? "false" : undefined };
    const request = { method: "GET" as const, path: outputPath(sandboxId, process), call: { query } };
    return processEventsOf(this.client, { ...request, outputPath: (known) => outputPath(sandboxId, known) }, opts.signal);
  }

  /**
   * Sends an HTTP request to a server in the guest, with the interface of `fetch`; bodies are streamed both ways. Every answer of the server
   * is a result, redirects included; only a failure to get an answer is an error.
   *
   * @throws ForkdError with PORT_CLOSED when no process listens on the port
   */
  async fetchPort(sandboxId: string, port: number, target: string, init: PortRequest = {}): Promise<Response> {
    // resolved here, so that `..` in the target cannot reach another route
    const { pathname, search } = new URL(`http://guest${target.startsWith("/") ? "" : "/"}${target}`);
    return await this.client.ports.fetch(path`/v1/sandboxes/${sandboxId}/proxy/${String(port)}` + pathname + search, init);
  }

  /**
   * Opens a TCP connection to a server in the guest, as a Node stream; each direction ends separately. Needs `node:http`.
   * @throws ForkdError with PORT_CLOSED when no process listens on the port
   */
  async connectPort(sandboxId: string, port: number, opts: CallOptions = {}): Promise<Duplex> {
    return await this.client.ports.connect(path`/v1/sandboxes/${sandboxId}/ports/${String(port)}/connect`, opts);
  }
}

function contextId(context: string | { id: string }): string {
  return typeof context === "string" ? context : context.id;
}

function outputPath(sandboxId: string, process: string): string {
  return path`/v1/sandboxes/${sandboxId}/processes/${process}/output`;
}
