// Images: root file systems.

import * as z from "zod";
import { name } from "./common.ts";

export const imageInfo = z
  .strictObject({
    id: z.string(),
    names: z.array(z.string()),
    created_at: z.string(),
    architecture: z.string(),
    bytes: z.int(),
    source: z.looseObject({ kind: z.enum(["packages", "oci", "import"]) }).meta({ description: "Where it comes from" }),
    config: z.strictObject({
      env: z.record(z.string(), z.string()),
      cwd: z.string(),
      user: z.string(),
      entrypoint: z.array(z.string()),
      cmd: z.array(z.string()),
    }),
  })
  .meta({ id: "Image" });

export const createImage = z
  .union([
    z.strictObject({
      name,
      packages: z
        .array(z.string().regex(/^[a-z0-9][a-z0-9+.:-]*$/, "must be a package name"))
        .min(1)
        .max(1000),
      run: z.array(z.string()).max(64).optional().meta({ description: "Shell commands inside the new root, in order" }),
      force: z.boolean().optional(),
    }),
    z.strictObject({
      name: name.optional(),
      reference: z.string().min(1).max(512).meta({ description: "An image of an OCI registry" }),
      insecure_http: z.boolean().optional(),
      username: z.string().optional(),
      password: z.string().optional(),
    }),
  ])
  .meta({ id: "CreateImage" });

export type ImageInfo = z.infer<typeof imageInfo>;
export type CreateImage = z.infer<typeof createImage>;
