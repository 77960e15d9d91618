// Where forkd keeps things. The same rules as the daemon's home.ts (a test compares them), without the cost of loading the daemon.

import { homedir, tmpdir } from "node:os";
import { join } from "node:path";

export type Paths = {
  /** the store, FORKD_HOME */
  home: string;
  images: string;
  snapshots: string;
  config: string;
  state: string;
  audit: string;
  /** sockets and logs of what runs, FORKD_RUN */
  run: string;
  socket: string;
  log: string;
};

export function paths(env: NodeJS.ProcessEnv = process.env): Paths {
  const uid = process.getuid?.() ?? 0;
  const dataHome = env["XDG_DATA_HOME"] || join(homedir(), ".local", "share");
  const home = env["FORKD_HOME"] || (uid === 0 ? "/var/lib/forkd" : join(dataHome, "forkd"));
  const run = env["FORKD_RUN"] || (env["XDG_RUNTIME_DIR"] ? join(env["XDG_RUNTIME_DIR"], "forkd") : join(tmpdir(), `forkd-${uid}`));
  return {
    home,
    images: join(home, "images"),
    snapshots: join(home, "snapshots"),
    config: env["FORKD_CONFIG"] || join(home, "config.json"),
    state: join(home, "state.db"),
    audit: env["FORKD_AUDIT_LOG"] || join(home, "audit.log"),
    run,
    socket: join(run, "forkd.sock"),
    log: join(run, "daemon.log"),
  };
}
