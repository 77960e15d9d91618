// Maps the agent's file errors to forkd's.

import { ForkdError, type ErrorCode } from "../../errors.ts";
import { AgentError } from "../wire/stream.ts";

const CODES: { readonly [errno: string]: ErrorCode } = {
  ENOENT: "FILE_NOT_FOUND",
  EEXIST: "FILE_EXISTS",
  ENOTEMPTY: "FILE_EXISTS",
  EACCES: "FILE_DENIED",
  EPERM: "FILE_DENIED",
  EROFS: "FILE_DENIED",
  ENOSPC: "FILE_NO_SPACE",
  EDQUOT: "FILE_NO_SPACE",
  no_such_user: "BAD_REQUEST",
  bad_archive: "BAD_REQUEST",
};

/** Only a plain identifier of the guest's answer gets into the message */
export const ERRNO = /^E[A-Z0-9]{1,20}$/;

/** The failed action, as in "Cannot … in the guest" */
export type Deed = `${string} ${string}`;

export function deed(verb: string, path: string): Deed {
  return `${verb} ${JSON.stringify(path)}`;
}

/** The outcome of the call, with the agent's errors as file errors */
export async function fileCall<V>(what: Deed, call: Promise<V>): Promise<V> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof AgentError) throw fileError(what, error);
    throw error;
  }
}

export function fileError(what: Deed, error: AgentError): ForkdError {
  const details = ERRNO.test(error.errno) ? { details: { errno: error.errno } } : {};
  return new ForkdError(CODES[error.errno] ?? "FILE_FAILED", `Cannot ${what} in the guest: ${error.message}.`, {
    cause: error,
    ...details,
  });
}
