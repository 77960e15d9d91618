// How the SDKs offer the routes. scripts/gen.ts writes their low-level clients from this table and from the routes themselves.
// A route without an entry becomes one method with the route's name: path parameters and required fields are its arguments, the other
// fields are options.

import type { RouteName } from "./routes.ts";

export type ClientMethod = {
  /** The method, in camelCase; without it, the route's name */
  name?: string;
  /** Both SDKs write the method by hand; only its type of options is generated */
  byHand?: true;
  /** The first sentence of its documentation; without it, the route's summary */
  summary?: string;
  /** Further sentences of its documentation. Fields of the API are in backticks */
  more?: string;
  /** Classes of the SDKs' errors, and when they are thrown */
  throws?: Record<string, string>;
  /** TypeScript that uses it, for its documentation */
  example?: string;
  /** Arguments with another name than the path parameter, field or body that they are */
  args?: Record<string, string>;
  /** Fields that are not offered */
  omit?: readonly string[];
  /** Fields with a value of their own, which are not offered */
  fixed?: Record<string, boolean>;
  /** Name of the type of its options in TypeScript, where it is not the method's with `Options` */
  options?: string;
  /** The options cannot be left out: a call without them does nothing */
  needsOptions?: true;
  /** In TypeScript the whole body is one argument with this name */
  body?: string;
  /** In TypeScript: the type of a body that is a choice, and those of its forms */
  forms?: { type: string; of: readonly string[] };
  /** In Python: options that may also be given by position */
  positional?: readonly string[];
  /** In Python: arguments that have a default */
  defaults?: Record<string, string>;
  /** Fields of which the SDKs take another form than the API: `pairs` is an object for key=value, `octal` and `text` are numbers in Python */
  takes?: Record<string, "pairs" | "octal" | "text">;
  /** Fields that the SDKs take as a list, and the type of its items; a query gets them with commas */
  lists?: Record<string, string>;
  /** `made`: the client makes a key for each call, which is then safe to repeat. `given`: it is repeated only with a key of the caller */
  key?: "made" | "given";
  /** Whether it is repeated without a key; else GET and DELETE are. `unless`: the field with which it is not */
  repeatable?: boolean | { unless: string };
  /** How many seconds it may take. `guest`: the field timeout_secs and a margin; `children`: the usual time and more for each of `n` */
  seconds?: number | "guest" | "children";
  /** Which response is its answer, and which field of it; without it, the first that is JSON */
  answer?: { status: number; field: string };
};

const HOUR = 3600;

