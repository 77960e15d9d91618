// The daemon's log as JSON lines, without tokens, headers and bodies.

import { pino } from "pino";
import type { DestinationStream, Logger as PinoLogger } from "pino";
import type { LogLevel } from "../config.ts";

export type Logger = PinoLogger;

/** Redacted as a second safeguard: callers must not log these fields */
const SECRET_FIELDS = ["token", "authorization", "password"];

/** Synchronous, so that the last line before a crash is written */
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
