// The daemon's own log: JSON lines. Never a token, never a header, never a body.

import { pino } from "pino";
import type { DestinationStream, Logger as PinoLogger } from "pino";
import type { LogLevel } from "../config.ts";

export type Logger = PinoLogger;

/** A second line of defence: nobody should log these in the first place */
const SECRET_FIELDS = ["token", "authorization", "password"];

/** Writes at once, so that the last line before a crash is there too */
export function createLog(level: LogLevel, destination: DestinationStream = pino.destination({ dest: 1, sync: true })): Logger {
  return pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: SECRET_FIELDS.flatMap((field) => [field, `*.${field}`, `*.*.${field}`]), censor: "…" },
    },
    destination,
  );
}
