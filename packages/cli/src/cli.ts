// What every command is given.

export type Cli = {
  /** aborted by the first Ctrl-C, SIGTERM or SIGHUP */
  readonly signal: AbortSignal;
  /** whether the running command was asked for JSON */
  json: boolean;
  /** exit code of a command that ended without throwing */
  exitCode: number;
};
