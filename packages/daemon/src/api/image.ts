// Images: root file systems.

import * as z from "zod";
import { name } from "./common.ts";
import type { Route } from "./route.ts";

const imageInfo = z
  .strictObject({
    id: z.string(),
    names: z.array(z.string()).meta({ description: "Its names in the project" }),
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
const createdImage = imageInfo
  .extend({ reused: z.boolean().meta({ description: "Whether an earlier build from the same inputs was taken" }) })
  .meta({ id: "CreatedImage" });

export const packageName = z.string().regex(/^[a-z0-9][a-z0-9+.-]*(:[a-z0-9]+)?(=[A-Za-z0-9.+:~-]+)?$/, "must be a package name");

const absolutePath = z.string().max(4096).regex(/^\//, "must be absolute");
const maxBytes = z.int().min(1).optional().meta({ description: "Limit of the unpacked size" });

const createImage = z
  .union([
    z.strictObject({
      name: name.meta({ description: "Name of the new image" }),
      packages: z.array(packageName).max(1000).meta({ description: "Debian packages; an empty list is a minimal Debian" }),
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
      name: name.optional().meta({ description: "Name of the new image; without it, the last part of the reference, with its tag" }),
      reference: z.string().min(1).max(512).meta({ description: "An image of an OCI registry" }),
      insecure_http: z.boolean().optional().meta({ description: "Plain http to a registry that is not the daemon's machine" }),
      username: z.string().optional().meta({ description: "For the registry" }),
      password: z.string().optional().meta({ description: "For the registry" }),
      max_bytes: maxBytes,
    }),
    z.strictObject({
      name: name.meta({ description: "Name of the new image" }),
      file: absolutePath.meta({ description: "An archive, or a folder that is an OCI layout; only through the Unix socket" }),
      max_bytes: maxBytes,
    }),
  ])
  .meta({ id: "CreateImage" });

const byImage = z.strictObject({ name: z.string().min(1).max(128).meta({ description: "Name or id of an image" }) });

export const imageRoutes = {
  listImages: {
    method: "GET",
    path: "/v1/images",
    scope: "read",
    summary: "Images",
    responses: { 200: z.array(imageInfo) },
    acrossProjects: true,
  },
  createImage: {
    method: "POST",
    path: "/v1/images",
    scope: "admin",
    summary: "Builds an image from packages, pulls one from a registry, or imports an archive",
    body: createImage,
    responses: { 201: createdImage },
    progress: true,
  },
  getImage: {
    method: "GET",
    path: "/v1/images/:name",
    scope: "read",
    summary: "One image",
    params: byImage,
    responses: { 200: imageInfo },
  },
  deleteImage: {
    method: "DELETE",
    path: "/v1/images/:name",
    scope: "admin",
    summary: "Removes a name of an image, and its data with the last name",
    params: byImage,
    responses: { 204: "empty" },
  },
} as const satisfies Record<string, Route>;

export type ImageInfo = z.infer<typeof imageInfo>;
export type CreatedImage = z.infer<typeof createdImage>;
export type CreateImage = z.infer<typeof createImage>;
