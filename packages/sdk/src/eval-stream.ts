// Eval whose output and results are streamed while the code runs.

import { ConnectionError, errorOfProblem, ForkdError } from "./errors.ts";
import { parseJson, serverEventsOf } from "./streams.ts";
import type { Call, Client } from "./client.ts";
import type { EvalHandlers } from "./options.ts";
import type { DisplayResult, EvalEnd, EvalResult, Problem } from "./schema.gen.ts";

/** Limit of stdout, and of stderr, in the result; callbacks get all output */
const MAX_KEPT = 8 * 1024 * 1024;

export async function streamedEval(client: Client, path: string, call: Call, handlers: EvalHandlers): Promise<EvalResult> {
  const kept = { stdout: "", stderr: "" };
  const results: DisplayResult[] = [];
  let isCut = false;
  const headers = { accept: "text/event-stream" };
  for await (const { type, data } of serverEventsOf(client.stream("POST", path, { ...call, headers }))) {
    const value = parseJson(data);
    switch (type) {
      case "stdout":
      case "stderr": {
        const { text } = value as { text: string };
        isCut ||= kept[type].length + text.length > MAX_KEPT;
        kept[type] += text.slice(0, MAX_KEPT - kept[type].length);
        await (type === "stdout" ? handlers.onStdout : handlers.onStderr)?.(text);
        break;
      }
      case "result":
        results.push(value as DisplayResult);
        await handlers.onResult?.(value as DisplayResult);
        break;
      case "end": {
        const end = value as EvalEnd;
        return { ...end, ...kept, results, truncated: end.truncated || isCut };
      }
      case "error":
        throw errorOfProblem(value as Problem);
      default:
        throw new ForkdError("BAD_ANSWER", `Code that runs has no event of the type ${JSON.stringify(type)}.`);
    }
  }
  throw new ConnectionError("DAEMON_UNREACHABLE", "The daemon stopped while the code ran, which was interrupted.");
}
