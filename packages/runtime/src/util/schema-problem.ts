// What is wrong with a document that does not match its schema, in a text of bounded length.

import * as z from "zod";

/** A document can have any number of wrong values, and any name */
const MAX_CHARACTERS = 2000;

export function schemaProblem(error: z.ZodError): string {
  const text = z.prettifyError(error);
  return text.length <= MAX_CHARACTERS ? text : `${text.slice(0, MAX_CHARACTERS)}…`;
}
