// Interpreters of a sandbox, each with its own state.

import * as z from "zod";
import { env } from "./common.ts";
import { language } from "./exec.ts";

export const createContext = z
  .strictObject({
    language,
    cwd: z.string().min(1).max(4096).optional().meta({ description: "Where it begins; without it, /" }),
    env: env.optional(),
  })
  .meta({ id: "CreateContext" });

export const contextInfo = z
  .strictObject({
    id: z.string().meta({ description: "That of the first one of a language is the language's name. Stays the same in forks" }),
    language,
    cwd: z.string().meta({ description: "Where it began" }),
    state: z.enum(["running", "ended"]).meta({ description: "One that has ended can be restarted" }),
  })
  .meta({ id: "Context" });

export type CreateContext = z.infer<typeof createContext>;
export type ContextInfo = z.infer<typeof contextInfo>;
