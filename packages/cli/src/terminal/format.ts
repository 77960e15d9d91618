// Formats numbers and times for tables.

const UNITS: [secs: number, name: string][] = [
  [86_400, "d"],
  [3600, "h"],
  [60, "m"],
  [1, "s"],
];

/** 42s, 5m, 3h, 2d: the largest unit, rounded down */
export function formatDuration(secs: number): string {
  const [unit, name] = UNITS.find(([unit]) => secs >= unit) ?? [1, "s"];
  return `${Math.floor(Math.max(0, secs) / unit)}${name}`;
}

export function formatAge(unix: number, now: number = Date.now()): string {
  return formatDuration(now / 1000 - unix);
}

export function formatTime(unix: number | null): string {
  return unix === null ? "-" : new Date(unix * 1000).toISOString().replace("T", " ").slice(0, 19);
}

export function formatMs(ms: number | null): string {
  return ms === null ? "-" : `${ms.toFixed(1)} ms`;
}

export function formatMachine(machine: { vcpus: number; memory_mib: number; disk_mib: number | null }): string {
  const { vcpus, memory_mib: memory, disk_mib: disk } = machine;
  return `${vcpus} vCPU, ${memory} MiB${disk === null ? "" : `, ${disk} MiB of disk`}`;
}

/** a=1 b=2, or - */
export function formatPairs(pairs: Record<string, string>): string {
  return (
    Object.entries(pairs)
      .map(([key, value]) => `${key}=${value}`)
      .join(" ") || "-"
  );
}
