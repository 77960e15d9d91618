// The whole API of a daemon, one method per route.

import { FileCalls } from "./file-calls.ts";
import { path, split, withKey } from "./wire.ts";
import type { CallOptions, CreateWorkspaceOptions, SuspendWorkspaceOptions } from "./options.ts";
import type * as wire from "./schema.gen.ts";

/**
 * A daemon: every route is a method. Answers are the wire's own objects (snake_case); required arguments come first, everything else
 * is one object of options. Nothing has to be closed.
 *
 * Calls that are safe to repeat (reads, removals, and creations, which carry a key) are tried up to three times when the connection
 * breaks or the daemon is busy. Programs and code are never run twice.
 *
 * @example
 * ```ts
 * const controller = new Controller(); // FORKD_URL, FORKD_TOKEN, or this machine's own daemon
 * const [child] = await controller.spawnSandboxes("python");
 * await controller.execCommand(child.id, ["uname", "-a"]);
 * ```
 */
export class Controller extends FileCalls {
  /** Workspaces: sandboxes with a name that can sleep and go on. */
  async listWorkspaces(opts: CallOptions = {}): Promise<wire.Workspace[]> {
    return await this.client.json("GET", "/v1/workspaces", opts);
  }

  /** Forks a snapshot under a name that outlives the sandbox. Safe to repeat. */
  async createWorkspace(name: string, snapshotTag: string, opts: CreateWorkspaceOptions = {}): Promise<wire.Workspace> {
    const { fields, call } = split(opts);
    const json: wire.CreateWorkspace = { name, snapshot_tag: snapshotTag, ...fields };
    return await this.client.json("POST", "/v1/workspaces", { ...withKey(call), json });
  }

  /** One workspace. */
  async getWorkspace(name: string, opts: CallOptions = {}): Promise<wire.Workspace> {
    return await this.client.json("GET", path`/v1/workspaces/${name}`, opts);
  }

  /** Ends a workspace with its sandbox and its saved state. */
  async deleteWorkspace(name: string, opts: CallOptions = {}): Promise<void> {
    await this.client.empty("DELETE", path`/v1/workspaces/${name}`, opts);
  }

  /** Saves a workspace's state and ends its sandbox. */
  async suspendWorkspace(name: string, opts: SuspendWorkspaceOptions = {}): Promise<wire.Workspace> {
    const { fields, call } = split(opts);
    const json: wire.SuspendWorkspace = fields;
    return await this.client.json("POST", path`/v1/workspaces/${name}/suspend`, { ...call, json });
  }

  /** Goes on from a workspace's saved state. */
  async resumeWorkspace(name: string, opts: CallOptions = {}): Promise<wire.Workspace> {
    return await this.client.json("POST", path`/v1/workspaces/${name}/resume`, opts);
  }
}
