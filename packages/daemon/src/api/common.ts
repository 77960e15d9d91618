// Schemas that several nouns of the API share. api/ is data: schemas and routes, no work.

import * as z from "zod";
import { NAME, QUALIFIED_NAME as REFERENCE } from "@forkd/runtime/util/name";

/** Names of tags, sandboxes, images, tokens and workspaces. Lower layers check them again before they become paths */
export const name = z
  .string()
  .regex(NAME, "must be 1 to 64 letters, digits, '.', '_' or '-', starting with a letter, a digit or '_'")
  .refine((text) => !text.endsWith(".tmp"), "must not end with .tmp")
  .meta({ id: "Name", description: "1 to 64 letters, digits, '.', '_' or '-', starting with a letter, a digit or '_'" });

export const sandboxId = name.meta({ description: "Id or name of a sandbox" });
/** Parameters of the paths below one sandbox */
export const bySandbox = z.strictObject({ id: sandboxId });

export const metadata = z
  .record(z.string().min(1).max(64), z.string().max(1024))
  .refine((entries) => Object.keys(entries).length <= 64, "must have at most 64 entries")
  .meta({ id: "Metadata", description: "At most 64 pairs of text, kept for you and never read by forkd" });

export const env = z
  .record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, "must be a name of letters, digits and '_'"), z.string().max(32_768))
  .refine((entries) => Object.keys(entries).length <= 256, "must have at most 256 entries")
  .meta({ id: "Env", description: "Environment of every process" });

export const scope = z.enum(["read", "exec", "admin", "operator"]).meta({
  id: "Scope",
  description:
    "read: look at everything of the project; exec: also fork, use, branch and end sandboxes; admin: everything in the project; operator: every project, and the daemon itself",
});

export const projectName = name.meta({ description: "Name of a project" });

/** NAME of the own project, or PROJECT/NAME, which reaches the public snapshots of another one */
export const reference = z
  .string()
  .regex(REFERENCE, "must be NAME or PROJECT/NAME, each 1 to 64 letters, digits, '.', '_' or '-', starting with a letter, a digit or '_'")
  .refine((text) => !text.endsWith(".tmp"), "must not end with .tmp")
  .meta({ id: "Reference", description: "NAME, or PROJECT/NAME of another project" });

export const unixSeconds = z.int().min(0);

/** Fields that are accepted for older clients without effect are named in the answer */
export const warnings = z.array(z.string()).meta({ description: "What was accepted and has no effect" });

export const problem = z
  .strictObject({
    error: z.string().meta({ description: "What failed: why" }),
    code: z.string().meta({ description: "Stable, see docs/errors.md" }),
    hint: z.string().meta({ description: "What to do" }),
    request_id: z.string(),
    details: z.record(z.string(), z.unknown()).optional(),
  })
  .meta({ id: "Problem" });

/** Lists stay plain arrays; the header X-Next-Cursor of a full page is the next page's `cursor` */
export const page = {
  limit: z.coerce.number().int().min(1).max(1000).optional().meta({ description: "Entries per page; without it, all" }),
  cursor: z.string().max(256).optional().meta({ description: "X-Next-Cursor of the page before" }),
};

/** `?flag`, `?flag=true`, `?flag=1` */
export const flag = z
  .enum(["", "true", "false", "1", "0"])
  .transform((text) => text !== "false" && text !== "0")
  .optional();

/** `?metadata=key=value`, once or several times */
export const metadataFilter = z
  .union([z.string(), z.array(z.string()).max(64)])
  .transform((given) => (Array.isArray(given) ? given : [given]))
  .refine((pairs) => pairs.every((pair) => pair.indexOf("=") > 0), "must be key=value")
  .optional()
  .meta({ description: "key=value, may be repeated" });

export const NO_EFFECT = "Of the older API, without effect";

const ignored = z.boolean().optional().meta({ description: NO_EFFECT });

/** Fields of the older API that are without effect here */
export const legacyFields = { per_child_netns: ignored, prewarm: ignored, live_fork: ignored, hugepages: ignored };

export type Scope = z.infer<typeof scope>;
export type Problem = z.infer<typeof problem>;
export type Metadata = z.infer<typeof metadata>;
