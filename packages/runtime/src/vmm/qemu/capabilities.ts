// Capabilities of this QEMU on this host: machine types, and CPU models with their features.

import { createInterface } from "node:readline";
import * as z from "zod";
import { ForkdError } from "../../errors.ts";
import { startPiped } from "../../host/command.ts";
import { CANDIDATES, featuresOf, HOST_CPU, type CpuFacts } from "./cpu-model.ts";

const WITHIN_MS = 20_000;

/** The model with all features that a guest can have */
const WHOLE = { kvm: HOST_CPU, tcg: "max" } as const;

const cpus = z.array(
  z.object({ name: z.string(), "unavailable-features": z.array(z.string()).optional(), "migration-safe": z.boolean().optional() }),
);
const machines = z.array(z.object({ name: z.string(), alias: z.string().optional() }));
const expansion = z.object({ model: z.object({ props: z.record(z.string(), z.unknown()) }) });

export type Capabilities = Omit<CpuFacts, "cpus"> & {
  machines: ReadonlySet<string>;
  /** by model: the features that this host lacks, and whether the model is the same on every host */
  cpus: ReadonlyMap<string, { missing: readonly string[]; isPortable: boolean }>;
};

export type CapabilityOptions = {
  /** a model whose features are queried besides those of the candidates */
  model?: string | undefined;
  signal?: AbortSignal | undefined;
};

/** Queries a QEMU without a machine */
export async function qemuCapabilities(qemu: string, accelerator: "kvm" | "tcg", opts: CapabilityOptions = {}): Promise<Capabilities> {
  const argv = [qemu, "-machine", "none", "-accel", accelerator, "-nodefaults", "-no-user-config", "-display", "none", "-qmp", "stdio"];
  const command = startPiped(argv, { timeoutMs: WITHIN_MS, signal: opts.signal });
  command.stdin.on("error", () => undefined); // the exit below has the reason
  const models = new Set([WHOLE[accelerator], ...CANDIDATES, ...(opts.model === undefined ? [] : [opts.model])]);
  const questions = questionsAbout(models);
  for (const question of questions) command.stdin.write(`${JSON.stringify(question)}\n`);
  const answers = new Map<unknown, unknown>();
  for await (const line of createInterface({ input: command.stdout })) {
    const reply = replyIn(line);
    if (reply?.id !== undefined) answers.set(reply.id, reply.return);
    // Only now: QEMU discards replies that wait for room in the pipe when it quits, which lost models on busy hosts
    if (answers.size === questions.length && !command.stdin.writableEnded) command.stdin.end(`${JSON.stringify({ execute: "quit" })}\n`);
  }
  await command.done;
  return readCapabilities(answers, accelerator, qemu);
}

/** @param answers QEMU's replies by request id */
export function readCapabilities(answers: ReadonlyMap<unknown, unknown>, accelerator: "kvm" | "tcg", qemu: string): Capabilities {
  const [models, types] = [cpus.safeParse(answers.get("query-cpu-definitions")), machines.safeParse(answers.get("query-machines"))];
  const whole = expansion.safeParse(answers.get(`cpu ${WHOLE[accelerator]}`));
  if (!models.success || !types.success || !whole.success)
    throw new ForkdError("HOST_COMMAND_FAILED", `${qemu} does not list its CPU models.`);
  const features = new Map<string, readonly string[]>();
  for (const { name } of models.data) {
    const { data } = expansion.safeParse(answers.get(`cpu ${name}`));
    if (data) features.set(name, featuresOf(data.model.props));
  }
  const { vendor } = whole.data.model.props;
  return {
    machines: new Set(types.data.flatMap(({ name, alias }) => [name, ...(alias === undefined ? [] : [alias])])),
    cpus: new Map(
      models.data.map((model) => [
        model.name,
        { missing: model["unavailable-features"] ?? [], isPortable: model["migration-safe"] === true },
      ]),
    ),
    vendor: typeof vendor === "string" ? vendor : "",
    offered: new Set(featuresOf(whole.data.model.props)),
    features,
  };
}

/** Undefined for a line that is no reply, such as a warning of a wrapper script */
function replyIn(line: string): { id?: unknown; return?: unknown } | undefined {
  try {
    return JSON.parse(line) as { id?: unknown; return?: unknown };
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function questionsAbout(models: Iterable<string>): object[] {
  const ask = (execute: string): object => ({ execute, id: execute });
  return [
    ask("qmp_capabilities"),
    ask("query-cpu-definitions"),
    ask("query-machines"),
    // Nested virtualisation is off, see cpuArg. QEMU replies with an error for an unknown model.
    ...[...models].map((name) => ({
      execute: "query-cpu-model-expansion",
      id: `cpu ${name}`,
      arguments: { type: "full", model: { name, props: { vmx: false, svm: false } } },
    })),
  ];
}
