// DNS answers for one sandbox: names that its rules allow, with the addresses that the rules let through.

import { formatAddress, type Address } from "./addresses.ts";
import { addressAnswer, RCODE, readQuestion, TYPE, writeAnswer, type Answer, type Question } from "./dns.ts";
import type { Network } from "./network.ts";
import type { Rules } from "./policy.ts";

/** Name of the host for programs in a guest, where localhost is the guest itself */
export const HOST_NAME = "host.forkd.internal";
export const HOST_IP = "192.0.2.1";
export const LOOPBACK: Address = { family: 4, value: 0x7f000001n };
const TTL_SECS = 60;

export type Reply = {
  response: Buffer;
  /** addresses that the program learned */
  name: string;
  addresses: string[];
  /** the refused name, if any */
  refused: string | null;
};

type Found = { rcode: number; answers: Answer[]; addresses?: string[]; refused?: string };

/** undefined: the query cannot be answered. `mayAsk`: whether the rate limit allows an upstream query now */
export async function answerQuery(
  message: Buffer,
  opts: { rules: Rules; network: Network; owner: string; limit: number; mayAsk: () => boolean },
): Promise<Reply | undefined> {
  const asked = readQuestion(message);
  if (!asked) return undefined;
  const nothing = { name: "", addresses: [], refused: null };
  if (asked.problem !== null) return { ...nothing, response: writeAnswer(asked.question, asked.problem, [], opts.limit) };
  const { question } = asked;
  const found = await find(question, opts);
  const response = writeAnswer(question, found.rcode, found.answers, opts.limit);
  return { response, name: question.name ?? "", addresses: found.addresses ?? [], refused: found.refused ?? null };
}

async function find(
  { name, type }: Question,
  { rules, network, owner, mayAsk }: { rules: Rules; network: Network; owner: string; mayAsk: () => boolean },
): Promise<Found> {
  if (name === undefined) return { rcode: RCODE.noSuchName, answers: [] };
  if (name === HOST_NAME && rules.names(LOOPBACK)) {
    const isAsked = type === TYPE.A;
    return isAsked ? found([HOST_IP], TTL_SECS) : { rcode: RCODE.ok, answers: [] };
  }
  if (!rules.allowsName(name)) return { rcode: RCODE.noSuchName, answers: [], refused: name };
  const isAddress = type === TYPE.A || type === TYPE.AAAA;
  if (!isAddress && type !== TYPE.TXT && type !== TYPE.MX && type !== TYPE.SRV) return { rcode: RCODE.ok, answers: [] };
  if (!mayAsk()) return { rcode: RCODE.failed, answers: [] };
  if (!isAddress) {
    const answers = await network.names.records(owner, name, type);
    return { rcode: answers ? RCODE.ok : RCODE.failed, answers: answers ?? [] };
  }
  const lookup = await network.names.lookup(owner, name, type === TYPE.A ? 4 : 6);
  if (lookup.status === "failed") return { rcode: RCODE.failed, answers: [] };
  if (lookup.status === "missing") return { rcode: RCODE.noSuchName, answers: [] };
  const allowed = lookup.addresses.filter(
    (address) => rules.decide({ address, port: undefined, names: [name], isOwn: network.isOwn(address) }).allowed,
  );
  return found(allowed.map(formatAddress), lookup.ttl);
}

function found(addresses: string[], ttl: number): Found {
  return { rcode: RCODE.ok, addresses, answers: addresses.flatMap((text) => addressAnswer(text, ttl) ?? []) };
}
