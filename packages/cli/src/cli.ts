// What every command is given.

export type Cli = {
  /** aborted by the first Ctrl-C, SIGTERM or SIGHUP */
  readonly signal: AbortSignal;
  /** whether the running command was asked for JSON */
  json: boolean;
  /** exit code of a command that ended without throwing */
  exitCode: number;
  /** address of a daemon somewhere else; undefined: this user's own, through its socket */
  daemonUrl: string | undefined;
  /** never printed, and never passed to another process */
  daemonToken: string | undefined;
  /** whether a daemon that does not run is started */
  autostart: boolean;
};
