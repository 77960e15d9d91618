// Context of every command.

export type Cli = {
  /** aborted by the first Ctrl-C, SIGTERM or SIGHUP */
  readonly signal: AbortSignal;
  /** whether the running command prints JSON */
  json: boolean;
  /** exit code of a command that ended without throwing */
  exitCode: number;
  /** Ctrl-C is the usual end of the running command, which creates nothing */
  isViewer?: boolean;
  /** address of a remote daemon; undefined: this user's own, through its socket */
  daemonUrl: string | undefined;
  /** never printed, and never passed to another process */
  daemonToken: string | undefined;
  /** the project to act in; undefined: that of the token, or `default` */
  project: string | undefined;
  /** whether a daemon is started when none is running */
  autostart: boolean;
};
