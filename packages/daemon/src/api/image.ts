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
    source: z.looseObject({ kind: z.enum(["packages", "oci", "import", "pack"]) }).meta({ description: "Where it comes from" }),
    config: z.strictObject({
      env: z.record(z.string(), z.string()),
      cwd: z.string(),
      user: z.string(),
      entrypoint: z.array(z.string()),
      cmd: z.array(z.string()),
    }),
  })
  .meta({ id: "Image" });

/** The answer to its making */
export const createdImage = imageInfo
  .extend({ reused: z.boolean().meta({ description: "Whether an earlier build from the same inputs was taken" }) })
  .meta({ id: "CreatedImage" });

const absolutePath = z.string().max(4096).regex(/^\//, "must be absolute");
const maxBytes = z.int().min(1).optional().meta({ description: "Limit of the unpacked size" });

export const createImage = z
  .union([
    z.strictObject({
      name,
      packages: z
        .array(z.string().regex(/^[a-z0-9][a-z0-9+.-]*(:[a-z0-9]+)?(=[A-Za-z0-9.+:~-]+)?$/, "must be a package name"))
        .max(1000)
        .meta({ description: "None: a minimal Debian" }),
      copy: z
        .array(
          z.strictObject({
            from: absolutePath.meta({ description: "File or folder of the daemon's machine" }),
            to: absolutePath.meta({ description: "Path in the image" }),
          }),
        )
        .max(1000)
        .optional()
        .meta({ description: "Copied into the new root before the commands; only through the Unix socket" }),
      run: z.array(z.string()).max(64).optional().meta({ description: "Shell commands inside the new root, in order" }),
      suite: z
        .string()
        .max(64)
        .regex(/^[a-z0-9][a-z0-9.-]*$/, "must be the name of a release")
        .optional()
        .meta({ description: "Release of the distribution; without it, the one of the daemon's machine" }),
      mirror: z
        .string()
        .max(2048)
        .regex(/^(https?|file|copy):\//, "must be an http, https or file address")
        .optional()
        .meta({ description: "Where packages come from; without it, the apt sources of the daemon's machine" }),
      max_bytes: maxBytes,
      force: z.boolean().optional().meta({ description: "Build even when an image made from the same inputs is there" }),
    }),
    z.strictObject({
      name: name.optional(),
      reference: z.string().min(1).max(512).meta({ description: "An image of an OCI registry" }),
      insecure_http: z.boolean().optional(),
      username: z.string().optional(),
      password: z.string().optional(),
      max_bytes: maxBytes,
    }),
    z.strictObject({
      name,
      file: absolutePath.meta({ description: "An archive, or a folder that is an OCI layout; only through the Unix socket" }),
      max_bytes: maxBytes,
    }),
  ])
  .meta({ id: "CreateImage" });

export type ImageInfo = z.infer<typeof imageInfo>;
export type CreatedImage = z.infer<typeof createdImage>;
export type CreateImage = z.infer<typeof createImage>;
