// The error of a fork that no node can take.

import { ForkdError, type ErrorCode } from "@forkd/runtime/errors";
import type { Lack } from "./lack.ts";
import type { Refused } from "./place.ts";

/** Nodes named for each reason, and reasons named: a cluster may have thousands */
const NODES_NAMED = 3;
const REASONS_NAMED = 6;
const NODES_IN_DETAILS = 100;

export function refusalError(tag: string, { lacks }: Refused): ForkdError {
  if (lacks.length === 0) return new ForkdError("DAEMON_UNREACHABLE", `Cannot fork ${tag}: no node of the cluster is known.`);
  const reasons = [...Map.groupBy(lacks, ({ lack }) => lack.what)].sort(([, a], [, b]) => b.length - a.length);
  const named = reasons.slice(0, REASONS_NAMED).map(([what, members]) => `${what}: ${namesOf(members.map(({ node }) => node))}`);
  const rest = reasons.length - named.length;
  const more = rest > 0 ? `; and ${rest} other reasons` : "";
  const details = Object.fromEntries(lacks.slice(0, NODES_IN_DETAILS).map(({ node, lack }) => [node, lack.what]));
  return new ForkdError(codeOf(lacks.map(({ lack }) => lack)), `Cannot fork ${tag} on any node: ${named.join("; ")}${more}.`, {
    hint: hintOf(lacks.map(({ lack }) => lack)),
    details: { nodes: details },
  });
}

/** A client repeats LIMIT_REACHED; the other codes stay until the cluster or the request changes */
function codeOf(lacks: readonly Lack[]): ErrorCode {
  const has = (...kinds: Lack["kind"][]): boolean => lacks.some(({ kind }) => kinds.includes(kind));
  if (has("room", "cordon")) return "LIMIT_REACHED";
  if (has("isolation")) return "ISOLATION_UNAVAILABLE";
  return has("engine") ? "SNAPSHOT_INCOMPATIBLE" : has("snapshot") ? "NOT_FOUND" : "FORBIDDEN";
}

function hintOf(lacks: readonly Lack[]): string {
  return codeOf(lacks) === "LIMIT_REACHED"
    ? "End sandboxes that are not needed, uncordon a node or add one, and try again."
    : "Use a node that fits, make the snapshot again on one of these nodes, or change the nodes that the project may use.";
}

function namesOf(codes: readonly string[]): string {
  const rest = codes.length - NODES_NAMED;
  return `${codes.slice(0, NODES_NAMED).join(", ")}${rest > 0 ? ` and ${rest} more` : ""}`;
}
