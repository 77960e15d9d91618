// The error class and the table of its codes.

/**
 * All stable codes, each with its HTTP status and default hint. Hints have fields and routes of the API in backticks
 * (`force=true`, `GET /v1/images`): the command line and MCP replace them by their own names.
 */
export const ERROR_CODES = {
  BAD_NAME: { status: 400, hint: "Use 1 to 64 letters, digits, '.', '_' or '-', starting with a letter, a digit or '_'." },
  BAD_REQUEST: { status: 400, hint: "Correct the request; nothing was changed." },
  NOT_FOUND: { status: 404, hint: "Check the name." },
  EXISTS: { status: 409, hint: "Choose another name or remove the existing one first." },
  IN_USE: { status: 409, hint: "End its users first." },
  CANCELLED: { status: 499, hint: "Run the command again to continue." },
  HOST_TOOL_MISSING: { status: 500, hint: "Run 'forkd doctor' to see what is missing and how to install it." },
  HOST_COMMAND_FAILED: { status: 500, hint: "The output above says why." },
  IMAGE_INVALID: { status: 422, hint: "The image was not stored. Get it from its source again." },
  IMAGE_TOO_LARGE: { status: 413, hint: "Raise the limit with `max_bytes` if you trust this image." },
  DIGEST_MISMATCH: { status: 502, hint: "Nothing was stored. Download it again; if it repeats, do not trust this source." },
  REGISTRY_FAILED: { status: 502, hint: "Check the reference and that the registry is reachable." },
  REGISTRY_AUTH: { status: 502, hint: "Give a user name and password (FORKD_REGISTRY_USER, FORKD_REGISTRY_PASSWORD)." },
  HUB_FAILED: { status: 502, hint: "Check the address and that its server is reachable; received parts are not fetched again." },
  HUB_MISSING: {
    status: 422,
    hint: "Set FORKD_HUB_URL to the address of an index, give `hub`, or name a file, or an https:// or oci:// address.",
  },
  GUEST_KERNEL_MISSING: { status: 500, hint: "Run 'make setup', or name one with --guest-kernel or FORKD_GUEST_KERNEL." },
  BOOT_FAILED: { status: 500, hint: "The console output above is the guest's own; 'forkd doctor' checks the host." },
  VMM_FAILED: { status: 500, hint: "The VMM's log above says why; 'forkd doctor' checks the host." },
  VMM_EXITED: { status: 410, hint: "The sandbox has ended; fork another one." },
  SNAPSHOT_INCOMPATIBLE: { status: 409, hint: "Make the snapshot again on this host." },
  CPU_UNAVAILABLE: {
    status: 409,
    hint: "Leave `cpu` out for the best model of this host, or use `cpu=baseline`, which most hosts support.",
  },
  HUGEPAGES_UNAVAILABLE: {
    status: 409,
    hint: "Mount a tmpfs with huge=within_size (as root: 'mount -o remount,huge=within_size /dev/shm') and name it in the setting hugepages_dir, or leave `hugepages` out.",
  },
  SNAPSHOT_INVALID: { status: 409, hint: "Remove the snapshot and make it again." },
  PACK_INVALID: { status: 422, hint: "Nothing was stored. It was not made by forkd, or was changed; get it from its source again." },
  PACK_CORRUPT: { status: 422, hint: "Nothing was stored. It was damaged in transit; get it again." },
  PACK_VERSION: { status: 422, hint: "Use a newer forkd here, or pack the snapshot again with this one." },
  PACK_INCOMPLETE: { status: 409, hint: "Unpack the snapshots it builds on first, or pack it with them." },
  PACK_UNTRUSTED: { status: 403, hint: "'forkd key trust' trusts a key; the setting pack_trust says which signatures packs need." },
  CONFINEMENT_UNAVAILABLE: {
    status: 503,
    hint: "'forkd doctor' says how to allow it; with --confinement preferred VMs run without.",
  },
  ISOLATION_UNAVAILABLE: {
    status: 503,
    hint: "'forkd doctor' shows what KVM needs here; with --isolation any VMs run emulated, which is not a security boundary.",
  },
  CLOCK_WRONG: { status: 500, hint: "No snapshot was made. Boot it again, or fork another sandbox; if it repeats, run 'forkd doctor'." },
  FORK_FAILED: { status: 500, hint: "Nothing of the failed child remains; try again." },
  BRANCH_FAILED: { status: 500, hint: "The source continues to run, and no snapshot was made." },
  AGENT_LOST: { status: 502, hint: "The guest no longer answers; kill the sandbox and fork another one." },
  AGENT_TIMEOUT: { status: 504, hint: "Raise the time-out if the guest is only slow." },
  AGENT_PROTOCOL: { status: 502, hint: "The guest's agent does not speak this protocol; make the snapshot again." },
  EXEC_FAILED: { status: 422, hint: "Check the program, its working folder and the user." },
  PROCESS_ENDED: { status: 409, hint: "Its output and how it ended can still be read." },
  STDIN_CLOSED: { status: 409, hint: "Start it with `stdin=true`; a stdin that the program closed stays closed." },
  FILE_NOT_FOUND: { status: 404, hint: "Check the path inside the guest; 'forkd files ls' lists files." },
  FILE_EXISTS: { status: 409, hint: "Choose another path, remove the existing file, or use `overwrite=true`." },
  FILE_DENIED: { status: 403, hint: "Name a `user` of the guest who may do this; without one it is root." },
  FILE_NO_SPACE: { status: 507, hint: "Free space inside the guest, whose disk may be its memory, or fork a larger one." },
  FILE_FAILED: { status: 422, hint: "Check the path inside the guest; 'errno' in the details is the guest's error." },
  PORT_CLOSED: { status: 502, hint: "Start the server inside the sandbox; `GET /v1/sandboxes/ID/ports` lists the listening servers." },
  NETWORK_UNSUPPORTED: { status: 422, hint: "Use the mode none, or the guest kernel that forkd brings." },
  BAD_GATEWAY: { status: 502, hint: "Look at the server's own log inside the sandbox." },
  GATEWAY_TIMEOUT: { status: 504, hint: "Check the server, or make it send the head of its answer earlier." },
  NO_TCP: { status: 409, hint: "Start the daemon with --bind HOST:PORT; 'forkd port' needs no listener." },
  SHARE_FAILED: { status: 422, hint: "Name a folder of the daemon's machine, and a place for it in the guest, by absolute paths." },
  KERNEL_MISSING: {
    status: 422,
    hint: "The snapshot was made without a kernel: name it in the warm-up, or name a language that the image has.",
  },
  KERNEL_DIED: { status: 409, hint: "The interpreter ended and its state is lost; fork another sandbox." },
  EVAL_TIMEOUT: { status: 408, hint: "Raise `timeout_secs`; the kernel is still usable." },
  WARMUP_FAILED: { status: 422, hint: "The log above is the warm-up's own. No snapshot was made." },
  RECIPE_INVALID: { status: 422, hint: "docs/recipes.md explains the format. Nothing was changed." },
  BUILD_FAILED: { status: 422, hint: "The output is in the details. An older snapshot of the tag is unchanged." },
  TESTS_FAILED: { status: 422, hint: "Correct the recipe or the test; 'forkd recipes test' runs them again." },
  NO_SPACE: { status: 507, hint: "Free disk space in FORKD_HOME and try again." },
  DISK_FAILED: { status: 500, hint: "The host's kernel log has the disk error; make the snapshot again." },
  HOME_UNSAFE: { status: 500, hint: "FORKD_HOME must be a folder that you own and others cannot write." },
  WARDEN_FAILED: { status: 503, hint: "Run 'make setup' to build it again; 'forkd doctor' checks the host." },
  UNAUTHORIZED: { status: 401, hint: "Give a token: 'forkd token create', then FORKD_TOKEN or Authorization: Bearer." },
  FORBIDDEN: { status: 403, hint: "The token's scope does not allow this; use one with a wider scope." },
  RATE_LIMITED: { status: 429, hint: "Too many wrong tokens came from this address; wait for the time in Retry-After." },
  METHOD_NOT_ALLOWED: { status: 405, hint: "See spec/openapi.json for the methods of this path." },
  UNSUPPORTED: { status: 501, hint: "docs/e2b.md lists the supported parts of E2B's API." },
  UPGRADE_REQUIRED: { status: 426, hint: "Send 'Connection: Upgrade' and the Upgrade header that docs/api.md lists for this path." },
  REQUEST_TIMEOUT: { status: 408, hint: "Send the request faster." },
  TOO_LARGE: { status: 413, hint: "Send less, or write large data with `PUT /v1/sandboxes/ID/files`." },
  UNSUPPORTED_MEDIA_TYPE: { status: 415, hint: "Send JSON with Content-Type: application/json." },
  IDEMPOTENCY_MISMATCH: { status: 422, hint: "Use a new Idempotency-Key for a new request." },
  OUTCOME_UNKNOWN: { status: 409, hint: "Check which objects exist, then repeat the request with a new Idempotency-Key." },
  SNAPSHOT_NOT_READY: { status: 409, hint: "Wait until its status is 'ready'; one that failed must be made again." },
  SANDBOX_PAUSED: { status: 409, hint: "Resume it first." },
  SANDBOX_SUSPENDED: { status: 409, hint: "Resume it first, or create it with `auto_resume=true`." },
  SANDBOX_LOST: { status: 410, hint: "Fork another one from its snapshot." },
  SANDBOX_MOVED: { status: 421, hint: "Ask a gateway of the cluster, which finds it by its id, or the node that the details name." },
  LIMIT_REACHED: { status: 503, hint: "End sandboxes that are not needed, or raise the limit." },
  QUOTA_EXCEEDED: {
    status: 429,
    hint: "End or remove what the project does not need, wait where Retry-After says so, or ask an operator for more; `GET /v1/quota` shows the limits.",
  },
  LIMIT_UNAVAILABLE: { status: 422, hint: "Leave the limit out; 'forkd status' says which can be applied." },
  BUSY: { status: 503, hint: "Try again in a moment." },
  STOPPING: { status: 503, hint: "The daemon is stopping; try again when it has restarted." },
  DAEMON_RUNNING: { status: 500, hint: "Use the one that runs ('forkd status'), or stop it with 'forkd down'." },
  WRONG_STORE: {
    status: 421,
    hint: "Leave FORKD_RUN out: each store has a socket of its own. Or name the store of that daemon with FORKD_HOME.",
  },
  NODE_UNREACHABLE: {
    status: 503,
    hint: "Other nodes continue; 'forkd cluster status' shows them. Try again when the node answers, or fork another sandbox.",
  },
  CLUSTER_STATE_UNAVAILABLE: {
    status: 503,
    hint: "Nothing was changed. Forks, evals and branches without a tag continue; try again when the state can be written.",
  },
  AMBIGUOUS_NAME: { status: 409, hint: "Use the id; the details list the ids." },
  DAEMON_UNREACHABLE: { status: 503, hint: "Start it with 'forkd up', or check FORKD_URL." },
  DAEMON_FAILED: { status: 500, hint: "Its log says why; 'forkd doctor' checks the host." },
  STATE_TOO_NEW: { status: 500, hint: "Use the forkd that wrote it, or another FORKD_HOME." },
  BAD_CONFIG: { status: 500, hint: "Correct the setting; 'forkd config' shows where each one comes from." },
  WEAK_TOKEN: { status: 400, hint: "Use at least 16 bytes of randomness; 'forkd token create' makes one." },
  INTERNAL: { status: 500, hint: "This is a fault in forkd. Its log has the details under the request id." },
} as const satisfies Record<string, { status: number; hint: string }>;

export type ErrorCode = keyof typeof ERROR_CODES;

/** An error with a stable code and a hint: what failed, why, and what to do */
export class ForkdError extends Error {
  readonly code: ErrorCode;
  readonly hint: string;
  /** facts for programs, such as free bytes */
  readonly details: Record<string, unknown> | undefined;

  constructor(code: ErrorCode, message: string, opts: { hint?: string; cause?: unknown; details?: Record<string, unknown> } = {}) {
    super(message, opts.cause === undefined ? undefined : { cause: opts.cause });
    this.name = "ForkdError";
    this.code = code;
    this.hint = opts.hint ?? ERROR_CODES[code].hint;
    this.details = opts.details;
  }

  get status(): number {
    return ERROR_CODES[this.code].status;
  }
}

/** The message of any thrown value */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Whether the operating system refused a write because the disk or a quota is full */
export function isDiskFull(error: unknown): boolean {
  const { code } = (error ?? {}) as { code?: unknown };
  return code === "ENOSPC" || code === "EDQUOT";
}
