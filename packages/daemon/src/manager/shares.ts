// Who may share which folders of the daemon's machine, and which shares a fork has from its snapshot.

import { realpath } from "node:fs/promises";
import { ForkdError } from "../errors.ts";
import type { Share } from "../share/server.ts";
import { checkShares, isBelow } from "../share/source.ts";
import { isLocal, type Caller } from "./caller.ts";
import type { Core, Settings } from "./core.ts";

/** The shares that were asked for, if they may be and can be; throws FORBIDDEN or SHARE_FAILED */
export async function allowedShares({ home, settings }: Core, wanted: readonly Share[], caller: Caller): Promise<Share[]> {
  // before anything is told of them: what exists on this machine is nobody's business either
  await refuseForeign(wanted, settings, caller);
  const shares = await checkShares(wanted, home);
  // a link may lead elsewhere since
  await refuseForeign(shares, settings, caller);
  return shares;
}

async function refuseForeign(shares: readonly Share[], { shareRoots }: Settings, caller: Caller): Promise<void> {
  if (isLocal(caller)) return;
  const roots = shareRoots === null || !caller.isAdmin ? [] : shareRoots.split(",");
  const allowed = await Promise.all(shares.map(async ({ source }) => isInOne(roots, source)));
  if (allowed.every(Boolean)) return;
  throw new ForkdError(
    "FORBIDDEN",
    "Cannot use shares: they name folders of the daemon's machine, and the request came over the network.",
    {
      hint: "Ask on that machine as the daemon's user, or with a token of scope admin for a folder in the setting share_roots.",
    },
  );
}

async function isInOne(roots: readonly string[], source: string): Promise<boolean> {
  for (const root of roots) {
    // one that does not exist holds nothing
    const real = await Promise.all([realpath(source), realpath(root)]).catch(() => undefined);
    if (real && isBelow(...real)) return true;
  }
  return false;
}

/**
 * The shares of the sandbox from which a snapshot was branched: who shared them with it shared them with its descendants.
 * Those whose folder is no more are named.
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
