// Compatibility with deeplethe/forkd's API: fields without effect become warnings, impossible ones are refused.

import type { CreateSandboxes } from "../api/sandbox.ts";
import type { CreateSnapshot } from "../api/snapshot.ts";
import { ForkdError } from "@forkd/runtime/errors";
import type { GivenLimits } from "./limit-fields.ts";

type SpawnFields = Pick<CreateSandboxes, "per_child_netns" | "prewarm" | "live_fork" | "hugepages">;

const SPAWN_FIELDS = ["per_child_netns", "prewarm", "live_fork", "hugepages"] as const;
/** Explanations for fields that users may miss */
const REASONS: Partial<Record<string, string>> = { hugepages: "it is an option of `POST /v1/snapshots`" };
const SNAPSHOT_FIELDS = ["kernel", "rootfs", "rw", "tap", "boot_wait_secs"] as const;

/**
 * deeplethe/forkd's clients send `per_child_netns` with every fork, which identifies them. Its daemon ignores a memory
 * limit that cannot be applied, and its MCP server always sends one: for them it is a warning, not LIMIT_UNAVAILABLE.
 */
export async function spawnRequest<R extends SpawnFields & GivenLimits>(
  request: R,
  check: (limits: GivenLimits) => Promise<unknown>,
): Promise<{ request: R; warnings: string[] }> {
  const warnings = withoutEffect(request, SPAWN_FIELDS);
  const { memory_limit_mib } = request;
  if (!memory_limit_mib || SPAWN_FIELDS.every((field) => request[field] === undefined)) return { request, warnings };
  try {
    await check({ memory_limit_mib });
    return { request, warnings };
  } catch (error) {
    if (!(error instanceof ForkdError) || error.code !== "LIMIT_UNAVAILABLE") throw error;
    return { request: { ...request, memory_limit_mib: null }, warnings: [...warnings, `memory_limit_mib has no effect: ${error.message}`] };
  }
}

/** Throws BAD_REQUEST for a kernel or root file system without an image: forkd boots only stored images */
export function snapshotWarnings(request: CreateSnapshot): string[] {
  const given = (["kernel", "rootfs"] as const).filter((field) => request[field] !== undefined);
  if (given.length > 0 && request.image === undefined)
    throw new ForkdError("BAD_REQUEST", `Cannot make snapshot ${request.tag} of ${given.join(" and ")}: forkd boots stored images.`, {
      hint: "Name an image with `image`; `POST /v1/images` makes one, also of a tar archive of a root file system.",
      details: { fields: given },
    });
  return withoutEffect(request, SNAPSHOT_FIELDS);
}

/** One warning per given field */
function withoutEffect<F extends string>(request: { [K in F]?: unknown }, fields: readonly F[]): string[] {
  return fields
    .filter((field) => request[field] !== undefined && request[field] !== false)
    .map((field) => `${field} has no effect: ${REASONS[field] ?? "forkd needs no such set-up"}.`);
}
