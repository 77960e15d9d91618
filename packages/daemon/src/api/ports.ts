// Servers inside a sandbox: what listens, and links to it.

import * as z from "zod";
import { name, unixSeconds } from "./common.ts";

const MAX_PREVIEW_SECS = 7 * 24 * 3600;

export const byPort = z.strictObject({
  id: name.meta({ description: "Id or name of a sandbox" }),
  port: z.coerce.number().int().min(1).max(65_535).meta({ description: "Port inside the guest" }),
});

export const portInfo = z
  .strictObject({
    port: z.int(),
    address: z.string().meta({ description: "IP address inside the guest; 0.0.0.0 and :: are all of them" }),
    family: z.enum(["ipv4", "ipv6"]),
    protocol: z.literal("tcp"),
    process: z
      .strictObject({ pid: z.int(), name: z.string() })
      .nullable()
      .meta({ description: "The first process that has it open, where it could be found" }),
  })
  .meta({ id: "Port" });

export const createPreview = z
  .strictObject({ expires_in_secs: z.int().min(1).max(MAX_PREVIEW_SECS).default(3600) })
  .meta({ id: "CreatePreview" });

export const preview = z
  .strictObject({
    url: z.string().meta({ description: "Opens the server in a browser, without another token" }),
    token: z.string().meta({ description: "What the link holds; programs may send it as X-Forkd-Token to the link's host" }),
    expires_at_unix: unixSeconds,
  })
  .meta({ id: "Preview" });

export type PortInfo = z.infer<typeof portInfo>;