export const clients: { readonly [N in RouteName]?: ClientMethod | readonly ClientMethod[] } = {
  getHealth: { name: "health", more: "Needs no token." },
  getReadiness: { name: "ready", summary: "Whether the daemon accepts work, and if not, why", more: "Needs no token." },
  getVersion: { name: "version", summary: "Version of the daemon" },
  getMetrics: { name: "metrics" },
  getOpenapi: { name: "openapi", summary: "The OpenAPI document of the daemon" },
  getStatus: { name: "status" },
  getConfig: { name: "config" },
  stopDaemon: {
    name: "stop",
    throws: { ConflictError: "`if_idle` is given and the daemon is in use (IN_USE)" },
  },
  collectGarbage: { name: "gc", seconds: 600 },
  getEvents: { name: "events", byHand: true, omit: ["since", "types", "sandbox"] },
  getTree: { name: "tree" },
  getStats: { name: "stats" },
  getHistory: { name: "history" },
  getQuota: { name: "quota" },
  createProject: { throws: { ConflictError: "the name is taken" } },
  updateProject: { needsOptions: true },
  deleteProject: { throws: { ConflictError: "it owns something; `details` lists what" } },
  getCluster: { name: "cluster" },
  updateNode: { needsOptions: true },
  drainNode: { seconds: HOUR, repeatable: true },
  moveSandbox: { byHand: true },
  createToken: { throws: { ConflictError: "the name is taken" } },

  createImage: {
    key: "made",
    seconds: HOUR,
    body: "source",
    forms: { type: "ImageSource", of: ["PackagesSource", "RegistrySource", "FileSource"] },
    positional: ["name"],
    example: `await controller.createImage({ name: "py", packages: ["python3", "python3-numpy"] });
await controller.createImage({ reference: "python:3.13-slim" }, { onProgress: (p) => console.log(p.step) });`,
  },
  listSnapshots: { takes: { metadata: "pairs" }, more: "All of them, or with `limit` one page." },
  createSnapshot: {
    key: "made",
    seconds: HOUR,
    throws: { ConflictError: "the tag is taken" },
    example: `await controller.createSnapshot("python", {
  image: "py",
  warmUp: { kernels: [{ language: "python", code: "import numpy" }] },
});`,
  },
  updateSnapshot: { args: { tag: "snapshot_tag" }, needsOptions: true },
  deleteSnapshot: {
    summary: "Removes a snapshot",
    throws: { ConflictError: "other snapshots or sandboxes need it; `details` lists them" },
  },
  getSnapshotDetails: { name: "snapshotInfo" },
  compactSnapshot: { key: "made", seconds: HOUR },

  checkRecipe: {
    repeatable: true,
    throws: { InvalidRequestError: "the recipe is not valid (RECIPE_INVALID); `details` has the line and column of each problem" },
  },
  buildRecipe: { byHand: true, options: "BuildRecipeFields", omit: ["recipe", "set"] },

  preparePack: { key: "given", repeatable: true, seconds: HOUR, lists: { without: "string" } },
  readPack: {
    seconds: HOUR,
    lists: { without: "string" },
    example: 'await writeFile("python.forkd", controller.readPack("python"));',
  },
  unpack: {
    args: { body: "pack" },
    seconds: HOUR,
    throws: { ConflictError: "the tag is taken, or the pack does not fit this machine" },
    example: 'const { snapshot } = await controller.unpack(createReadStream("python.forkd"), { tag: "python" });',
  },
  createKey: { key: "given" },
  pushSnapshot: {
    key: "made",
    seconds: 6 * HOUR,
    example: 'await controller.pushSnapshot("python", "oci://registry.example/team/python:v1", { username, password });',
  },
  pullSnapshot: {
    key: "made",
    seconds: 6 * HOUR,
    args: { from: "source" },
    throws: { ConflictError: "the tag is taken" },
    example: 'await controller.pullSnapshot("acme/python-numpy@v2", { hub: "https://hub.example/registry.json" });',
  },

  listSandboxes: {
    takes: { metadata: "pairs" },
    lists: { state: "SandboxState" },
    more: "All of them, or with `limit` one page.",
  },
  createSandboxes: [
    {
      name: "spawnSandboxes",
      omit: ["per_item"],
      options: "SpawnOptions",
      key: "made",
      seconds: "children",
      more: "All `n` are created or none.",
      positional: ["n", "per_child_netns", "memory_limit_mib", "prewarm", "live_fork", "hugepages"],
      throws: {
        NotFoundError: "the snapshot does not exist",
        LimitError: "the host has no room for them",
        InvalidRequestError: "the host cannot enforce a limit (LIMIT_UNAVAILABLE), or a share cannot be offered (SHARE_FAILED)",
      },
      example: 'const children = await controller.spawnSandboxes("python", { n: 10, ttlSecs: 600 });',
    },
    {
      name: "trySpawnSandboxes",
      omit: ["per_item", "per_child_netns", "prewarm", "live_fork", "hugepages"],
      fixed: { per_item: true },
      options: "SpawnOptions",
      key: "made",
      seconds: "children",
      more: "Each of the `n` succeeds or fails alone: the result has one outcome per child, in order.",
      positional: ["n"],
      answer: { status: 207, field: "results" },
    },
  ],
  deleteSandboxes: { name: "killSandboxes", needsOptions: true, repeatable: false },
  updateSandbox: { needsOptions: true },
  deleteSandbox: { name: "killSandbox", throws: { NotFoundError: "the sandbox does not exist" } },
  pingSandbox: { repeatable: true },
  execCommand: {
    options: "ExecOptions",
    key: "given",
    seconds: "guest",
    positional: ["timeout_secs"],
    more: "There is no shell. An exit code other than 0 is a result, not an error.",
    throws: { InvalidRequestError: "the program cannot be started" },
    example: 'const { stdout, exit_code } = await controller.execCommand(id, ["uname", "-a"], { timeoutSecs: 5 });',
  },
  evalCode: { byHand: true, options: "EvalFields", key: "given" },
  evalStream: { byHand: true, omit: ["language", "context", "env", "timeout_secs"] },
  branchSandbox: {
    options: "BranchOptions",
    key: "made",
    positional: ["tag", "diff", "measure_diff", "mode", "wait"],
    more: "With `wait` false, the status of the result is still `writing`.",
    example: 'const { tag, pause_ms } = await controller.branchSandbox(id, { tag: "after-login" });',
  },
  forkSandbox: { key: "made", seconds: "children", positional: ["n"], more: "The forks do not have the limits of their source." },
  getSandboxStats: { name: "sandboxStats" },
  setNetwork: { body: "network", throws: { InvalidRequestError: "a rule is invalid" } },
  getSandboxLogs: { name: "logs", byHand: true },

  createContext: {
    key: "given",
    defaults: { language: '"python"' },
    throws: { InvalidRequestError: "the image does not have the language" },
  },

  readFile: {
    name: "readFileStream",
    summary: "Reads a file of the guest in pieces",
    options: "ReadFileOptions",
    more: "The request is sent with the first step of the iteration.",
  },
  writeFile: {
    args: { body: "content" },
    repeatable: { unless: "append" },
    takes: { mode: "octal" },
    more: "A stream is sent as it arrives; browsers can send only text and bytes.",
    example: 'await controller.writeFile(id, "/srv/data.csv", createReadStream("data.csv"), { parents: true });',
  },
  listFiles: { byHand: true },
  makeDirectory: { args: { path: "directory" }, key: "given", takes: { mode: "octal" } },
  moveFile: { args: { from: "from_path", to: "to_path" }, key: "given" },
  copyFile: { args: { from: "from_path", to: "to_path" }, key: "given" },
  chmodFile: { options: "ChmodOptions", key: "given", repeatable: true, takes: { mode: "octal" } },
  chownFile: {
    options: "ChownOptions",
    key: "given",
    repeatable: true,
    needsOptions: true,
    takes: { owner: "text", group: "text" },
  },
  makeSymlink: { args: { path: "link" }, options: "FileOnceOptions", key: "given" },
  watchFiles: { byHand: true, options: "WatchFilesFields" },
  writeTar: { args: { path: "directory", body: "archive" }, options: "FileOptions" },

  startProcess: {
    omit: ["encoding"],
    key: "given",
    summary: "Starts a process that survives disconnects, and does not wait for it",
    more: "There is no shell.",
    throws: { InvalidRequestError: "the program cannot be started", ConflictError: "another running process has the tag" },
  },
  getProcess: { takes: { process: "text" } },
  killProcess: { takes: { process: "text" } },
  streamProcess: { byHand: true },
  watchProcess: { byHand: true, omit: ["stdout_from", "stderr_from", "follow", "encoding"] },
  writeStdin: {
    takes: { process: "text" },
    summary: "Writes to the stdin of a process; ends when all of it is handed over",
    args: { body: "content" },
  },
  signalProcess: { takes: { process: "text" }, options: "SignalOptions" },
  resizeProcess: { takes: { process: "text" }, body: "size", repeatable: true },
  createPreview: {
    options: "PreviewOptions",
    repeatable: true,
    throws: { ConflictError: "the daemon has no address for browsers (NO_TCP)" },
  },
  connectPort: { byHand: true },
  proxyRequest: { byHand: true },

  createWorkspace: { key: "made" },
};
