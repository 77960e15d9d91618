// The code interpreter's server inside a sandbox, on port 49999.

import { ForkdError } from "../../errors.ts";
import type { AnyAnswer } from "../../http/handler.ts";
import type { SandboxWork } from "../work.ts";

export function serveInterpreter({ call }: SandboxWork): AnyAnswer {
  throw new ForkdError("NOT_FOUND", `There is no code interpreter at ${call.path}.`);
}
