// Egress policy: rules, and the decision about a connection or a name.

import { domainToASCII } from "node:url";
import * as z from "zod";
import { ForkdError } from "../errors.ts";
import { formatRange, isExact, isInside, parseRange, specialRangeOf, translatedOf, type Address, type Range } from "./addresses.ts";

const SMTP_PORT = 25;
/** Top-level domains of private networks, reserved or in common use */
const INTERNAL_ZONES = ["internal", "local", "localhost", "localdomain", "lan", "home", "home.arpa", "corp", "intranet", "private"];
const MAX_PORT = 65_535;
const MAX_NAME = 253;
const LABEL = /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/;

/** The stored form: in the journal, and in a snapshot for its forks */
export const networkPolicy = z.strictObject({
  mode: z.enum(["none", "allow", "open"]),
  allow: z.array(z.string()),
  /** exceptions of an open network */
  deny: z.array(z.string()).optional(),
  /** total bytes that may leave the sandbox; null: no limit */
  egressLimitBytes: z.int().min(0).nullable(),
});

export type NetworkPolicy = z.infer<typeof networkPolicy>;

export const NO_NETWORK: NetworkPolicy = { mode: "none", allow: [], egressLimitBytes: null };

type Ports = readonly { from: number; to: number }[];
type NameRule = { text: string; ports: Ports; name: string; isWildcard: boolean };
type RangeRule = { text: string; ports: Ports; range: Range };
type Rule = NameRule | RangeRule;

export type Target = {
  address: Address;
  /** undefined: all */
  port: number | undefined;
  /** names that the host resolved to this address; the guest's claims are not trusted */
  names: readonly string[];
  /** whether it is an address of the host */
  isOwn: boolean;
};

export type Decision = { allowed: true; reason: string; name: string | null } | { allowed: false; reason: string };

/** The parsed rules of a policy */
export class Rules {
  readonly mode: NetworkPolicy["mode"];
  readonly #names: NameRule[] = [];
  readonly #ranges: RangeRule[] = [];
  readonly #denied: RangeRule[];

  constructor({ mode, allow, deny = [] }: Pick<NetworkPolicy, "mode" | "allow" | "deny">) {
    this.mode = mode;
    this.#denied = deny.map(checkedRule).filter((rule) => "range" in rule);
    for (const text of allow) {
      const rule = checkedRule(text);
      if ("range" in rule) this.#ranges.push(rule);
      else this.#names.push(rule);
    }
  }

  /** Whether the name may be resolved: at least one port of it is allowed */
  allowsName(name: string): boolean {
    if (this.mode === "none") return false;
    return (this.mode === "open" && !isInternal(name)) || this.#names.some((rule) => nameMatches(rule, name));
  }

  /** Names that the rules allow for this port */
  candidates(names: readonly string[], port: number): string[] {
    if (this.mode === "none") return [];
    return names.filter((name) => this.#names.some((rule) => nameMatches(rule, name) && portMatches(rule.ports, port)));
  }

  /** Whether a rule names exactly this address */
  names(address: Address): boolean {
    return this.mode !== "none" && this.#ranges.some(({ range }) => isExact(range) && isInside(address, range));
  }

  decide({ address, port, names, isOwn }: Target): Decision {
    if (this.mode === "none") return { allowed: false, reason: "the network is off" };
    const special = specialRangeOf(address);
    const isLocal = isOwn || special?.kind === "loopback";
    const byRange = this.#ranges.find(({ range, ports }) => {
      if (!isInside(address, range) || !portMatches(ports, port)) return false;
      // Non-public ranges need an explicit rule: "any address" includes neither the host nor the networks behind it.
      if (isLocal) return isExact(range);
      return special === undefined || isInside(range, special);
    });
    if (byRange) return { allowed: true, reason: `rule ${byRange.text}`, name: names[0] ?? null };
    if (isLocal) return { allowed: false, reason: "an address of the host" };
    if (special) return { allowed: false, reason: `not a public address: ${special.kind} ${formatRange(special)}` };
    for (const name of names) {
      const rule = this.#names.find((rule) => nameMatches(rule, name) && portMatches(rule.ports, port));
      if (rule) return { allowed: true, reason: `rule ${rule.text}`, name };
    }
    if (this.mode !== "open") return { allowed: false, reason: "no rule allows it" };
    if (port === SMTP_PORT) return { allowed: false, reason: "port 25 (mail) needs an explicit rule" };
    const denied = this.#denied.find((rule) => denies(rule, address, port));
    if (denied) return { allowed: false, reason: `denied by ${denied.text}` };
    return { allowed: true, reason: "the network is open", name: names[0] ?? null };
  }
}

/** Names inside a private network: even records without an address would reveal what is there */
function isInternal(name: string): boolean {
  return !name.includes(".") || INTERNAL_ZONES.some((zone) => name.endsWith(`.${zone}`));
}

