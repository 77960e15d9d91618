// Calls about snapshots that go to other machines and come from them.

import { SnapshotCalls } from "./snapshot-calls.ts";
import { path, split, withKey } from "./wire.ts";
import type { ListHubOptions, PullSnapshotOptions, PushSnapshotOptions } from "./hub-options.ts";
import type { OnceOptions } from "./options.ts";
import type * as wire from "./schema.gen.ts";

/** Gigabytes over a slow line */
const LONG_MS = 6 * 60 * 60_000;

export class HubCalls extends SnapshotCalls {
  /**
   * Sends a snapshot, with all it builds on, to an OCI registry (`oci://HOST/NAME[:TAG]`) or to an address that takes PUT. What the other
   * side has is not sent again, and a push that broke off goes on. Scope admin. May take six hours unless `timeoutMs` says otherwise.
   *
   * @example
   * ```ts
   * await controller.pushSnapshot("python", "oci://registry.example/team/python:v1", { username, password });
   * ```
   */
  async pushSnapshot(tag: string, to: string, opts: PushSnapshotOptions = {}): Promise<wire.PushedSnapshot> {
    const { fields, call } = split(opts);
    const json: wire.PushSnapshot = { to, ...fields };
    return await this.client.progress("POST", path`/v1/snapshots/${tag}/push`, { ...long(call), json }, opts.onProgress);
  }

  /**
   * Gets a snapshot, with all it builds on, from an OCI registry, a web server, or a hub (`owner/name[@version]`). It is checked before
   * anything of it is used; what is here is not fetched again, and a pull that broke off goes on. Scope admin.
   *
   * @throws ConflictError when the tag is taken
   * @example
   * ```ts
   * await controller.pullSnapshot("acme/python-numpy@v2", { hub: "https://hub.example/registry.json" });
   * ```
   */
  async pullSnapshot(from: string, opts: PullSnapshotOptions = {}): Promise<wire.Unpacked> {
    const { fields, call } = split(opts);
    const json: wire.PullSnapshot = { from, ...fields };
    return await this.client.progress("POST", "/v1/snapshots/pull", { ...long(call), json }, opts.onProgress);
  }

  /** What the index of a hub has; without `hub`, of the one that the daemon is set to. Scope admin. */
  async listHub(opts: ListHubOptions = {}): Promise<wire.HubListing> {
    const { signal, timeoutMs, hub, insecureHttp } = opts;
    return await this.client.json("GET", "/v1/hub", { signal, timeoutMs, query: { hub, insecure_http: insecureHttp } });
  }
}

function long(call: OnceOptions): OnceOptions {
  return withKey({ ...call, timeoutMs: call.timeoutMs ?? LONG_MS });
}
