// What a project may be limited in: names for people and for the command line, and the share of a limit that is used. Pure.

import { bytes, mib } from "../format.ts";
import type { Quota, QuotaUse } from "forkd";

export type QuotaKind = { key: keyof Quota; label: string; flag: string; show: (value: number) => string };
export type Used = QuotaKind & { used: number; limit: number | null; percent: number | null; text: string };

const plain = (value: number): string => value.toLocaleString("en");

export const QUOTA_KINDS: readonly QuotaKind[] = [
  { key: "sandboxes", label: "Sandboxes", flag: "--sandboxes", show: plain },
  { key: "suspended", label: "Suspended", flag: "--suspended", show: plain },
  { key: "vcpus", label: "CPUs", flag: "--vcpus", show: plain },
  { key: "memory_mib", label: "Memory", flag: "--memory-mib", show: mib },
  { key: "snapshots", label: "Snapshots", flag: "--snapshots", show: plain },
  { key: "storage_bytes", label: "Storage", flag: "--storage-bytes", show: bytes },
  { key: "forks_per_minute", label: "Forks in a minute", flag: "--forks-per-minute", show: plain },
  { key: "egress_bytes", label: "Bytes out this month", flag: "--egress-bytes", show: bytes },
  { key: "requests_per_second", label: "Requests in a second", flag: "--requests-per-second", show: plain },
];

/** Limited kinds first; `percent` null: there is no limit */
export function usesOf({ limits, used }: Pick<QuotaUse, "limits" | "used">): Used[] {
  const all = QUOTA_KINDS.map((kind): Used => {
    const [limit, value] = [limits[kind.key], used[kind.key]];
    const percent = limit === null ? null : limit === 0 ? 100 : Math.min(100, Math.round((value / limit) * 100));
    const text = limit === null ? kind.show(value) : `${kind.show(value)} of ${kind.show(limit)}`;
    return { ...kind, used: value, limit, percent, text };
  });
  return [...all.filter(({ limit }) => limit !== null), ...all.filter(({ limit }) => limit === null)];
}

/** What differs between the limits and the typed ones, in which an empty text is no limit */
export function changesOf(limits: Quota, typed: Readonly<Partial<Record<keyof Quota, string>>>): Map<QuotaKind, number | null> {
  const changes = new Map<QuotaKind, number | null>();
  for (const kind of QUOTA_KINDS) {
    const text = typed[kind.key];
    if (text === undefined) continue;
    const value = text.trim() === "" ? null : Number(text);
    if (value !== limits[kind.key]) changes.set(kind, value);
  }
  return changes;
}

/** Options of `forkd project set` and `create` */
export function flagsOf(changes: ReadonlyMap<QuotaKind, number | null>): string[] {
  return [...changes].flatMap(([{ flag }, value]) => [flag, value === null ? "none" : String(value)]);
}
