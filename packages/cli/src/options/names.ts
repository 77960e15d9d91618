// Names of images, snapshots and recipes.

/** Names that the daemon accepts */
export const NAME = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$/;

/** The name under which a pulled image is stored: example.org/owner/python:3.13-slim@sha256:… is python-3.13-slim */
export function imageNameOf(reference: string): string {
  const [withoutDigest = ""] = reference.split("@");
  return withoutDigest.slice(withoutDigest.lastIndexOf("/") + 1).replace(":", "-");
}
