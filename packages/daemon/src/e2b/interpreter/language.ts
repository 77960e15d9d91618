// Language names of E2B's code interpreter, mapped to forkd's.

import { ForkdError } from "@forkd/runtime/errors";
import type { ContextInfo } from "../../api/contexts.ts";

type Language = ContextInfo["language"];

const OURS: Record<string, Language> = {
  python: "python",
  python3: "python",
  javascript: "node",
  js: "node",
  typescript: "typescript",
  ts: "typescript",
  r: "r",
  java: "java",
  bash: "bash",
};

export function ourLanguage(name: string): Language {
  const language = OURS[name.toLowerCase()];
  if (language) return language;
  throw new ForkdError(
    "NOT_FOUND",
    `Cannot run ${JSON.stringify(name)}: the languages are python, javascript, typescript, r, java and bash.`,
  );
}

export function theirLanguage(language: Language): string {
  return language === "node" ? "javascript" : language;
}
