// Mutations that keep JSON valid: values, keys, nesting.

import type { Random } from "../../tests/helpers/random.ts";

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

const VALUES: readonly Json[] = [null, true, false, 0, -1, 1.5, 2 ** 53, 1e308, "", "x", "\u0000", "\ud800", [], {}, [[]], { "": {} }];
const DEEP = 20_000;

/** Returns the text unchanged if it is not JSON, or nested too deeply to be serialized */
export function mutateJson(text: string, random: Random): string {
  try {
    return changedText(text, random);
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof RangeError) return text;
    throw error;
  }
}

function changedText(text: string, random: Random): string {
  const value = JSON.parse(text) as Json;
  const places: { parent: Json[] | { [key: string]: Json }; key: string }[] = [];
  const visit = (parent: Json): void => {
    if (typeof parent !== "object" || parent === null) return;
    for (const [key, child] of Object.entries(parent)) {
      places.push({ parent, key });
      visit(child);
    }
  };
  visit(value);
  const place = random.pick(places);
  if (!place) return text;
  const holder = place.parent as { [key: string]: Json };
  const other = random.pick(places);
  const taken = other && structuredClone((other.parent as { [key: string]: Json })[other.key]);
  switch (random.below(7)) {
    case 0:
      if (Array.isArray(place.parent)) place.parent.splice(Number(place.key), 1);
      else delete holder[place.key];
      break;
    case 1:
      holder[place.key] = random.pick(VALUES) ?? null;
      break;
    case 2:
      holder[place.key] = taken ?? null;
      break;
    case 3:
      if (Array.isArray(place.parent)) place.parent.push(structuredClone(holder[place.key] ?? null));
      else holder[random.pick(["__proto__", "constructor", "", place.key.toUpperCase()]) ?? ""] = taken ?? null;
      break;
    case 4: {
      const mark = `mark-${random.below(1e9)}`;
      holder[place.key] = mark;
      return JSON.stringify(value).replace(`"${mark}"`, `${"[".repeat(DEEP)}${"]".repeat(DEEP)}`);
    }
    case 5:
      holder[place.key] = changed(holder[place.key] ?? null, random);
      break;
    default:
      holder[place.key] = `${JSON.stringify(holder[place.key])}${"y".repeat(random.below(300))}`;
  }
  return JSON.stringify(value);
}

function changed(value: Json, random: Random): Json {
  if (typeof value === "number") return value + random.below(5) - 2;
  if (typeof value !== "string") return value !== true;
  const at = random.below(value.length + 1);
  return value.slice(0, at) + (random.pick(["", "/", "..", "\n", "0", "é", "\u0000"]) ?? "") + value.slice(at + random.below(2));
}
