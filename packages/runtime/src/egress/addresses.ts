// IP addresses and ranges, and the ranges that are not public Internet.

import { isIPv4, isIPv6 } from "node:net";

export type Address = { family: 4 | 6; value: bigint };
export type Range = Address & { prefix: number };
/** A range that needs an explicit rule */
export type SpecialRange = Range & { kind: string };

const BITS = { 4: 32, 6: 128 } as const;
const IPV4_MAPPED = 0xffffn << 32n;
const LOW_32 = 0xffffffffn;
const GROUPS = 8;

/** Strict: four decimal numbers, or IPv6 without a zone. An IPv4-mapped IPv6 address is an IPv4 address */
export function parseAddress(text: string): Address | undefined {
  if (isIPv4(text)) return { family: 4, value: ipv4Value(text) };
  if (!isIPv6(text) || text.includes("%")) return undefined;
  const value = ipv6Value(text);
  return value >> 32n === IPV4_MAPPED >> 32n ? { family: 4, value: value & LOW_32 } : { family: 6, value };
}

/** ADDRESS or ADDRESS/PREFIX; undefined: malformed, or with bits beyond its prefix */
export function parseRange(text: string): Range | undefined {
  const [, ip = "", length] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const address = parseAddress(ip);
  if (!address) return undefined;
  const isMapped = address.family === 4 && ip.includes(":");
  const prefix = length === undefined ? BITS[address.family] : Number(length) - (isMapped ? 96 : 0);
  if (prefix < 0 || prefix > BITS[address.family]) return undefined;
  const range = { ...address, prefix };
  return baseOf(range).value === address.value ? range : undefined;
}

export function formatAddress({ family, value }: Address): string {
  if (family === 4) return [24n, 16n, 8n, 0n].map((shift) => (value >> shift) & 0xffn).join(".");
  const groups = Array.from({ length: GROUPS }, (_, at) => ((value >> BigInt(112 - 16 * at)) & 0xffffn).toString(16));
  const zeroes = groups
    .join(":")
    .match(/(?:^|:)0(?::0)+(?::|$)/g)
    ?.toSorted((a, b) => b.length - a.length)[0];
  return zeroes === undefined ? groups.join(":") : groups.join(":").replace(zeroes, "::");
}

export function formatRange(range: Range): string {
  return isExact(range) ? formatAddress(range) : `${formatAddress(range)}/${range.prefix}`;
}

export function sameAddress(a: Address, b: Address): boolean {
  return a.family === b.family && a.value === b.value;
}

/** Whether a range or an address is inside another range */
export function isInside(inner: Address | Range, outer: Range): boolean {
  if (inner.family !== outer.family || ("prefix" in inner && inner.prefix < outer.prefix)) return false;
  return baseOf({ ...inner, prefix: outer.prefix }).value === outer.value;
}

/** One address only */
export function isExact({ family, prefix }: Range): boolean {
  return prefix === BITS[family];
}

/** The non-public range of an address, also of the address that a translated one stands for */
export function specialRangeOf(address: Address): SpecialRange | undefined {
  const found = SPECIAL.find((range) => isInside(address, range));
  const translated = found ? undefined : translatedOf(address);
  if (!translated) return found;
  const inner = specialRangeOf(translated);
  return inner && { family: 6, value: NAT64.value | inner.value, prefix: 96 + inner.prefix, kind: inner.kind };
}

/** The IPv4 address inside a NAT64 address */
export function translatedOf(address: Address): Address | undefined {
  return isInside(address, NAT64) ? { family: 4, value: address.value & LOW_32 } : undefined;
}

function baseOf({ family, value, prefix }: Range): Address {
  const rest = BigInt(BITS[family] - prefix);
  return { family, value: (value >> rest) << rest };
}

function ipv4Value(text: string): bigint {
  return text.split(".").reduce((value, part) => (value << 8n) | BigInt(part), 0n);
}

function ipv6Value(text: string): bigint {
  // the last 32 bits may be written as an IPv4 address
  const hex = text.replace(/[^:]+\.[^:]+$/, (tail) => {
    const value = ipv4Value(tail);
    return `${(value >> 16n).toString(16)}:${(value & 0xffffn).toString(16)}`;
  });
  const [head = "", tail] = hex.split("::");
  const before = head === "" ? [] : head.split(":");
  const after = tail === undefined || tail === "" ? [] : tail.split(":");
  const middle = Array.from({ length: GROUPS - before.length - after.length }, () => "0");
  return [...before, ...middle, ...after].reduce((value, group) => (value << 16n) | BigInt(`0x${group}`), 0n);
}

function special(kind: string, ...texts: string[]): SpecialRange[] {
  return texts.map((text) => {
    const range = parseRange(text);
    if (!range) throw new Error(`not a range: ${text}`);
    return { ...range, kind };
  });
}

const NAT64 = special("translated", "64:ff9b::/96")[0]!;

/** From IANA's special-purpose registries. Documentation ranges are left out: no host has such an address */
const SPECIAL: readonly SpecialRange[] = [
  ...special("unspecified", "0.0.0.0/8", "::/128"),
  ...special("loopback", "127.0.0.0/8", "::1/128"),
  ...special("link-local", "169.254.0.0/16", "fe80::/10"),
  // a cloud's metadata and health service, at an address that looks public
  ...special("metadata", "168.63.129.16/32"),
  ...special("private", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"),
  ...special("carrier", "100.64.0.0/10"),
  ...special("protocol", "192.0.0.0/24", "192.88.99.0/24", "100::/64", "5f00::/16"),
  ...special("benchmarking", "198.18.0.0/15", "2001:2::/48"),
  ...special("multicast", "224.0.0.0/4", "ff00::/8"),
  ...special("reserved", "240.0.0.0/4"),
  // obsolete IPv6 forms of IPv4 addresses, which could stand for any of the above
  ...special("translated", "::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48"),
  ...special("tunnel", "2001::/32", "2001:10::/28", "2001:20::/28", "2002::/16"),
];
