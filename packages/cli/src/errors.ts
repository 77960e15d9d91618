// Errors of the CLI itself. They have the shape of the daemon's ForkdError, whose module would slow down every command.

import { CommanderError } from "commander";

/** What failed: why. What to do. */
export function failure(code: string, message: string, hint: string, cause?: unknown): Error {
  const error = new Error(message, cause === undefined ? undefined : { cause });
  error.name = "ForkdError";
  return Object.assign(error, { code, hint });
}

/** The command line is invalid; exit code 2 */
export function usageError(message: string): CommanderError {
  return new CommanderError(2, "forkd.usage", message);
}

/** The code of an error of forkd, of the operating system, or of the daemon */
export function codeOf(error: unknown): string | undefined {
  const code: unknown = error instanceof Error ? (error as Error & { code?: unknown }).code : undefined;
  return typeof code === "string" ? code : undefined;
}
