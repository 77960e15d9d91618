// The languages of E2B's code interpreter, and ours.

import { ForkdError } from "../../errors.ts";
import type { ContextInfo } from "../../api/contexts.ts";

type Language = ContextInfo["language"];

const OURS: Record<string, Language> = {
  python: "python",
  python3: "python",
  javascript: "node",
  js: "node",
  bash: "bash",
};

export function ourLanguage(name: string): Language {
  const language = OURS[name.toLowerCase()];
  if (language) return language;
  throw new ForkdError("NOT_FOUND", `Cannot run ${JSON.stringify(name)}: the languages are python, javascript and bash.`);
}

export function theirLanguage(language: Language): string {
  return language === "node" ? "javascript" : language;
}
