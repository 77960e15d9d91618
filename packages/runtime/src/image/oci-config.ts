// Converts the configuration of an OCI image.

import { ForkdError } from "../errors.ts";
import { PLATFORM } from "../host/platform.ts";
import type { ImageConfig } from "./manifest.ts";
import type { OciConfig } from "../oci/schema.ts";

/** Checks that the image runs on this platform, and converts its configuration */
export function toImageConfig(oci: OciConfig, layers: number, what: string): ImageConfig {
  const own = `linux/${PLATFORM.packages}`;
  const platform = `${oci.os ?? "linux"}/${oci.architecture ?? PLATFORM.packages}`;
  if (platform !== own) throw new ForkdError("IMAGE_INVALID", `Cannot use ${what}: it is for ${platform}, and guests are ${own}.`);
  if (oci.rootfs.diff_ids.length !== layers)
    throw new ForkdError(
      "IMAGE_INVALID",
      `Cannot use ${what}: it has ${layers} layers and its configuration speaks of ${oci.rootfs.diff_ids.length}.`,
    );
  const env: Record<string, string> = Object.create(null) as Record<string, string>;
  for (const line of oci.config?.Env ?? []) {
    const at = line.indexOf("=");
    if (at > 0) env[line.slice(0, at)] = line.slice(at + 1);
  }
  const cwd = oci.config?.WorkingDir || "/";
  return {
    env: { ...env },
    cwd: cwd.startsWith("/") ? cwd : `/${cwd}`,
    user: oci.config?.User ?? "",
    entrypoint: oci.config?.Entrypoint ?? [],
    cmd: oci.config?.Cmd ?? [],
  };
}
