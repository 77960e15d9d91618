// Time and size limits for client connections.

export type Limits = {
  /** largest JSON body */
  bodyBytes: number;
  /** timeout of the request headers */
  headersMs: number;
  /** timeout of a JSON body */
  bodyMs: number;
  /** timeout between two chunks of an upload */
  uploadIdleMs: number;
  /** lowest rate of an upload, measured over `uploadIdleMs`; 0: no limit */
  uploadBytesPerSec: number;
  /** open connections per listener */
  connections: number;
  /** how long the rest of a rejected body is read and discarded */
  lingerMs: number;
  /** timeout of the response head of a guest's server; its body has no limit */
  serverMs: number;
  /** heartbeat interval of event streams; a client that leaves several unread is disconnected */
  heartbeatMs: number;
};

export const LIMITS: Limits = {
  bodyBytes: 16 * 1024 * 1024,
  headersMs: 15_000,
  bodyMs: 60_000,
  uploadIdleMs: 60_000,
  uploadBytesPerSec: 1024,
  connections: 4096,
  lingerMs: 5_000,
  serverMs: 300_000,
  heartbeatMs: 15_000,
};
