// fork() for virtual machines: everything this package exports.

export { Controller } from "./controller.ts";
export { Process } from "./process.ts";
export { Sandbox } from "./sandbox.ts";
export { FileWatch } from "./file-watch.ts";
export { SandboxContexts } from "./sandbox-contexts.ts";
export { SandboxFiles } from "./sandbox-files.ts";
export { SandboxNetwork } from "./sandbox-network.ts";
export { SandboxPorts } from "./sandbox-ports.ts";
export { SandboxProcesses } from "./sandbox-processes.ts";
export {
  AuthenticationError,
  ConflictError,
  ConnectionError,
  EvalError,
  FileError,
  ForkdError,
  InvalidRequestError,
  LimitError,
  NotFoundError,
  SandboxGoneError,
  TimeoutError,
} from "./errors.ts";
// Name of the class in the older SDK.
export { ForkdError as ControllerError } from "./errors.ts";

export type { ProcessOutput } from "./process.ts";
export type { ProcessStreamEvent } from "./process-events.ts";
export type { BuildRecipeOptions, RecipeSource, RegistryLogin } from "./recipe.ts";
export type { SandboxConnection, SandboxOptions } from "./sandbox.ts";
export type { CallOptions, ControllerOptions, FileContent, OnceOptions, Page, PageOptions, ProgressOptions } from "./call-options.ts";
export type * from "./options.gen.ts";
export type {
  EvalHandlers,
  EvalOptions,
  EventsOptions,
  ForkOptions,
  LimitOptions,
  OutputHandlers,
  OutputPlace,
  PortRequest,
  ProcessFields,
  RemoteOptions,
  SignalName,
  WatchFilesOptions,
  WatchProcessOptions,
} from "./options.ts";
export type {
  BuiltRecipe,
  CheckedRecipe,
  Config,
  Context as ContextInfo,
  CreatedImage as CreatedImageInfo,
  DiskUsage,
  DisplayResult,
  EvalResult,
  Event as ForkdEvent,
  EventType,
  ExecResult,
  Language,
  FileEvent,
  FileInfo,
  ForkCertificate,
  ForkedSandboxes,
  ForkOutcome,
  GarbageCollected,
  Health,
  Cluster,
  ClusterNode,
  History,
  HistorySample,
  HubListing,
  Image as ImageInfo,
  Key as KeyInfo,
  Network as NetworkInfo,
  NetworkConnection,
  NetworkMode,
  NetworkPolicy,
  ListedFile,
  NewToken,
  OutputLost,
  Pack as PackInfo,
  Pong,
  Port as PortInfo,
  Preview,
  Problem,
  Process as ProcessInfo,
  ProcessExit,
  ProcessStarted,
  PushedSnapshot,
  Progress,
  Readiness,
  Recipe as RecipeInfo,
  Sandbox as SandboxInfo,
  SandboxState,
  SandboxStats,
  Scope,
  Share,
  Snapshot as SnapshotInfo,
  SnapshotDetails,
  SnapshotStatus,
  Status,
  TerminalSize,
  Token as TokenInfo,
  Tree,
  TreeNode,
  TreeSandbox,
  UiLink,
  Unpacked,
  UnpackResult,
  Version,
  Workspace as WorkspaceInfo,
  WriteResult,
} from "./schema.gen.ts";
