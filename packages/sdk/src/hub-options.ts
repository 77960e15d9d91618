// What callers can choose when snapshots go to other machines and come from them.

import type { CallOptions, ProgressOptions } from "./options.ts";

/** A login for a registry or a web server, and whether it may go there in the open */
export type RemoteOptions = {
  username?: string | undefined;
  password?: string | undefined;
  /** Plain http to a server that is not the daemon's machine */
  insecureHttp?: boolean | undefined;
};

export type PushSnapshotOptions = ProgressOptions &
  RemoteOptions & {
    /** Of zstd: 1 is fast, 19 is small. @default 3 */
    level?: number | undefined;
    /** Name of one of the daemon's own keys */
    sign?: string | undefined;
  };

export type PullSnapshotOptions = ProgressOptions &
  RemoteOptions & {
    /** Without it, what the snapshot was called where it was made */
    tag?: string | undefined;
    /** Takes the tag away from the snapshot that has it */
    force?: boolean | undefined;
    /** Address of the index in which aliases are looked up; without it, the daemon's setting hub_url */
    hub?: string | undefined;
    /** `HOST[:PORT]` that the login is for; needed with a name of a hub, as the index says which server has it */
    loginHost?: string | undefined;
  };

export type ListHubOptions = CallOptions & {
  /** Address of the index; without it, the daemon's setting hub_url */
  hub?: string | undefined;
  /** Plain http to a server that is not the daemon's machine */
  insecureHttp?: boolean | undefined;
};
