// What a guest's refusal to do something with a file means.

import { ForkdError, type ErrorCode } from "../errors.ts";
import { AgentError } from "./stream.ts";

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

/** A name, so that what a guest says does not become anything else */
const ERRNO = /^E[A-Z0-9]{1,20}$/;

/** What was tried, as in "Cannot … in the guest" */
export type Deed = `${string} ${string}`;

export function deed(verb: string, path: string): Deed {
  return `${verb} ${JSON.stringify(path)}`;
}

/** The call's outcome, with the agent's errors as errors of files */
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
