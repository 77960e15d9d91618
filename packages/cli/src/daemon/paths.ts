// Paths of the store and the run folder.

import { storePaths } from "@forkd/runtime/paths";
import { join } from "node:path";

export type Paths = {
  /** the store, FORKD_HOME */
  home: string;
  images: string;
  snapshots: string;
  config: string;
  state: string;
  audit: string;
  /** sockets and logs of running processes, FORKD_RUN */
  run: string;
  socket: string;
  log: string;
};

export function paths(env: NodeJS.ProcessEnv = process.env): Paths {
  const { home, run } = storePaths(env);
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
