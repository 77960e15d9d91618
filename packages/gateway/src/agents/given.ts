// Reads an object that a client sends: its metadata, and that it is for the path of the request.

import { isRecord, type Given } from "./objects.ts";
import { invalid, refusal, type Cause } from "./refusal.ts";
import { apiVersionOf, RESOURCES, type Resource } from "./resources.ts";
import { FACTS, OBJECT_NAME } from "./sandbox-objects.ts";

/** Of forkd's names */
const MAX_NAME = 64;
const LABEL = /^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?$/;
const LABEL_VALUE = /^([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?$/;
const SUFFIX = "bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH = 5;

export function readGiven(resource: Resource, body: unknown, place: { namespace: string; name?: string; random?: () => number }): Given {
  const { group, kind } = RESOURCES[resource];
  if (!isRecord(body) || !isRecord(body["metadata"])) throw refusal("BadRequest", "The body is no object with metadata.");
  if (body["kind"] !== kind || body["apiVersion"] !== apiVersionOf(group))
    throw refusal("BadRequest", `The body must be a ${kind} of ${apiVersionOf(group)}.`);
  const { metadata, spec = {} } = body;
  if (!isRecord(spec)) throw refusal("BadRequest", "spec must be an object.");
  const name = place.name ?? nameIn(metadata, place.random ?? Math.random);
  const causes: Cause[] = [];
  if (metadata["namespace"] !== undefined && metadata["namespace"] !== place.namespace)
    throw refusal(
      "BadRequest",
      `metadata.namespace is ${JSON.stringify(metadata["namespace"])}, and the request is for ${place.namespace}.`,
    );
  if (place.name !== undefined && metadata["name"] !== undefined && metadata["name"] !== place.name)
    throw refusal("BadRequest", `metadata.name is ${JSON.stringify(metadata["name"])}, and the request is for ${place.name}.`);
  if (!OBJECT_NAME.test(name) || name.length > MAX_NAME || name.endsWith(".tmp"))
    causes.push({
      field: "metadata.name",
      message: `must be 1 to ${MAX_NAME} lower-case letters, digits, '-' or '.', not ending with .tmp`,
    });
  const labels = textsIn(metadata["labels"], "metadata.labels", causes);
  for (const [key, value] of Object.entries(labels))
    if (!LABEL.test(key) || !LABEL_VALUE.test(value))
      causes.push({ field: `metadata.labels.${key}`, message: "is not a label of Kubernetes" });
  const annotations = textsIn(metadata["annotations"], "metadata.annotations", causes);
  for (const refused of ["finalizers", "ownerReferences"])
    if (Array.isArray(metadata[refused]) && metadata[refused].length > 0)
      causes.push({ field: `metadata.${refused}`, message: "sandboxes are no stored objects, so nothing waits for others at their end" });
  if (causes.length > 0) throw invalid(`${kind} ${name}`, causes);
  const given: Given = { name, labels: without(labels), annotations: without(annotations), spec };
  if (typeof metadata["uid"] === "string" && metadata["uid"] !== "") given.uid = metadata["uid"];
  if (typeof metadata["resourceVersion"] === "string" && metadata["resourceVersion"] !== "")
    given.resourceVersion = metadata["resourceVersion"];
  return given;
}

function nameIn(metadata: Record<string, unknown>, random: () => number): string {
  const { name, generateName } = metadata;
  if (typeof name === "string" && name !== "") return name;
  if (typeof generateName !== "string" || generateName === "")
    throw invalid("The object", [{ field: "metadata.name", message: "is required" }]);
  const suffix = Array.from({ length: SUFFIX_LENGTH }, () => SUFFIX[Math.floor(random() * SUFFIX.length)]).join("");
  return `${generateName.slice(0, MAX_NAME - SUFFIX_LENGTH)}${suffix}`;
}

function textsIn(value: unknown, field: string, causes: Cause[]): Record<string, string> {
  if (value === undefined || value === null) return {};
  if (isRecord(value) && Object.values(value).every((text) => typeof text === "string")) return value as Record<string, string>;
  causes.push({ field, message: "must be an object of texts" });
  return {};
}

/** Facts are added to each answer; clients send them back in updates */
function without(given: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(given).filter(([key]) => !FACTS.has(key) && key !== "forkd.dev/claim"));
}
