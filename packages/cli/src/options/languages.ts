// The languages of warm interpreters.

import type { Language } from "forkd";

export const LANGUAGES = ["python", "node", "typescript", "r", "java", "bash"] as const satisfies readonly Language[];
