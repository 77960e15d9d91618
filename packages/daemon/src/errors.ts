// The one error class and the table of its codes.

/** Every stable code: what kind of failure it is, and what to do when the thrower knows nothing better */
export const ERROR_CODES = {
  BAD_NAME: { hint: "Use 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or a digit." },
  BAD_REQUEST: { hint: "Correct the request; nothing was changed." },
  NOT_FOUND: { hint: "List what exists with 'ls'." },
  EXISTS: { hint: "Choose another name or remove the existing one first." },
  IN_USE: { hint: "End what uses it first." },
  CANCELLED: { hint: "Run the command again to go on." },
  HOST_TOOL_MISSING: { hint: "Run 'forkd doctor' to see what is missing and how to install it." },
  HOST_COMMAND_FAILED: { hint: "The output above says why." },
  IMAGE_INVALID: { hint: "The image was not stored. Get it from its source again." },
  IMAGE_TOO_LARGE: { hint: "Raise the limit with --max-bytes if you trust this image." },
  DIGEST_MISMATCH: { hint: "Nothing was stored. Download it again; if it repeats, do not trust this source." },
  REGISTRY_FAILED: { hint: "Check the reference and that the registry is reachable." },
  REGISTRY_AUTH: { hint: "Give a user name and password (FORKD_REGISTRY_USER, FORKD_REGISTRY_PASSWORD)." },
  GUEST_KERNEL_MISSING: { hint: "Run 'make setup', or name one with --guest-kernel or FORKD_GUEST_KERNEL." },
  BOOT_FAILED: { hint: "The console output above is the guest's own; 'forkd doctor' checks the host." },
  VMM_FAILED: { hint: "The VMM's log above says why; 'forkd doctor' checks the host." },
  VMM_EXITED: { hint: "The sandbox is gone; fork another one." },
  SNAPSHOT_INCOMPATIBLE: { hint: "Make the snapshot again on this host." },
  SNAPSHOT_INVALID: { hint: "Remove the snapshot and make it again." },
  FORK_FAILED: { hint: "Nothing of the failed child remains; try again." },
  BRANCH_FAILED: { hint: "The source goes on running and no snapshot was made." },
  AGENT_LOST: { hint: "The guest no longer answers; kill the sandbox and fork another one." },
  AGENT_TIMEOUT: { hint: "Raise the time-out if the guest is only slow." },
  AGENT_PROTOCOL: { hint: "The guest's agent does not speak this protocol; make the snapshot again." },
  EXEC_FAILED: { hint: "Check the program, its working folder and the user." },
  FILE_FAILED: { hint: "Check the path inside the guest." },
  KERNEL_MISSING: { hint: "The snapshot was made without this kernel; name it in the warm-up." },
  KERNEL_DIED: { hint: "The interpreter ended and its state is gone; fork another sandbox." },
  EVAL_TIMEOUT: { hint: "Raise timeoutMs; the kernel is still usable." },
  WARMUP_FAILED: { hint: "The log above is the warm-up's own. No snapshot was made." },
  NO_SPACE: { hint: "Free disk space in FORKD_HOME and try again." },
  HOME_UNSAFE: { hint: "FORKD_HOME must be a folder that you own and others cannot write." },
  WARDEN_FAILED: { hint: "Run 'make setup' to build it again; 'forkd doctor' checks the host." },
} as const satisfies Record<string, { hint: string }>;

export type ErrorCode = keyof typeof ERROR_CODES;

/** What failed: why. What to do. */
export class ForkdError extends Error {
  readonly code: ErrorCode;
  readonly hint: string;

  constructor(code: ErrorCode, message: string, opts: { hint?: string; cause?: unknown } = {}) {
    super(message, opts.cause === undefined ? undefined : { cause: opts.cause });
    this.name = "ForkdError";
    this.code = code;
    this.hint = opts.hint ?? ERROR_CODES[code].hint;
  }
}

/** The message of anything that was thrown */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
