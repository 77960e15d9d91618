// Label and field selectors of lists and watches.

import { refusal } from "./refusal.ts";
import type { KubernetesObject } from "./objects.ts";

export type Matches = (object: KubernetesObject) => boolean;

type Labels = Record<string, string>;
type Requirement = (labels: Labels) => boolean;

const KEY = "([A-Za-z0-9][\\w./-]*)";
const SET = new RegExp(`^\\s*${KEY}\\s+(in|notin)\\s*\\(([^()]*)\\)\\s*$`);
const EQUALS = new RegExp(`^\\s*${KEY}\\s*(==|=|!=)\\s*([\\w.-]*)\\s*$`);
const EXISTS = new RegExp(`^\\s*(!?)\\s*${KEY}\\s*$`);

export function selectorOf(query: URLSearchParams): Matches {
  const labels = labelSelector(query.get("labelSelector") ?? "");
  const fields = fieldSelector(query.get("fieldSelector") ?? "");
  return (object) => labels(object.metadata.labels ?? {}) && fields(object);
}

export function labelSelector(text: string): Requirement {
  // commas inside of parentheses separate values
  const parts = text.split(/,(?![^()]*\))/).filter((part) => part.trim() !== "");
  const requirements = parts.map(requirementOf);
  return (labels) => requirements.every((holds) => holds(labels));
}

function requirementOf(part: string): Requirement {
  const set = SET.exec(part);
  if (set) {
    const [, key = "", operator, list = ""] = set;
    const values = new Set(list.split(",").map((value) => value.trim()));
    const isIn = (labels: Labels): boolean => labels[key] !== undefined && values.has(labels[key]);
    return operator === "in" ? isIn : (labels) => !isIn(labels);
  }
  const equals = EQUALS.exec(part);
  if (equals) {
    const [, key = "", operator, value] = equals;
    return operator === "!=" ? (labels) => labels[key] !== value : (labels) => labels[key] === value;
  }
  const exists = EXISTS.exec(part);
  if (!exists) throw refusal("BadRequest", `The label selector ${JSON.stringify(part)} cannot be read.`);
  const [, not, key = ""] = exists;
  return (labels) => (labels[key] === undefined) === (not === "!");
}

/** Only the two fields that every object has */
function fieldSelector(text: string): Matches {
  const parts = text.split(",").filter((part) => part.trim() !== "");
  const requirements = parts.map((part): Matches => {
    const [, field, operator, value] = /^\s*metadata\.(name|namespace)\s*(==|=|!=)\s*([\w.-]*)\s*$/.exec(part) ?? [];
    if (field === undefined)
      throw refusal("BadRequest", `The field selector ${JSON.stringify(part)} is not supported: use metadata.name or metadata.namespace.`);
    return ({ metadata }) => (metadata[field as "name" | "namespace"] === value) === (operator !== "!=");
  });
  return (object) => requirements.every((holds) => holds(object));
}
