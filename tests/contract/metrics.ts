// Parser of the daemon's metrics: values by name and labels.

import type { SpecClient } from "../helpers/spec-client.ts";

export async function metricsOf(rest: SpecClient): Promise<Map<string, number>> {
  const { bytes } = await rest.send("GET", "/metrics");
  const lines = bytes.toString().split("\n");
  return new Map(
    lines.flatMap((line): [string, number][] => {
      const at = line.lastIndexOf(" ");
      return line.startsWith("#") || at < 0 ? [] : [[line.slice(0, at), Number(line.slice(at + 1))]];
    }),
  );
}