/** Includes addresses that NAT64 translates into a denied one. Without a port: whether all ports are denied */
function denies({ range, ports }: RangeRule, address: Address, port: number | undefined): boolean {
  const inner = translatedOf(address);
  if (!isInside(address, range) && !(inner && isInside(inner, range))) return false;
  return port === undefined ? ports.some(({ from, to }) => from === 1 && to === MAX_PORT) : portMatches(ports, port);
}

function checkedRule(text: string): Rule {
  const problem = ruleProblem(text);
  if (problem === undefined) return parseRule(text);
  throw new ForkdError("BAD_REQUEST", `Cannot use the rule ${JSON.stringify(text)}: it ${problem}.`, {
    hint: "Rules look like example.org, *.example.org:443, 10.1.2.0/24:5432, [fd00::1]:80,8000-8100.",
  });
}

/** Rules for non-public destinations: the host's network, or the host itself */
export function inwardRules(allow: readonly string[], isOwn: (address: Address) => boolean): string[] {
  return allow.filter((text) => {
    const rule = checkedRule(text);
    if (!("range" in rule)) return false;
    const special = specialRangeOf(rule.range);
    return (special !== undefined && isInside(rule.range, special)) || (isExact(rule.range) && isOwn(rule.range));
  });
}

/** The problem of a deny rule; undefined: none */
export function denyProblem(text: string): string | undefined {
  const problem = ruleProblem(text);
  if (problem !== undefined || "range" in parseRule(text)) return problem;
  return "is a name: only addresses can be denied, since any other name may lead to the same address";
}

/** The problem of a rule; undefined: none */
export function ruleProblem(text: string): string | undefined {
  try {
    parseRule(text);
    return undefined;
  } catch (error) {
    if (error instanceof RuleError) return error.message;
    throw error;
  }
}

/** The end of "Cannot use the rule …: it is …" */
class RuleError extends Error {}

/** Throws RuleError */
function parseRule(text: string): Rule {
  const { host, ports: portText } = splitPorts(text);
  const ports = parsePorts(portText);
  const range = parseRange(host);
  if (range) return { text, ports, range };
  if (host.includes("/") || host.includes(":")) throw new RuleError("is neither a name nor an address range without excess bits");
  const isWildcard = host === "*" || host.startsWith("*.");
  const name = host === "*" ? "" : normalName(isWildcard ? host.slice(2) : host);
  if (name === undefined) throw new RuleError("is neither a name nor an address");
  return { text, ports, name, isWildcard };
}

/** A name in its compared form: lower case, punycode, no dot at the end; undefined: not a valid host name */
export function normalName(text: string): string | undefined {
  // Other characters are converted to these; a name that already consists of them must not change its meaning.
  const ascii = (/^[\x21-\x7e]+$/.test(text) ? text : domainToASCII(text)).toLowerCase().replace(/\.$/, "");
  const labels = ascii.split(".");
  if (ascii.length > MAX_NAME || !labels.every((label) => LABEL.test(label))) return undefined;
  // some programs accept 127.1, 0x7f.1 or 2130706433 as an address
  return /^(?:\d+|0x[0-9a-f]*)$/.test(labels.at(-1) ?? "") ? undefined : ascii;
}

function nameMatches(rule: NameRule, name: string): boolean {
  if (!rule.isWildcard) return name === rule.name;
  return rule.name === "" || name.endsWith(`.${rule.name}`);
}

function portMatches(ports: Ports, port: number | undefined): boolean {
  return port === undefined || ports.some(({ from, to }) => from <= port && port <= to);
}

/** HOST, HOST:PORTS or [HOST]:PORTS; an IPv6 address without brackets has no ports */
function splitPorts(text: string): { host: string; ports: string | undefined } {
  const bracketed = /^\[([^\]]*)\](?::(.*))?$/.exec(text);
  if (bracketed) {
    const [, host = "", ports] = bracketed;
    if (!host.includes(":")) throw new RuleError("has brackets around something that is not an IPv6 address");
    return { host, ports };
  }
  const colon = text.indexOf(":");
  if (colon < 0 || colon !== text.lastIndexOf(":")) return { host: text, ports: undefined };
  return { host: text.slice(0, colon), ports: text.slice(colon + 1) };
}

function parsePorts(ports: string | undefined): Ports {
  if (ports === undefined) return [{ from: 1, to: MAX_PORT }];
  return ports.split(",").map((part) => {
    const [, first, last = first] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(part) ?? [];
    const [from, to] = [Number(first), Number(last)];
    if (first === undefined || from < 1 || to > MAX_PORT || from > to)
      throw new RuleError("has neither a port nor a range of ports after the colon");
    return { from, to };
  });
}
