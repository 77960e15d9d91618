// Signed file URLs: the signature permits reading or writing one file without a token.

import { createHash, timingSafeEqual } from "node:crypto";

export type Signed = { path: string; operation: "read" | "write"; user: string; expiration: string | null };

export function signatureOf({ path, operation, user, expiration }: Signed, token: string): string {
  const text = [path, operation, user, token, ...(expiration === null ? [] : [expiration])].join(":");
  return `v1_${createHash("sha256").update(text).digest("base64").replaceAll("=", "")}`;
}

export function isSignedBy(token: string, signed: Signed, signature: string): boolean {
  const right = Buffer.from(signatureOf(signed, token));
  const given = Buffer.from(signature);
  return given.length === right.length && timingSafeEqual(given, right);
}

/** Signature of a query, and the values it must sign; null: none */
export function signedIn(query: URLSearchParams, method: string): { signed: Signed; signature: string } | null {
  // an unencoded '+' is decoded as a space
  const signature = query.get("signature")?.replaceAll(" ", "+");
  if (signature === undefined) return null;
  return {
    signature,
    signed: {
      path: query.get("path") ?? "",
      operation: method === "GET" || method === "HEAD" ? "read" : "write",
      user: query.get("username") ?? "",
      expiration: query.get("signature_expiration"),
    },
  };
}
