// Shared folders: permission checks, and inheritance by forks.

import { realpath } from "node:fs/promises";
import { ForkdError } from "@forkd/runtime/errors";
import type { Share } from "@forkd/runtime/share/server";
import { checkShares, isBelow } from "@forkd/runtime/share/source";
import { isLocal, type Caller } from "./caller.ts";
import type { Core, Settings } from "./core.ts";

/** The requested shares, checked; throws FORBIDDEN or SHARE_FAILED */
export async function allowedShares({ home, settings }: Core, wanted: readonly Share[], caller: Caller): Promise<Share[]> {
  // first: an error about a path must not reveal to a remote caller whether it exists
  await refuseForeign(wanted, settings, caller);
  const shares = await checkShares(wanted, home);
  // check again with resolved paths: a symlink may have changed since
  await refuseForeign(shares, settings, caller);
  return shares;
}

async function refuseForeign(shares: readonly Share[], { shareRoots }: Settings, caller: Caller): Promise<void> {
  if (isLocal(caller)) return;
  const roots = shareRoots === null || !caller.isOperator ? [] : shareRoots.split(",");
  const allowed = await Promise.all(shares.map(async ({ source }) => isInOne(roots, source)));
  if (allowed.every(Boolean)) return;
  throw new ForkdError(
    "FORBIDDEN",
    "Cannot use shares: they name folders of the daemon's machine, and the request came over the network.",
    {
      hint: "Ask on that machine as the daemon's user, or with a token of scope operator for a folder in the setting share_roots.",
    },
  );
}

async function isInOne(roots: readonly string[], source: string): Promise<boolean> {
  for (const root of roots) {
    // a missing folder or root does not match
    const real = await Promise.all([realpath(source), realpath(root)]).catch(() => undefined);
    if (real && isBelow(...real)) return true;
  }
  return false;
}

/**
 * Shares of the sandbox from which a snapshot was branched; permission for them extends to its descendants.
 * Shares whose folder is missing or has become a symlink are dropped with a warning.
 */
export async function inheritedShares({ home, tables }: Core, snapshotId: string): Promise<{ shares: Share[]; warnings: string[] }> {
  const known = tables.snapshots.get(snapshotId)?.shares ?? [];
  const shares: Share[] = [];
  const warnings: string[] = [];
  for (const share of known) {
    try {
      const [now] = await checkShares([share], home);
      if (now?.source === share.source) shares.push(share);
      else warnings.push(`${share.target} is not there: ${share.source} has become a link.`);
    } catch (error) {
      if (!(error instanceof ForkdError)) throw error;
      warnings.push(`${share.target} is not there: ${error.message}`);
    }
  }
  return { shares, warnings };
}
