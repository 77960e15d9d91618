// Signatures of packs: ed25519 over the bytes of the manifest, which has the digests of everything else.

import { createHash, createPublicKey, sign, verify, type KeyObject } from "node:crypto";
import * as z from "zod";
import { ForkdError } from "../errors.ts";
import { canonicalJson, packInvalid } from "./manifest.ts";
import { schemaProblem } from "../util/schema-problem.ts";

export const MAX_SIGNATURES_BYTES: number = 64 * 1024;
const KEY_PREFIX = "forkd-ed25519:";
/** DER prefix of a 32-byte public key */
const SPKI = Buffer.from("302a300506032b6570032100", "hex");

const signature = z.strictObject({
  algorithm: z.literal("ed25519"),
  keyId: z.string().regex(/^[0-9a-f]{64}$/),
  publicKey: z.string(),
  signature: z.base64().max(128),
});
const signatures = z.strictObject({ signatures: z.array(signature).max(16) });

export type Signature = z.infer<typeof signature>;
export type Signer = (bytes: Buffer) => Signature;

/** "any": no requirement; "known": a signed pack must be signed by a known key; "required": signed by a known key */
export const TRUST = ["any", "known", "required"] as const;
export type TrustPolicy = (typeof TRUST)[number];
export type Trust = { policy: TrustPolicy; keys: ReadonlySet<string> };

export function signerOf(key: KeyObject): Signer {
  const publicKey = publicText(createPublicKey(key));
  return (bytes) => ({ algorithm: "ed25519", keyId: keyId(publicKey), publicKey, signature: sign(null, bytes, key).toString("base64") });
}

/** A public key as text */
export function publicText(key: KeyObject): string {
  return KEY_PREFIX + key.export({ format: "der", type: "spki" }).subarray(SPKI.length).toString("base64url");
}

/** The fingerprint of a public key; throws BAD_REQUEST for an invalid one */
export function keyId(publicKey: string): string {
  return createHash("sha256").update(rawKey(publicKey)).digest("hex");
}

export function encodeSignatures(list: readonly Signature[]): Buffer {
  return canonicalJson({ signatures: list });
}

export function parseSignatures(bytes: Buffer): Signature[] {
  if (bytes.length > MAX_SIGNATURES_BYTES) throw packInvalid("its signatures are too large");
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString());
  } catch (error) {
    throw packInvalid("its signatures are not JSON", error);
  }
  const parsed = signatures.safeParse(value);
  if (!parsed.success) throw packInvalid(`its signatures are not valid: ${schemaProblem(parsed.error)}`);
  if (!canonicalJson(parsed.data).equals(bytes)) throw packInvalid("its signatures are not in canonical form");
  return parsed.data.signatures;
}

/** Throws PACK_UNTRUSTED; returns the known key that signed it, if any. An existing signature must be valid under every policy */
export function checkTrust(manifestBytes: Buffer, list: readonly Signature[], trust: Trust): string | null {
  const refuse = (why: string, hint: string): ForkdError =>
    new ForkdError("PACK_UNTRUSTED", `Cannot use this pack: ${why}.`, { hint, details: { signed_by: list.map((one) => one.keyId) } });
  for (const { publicKey, keyId: id, signature: bytes } of list) {
    const raw = Buffer.from(bytes, "base64");
    const isRight =
      isKey(publicKey) &&
      keyId(publicKey) === id &&
      raw.toString("base64") === bytes &&
      verify(null, manifestBytes, keyObject(publicKey), raw);
    if (!isRight)
      throw refuse(`its signature by ${id.slice(0, 16)} is wrong`, "It was changed after it was signed; get it from its source again.");
  }
  const known = list.find((one) => trust.keys.has(one.keyId))?.keyId ?? null;
  if (known !== null || trust.policy === "any") return known;
  if (list.length > 0) {
    const ids = list.map((one) => one.keyId.slice(0, 16)).join(", ");
    throw refuse(`it is signed by ${ids}, which is not a known key`, "If the key is right, 'forkd key trust' makes it known.");
  }
  if (trust.policy === "known") return null;
  throw refuse("it is not signed", "Have it packed with --sign, or change the daemon's setting pack_trust.");
}

function isKey(publicKey: string): boolean {
  const text = publicKey.slice(KEY_PREFIX.length);
  const raw = Buffer.from(text, "base64url");
  return publicKey.startsWith(KEY_PREFIX) && raw.length === 32 && raw.toString("base64url") === text;
}

function rawKey(publicKey: string): Buffer {
  if (!isKey(publicKey))
    throw new ForkdError("BAD_REQUEST", "Cannot use this public key: it is not of the form forkd-ed25519:….", {
      hint: "'forkd key show NAME' prints it where the key is.",
    });
  return Buffer.from(publicKey.slice(KEY_PREFIX.length), "base64url");
}

function keyObject(publicKey: string): KeyObject {
  return createPublicKey({ key: Buffer.concat([SPKI, rawKey(publicKey)]), format: "der", type: "spki" });
}
