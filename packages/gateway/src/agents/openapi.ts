// OpenAPI documents of the groups. kubectl looks there for the parameters that a server understands before it sends them.

import { createHash } from "node:crypto";
import { apiVersionOf, GROUPS, RESOURCES, VERSION, type Resource } from "./resources.ts";

const META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const PATCHES = ["application/merge-patch+json", "application/json-patch+json"];
/** Fields of this API are checked by name when an object is made, not by a schema */
const ANYTHING = { type: "object", "x-kubernetes-preserve-unknown-fields": true };

const parameter = (name: string, description: string): object => ({
  name,
  in: "query",
  description,
  schema: { type: "string", uniqueItems: true },
});
const PARAMETERS = [
  parameter("dryRun", "All: the request is checked, and nothing is changed"),
  parameter("fieldManager", "Has no effect"),
  parameter("fieldValidation", "Has no effect: fields that cannot be had are refused always"),
];

/** null: there is no such document */
export function openapi(path: string): object | null {
  if (path === "/openapi/v3")
    return { paths: Object.fromEntries(GROUPS.map((group) => [`apis/${apiVersionOf(group)}`, { serverRelativeURL: urlOf(group) }])) };
  const group = GROUPS.find((each) => path === `/openapi/v3/apis/${apiVersionOf(each)}`);
  return group === undefined ? null : documentOf(group);
}

/** The hash tells clients when to read the document again */
function urlOf(group: string): string {
  const hash = createHash("sha256")
    .update(JSON.stringify(documentOf(group)))
    .digest("hex")
    .slice(0, 32)
    .toUpperCase();
  return `/openapi/v3/apis/${apiVersionOf(group)}?hash=${hash}`;
}

function documentOf(group: string): object {
  const resources = (Object.keys(RESOURCES) as Resource[]).filter((resource) => RESOURCES[resource].group === group);
  const paths = Object.fromEntries(resources.flatMap((resource) => pathsOf(group, resource)));
  const schemas = Object.fromEntries(resources.map((resource) => [schemaName(group, resource), schemaOf(group, resource)]));
  return {
    openapi: "3.0.0",
    info: { title: "forkd", version: VERSION },
    paths,
    components: { schemas: { ...schemas, [META]: ANYTHING } },
  };
}

function pathsOf(group: string, resource: Resource): [string, object][] {
  const { kind } = RESOURCES[resource];
  const gvk = { group, version: VERSION, kind };
  const reference = { $ref: `#/components/schemas/${schemaName(group, resource)}` };
  const answer = { "200": { description: "OK", content: { "application/json": { schema: reference } } } };
  const operation = (action: string, types: readonly string[] = [], parameters: readonly object[] = []): object => ({
    operationId: `${action}${kind}`,
    "x-kubernetes-action": action,
    "x-kubernetes-group-version-kind": gvk,
    parameters,
    ...(types.length === 0 ? {} : { requestBody: { content: Object.fromEntries(types.map((type) => [type, { schema: reference }])) } }),
    responses: answer,
  });
  const all = `/apis/${apiVersionOf(group)}/namespaces/{namespace}/${resource}`;
  return [
    [all, { get: operation("list"), post: operation("post", ["application/json"], PARAMETERS) }],
    [
      `${all}/{name}`,
      {
        get: operation("get"),
        put: operation("put", ["application/json"], PARAMETERS),
        patch: operation("patch", PATCHES, PARAMETERS),
        delete: operation("delete", [], PARAMETERS),
      },
    ],
  ];
}

function schemaOf(group: string, resource: Resource): object {
  const { kind } = RESOURCES[resource];
  return {
    type: "object",
    properties: {
      apiVersion: { type: "string" },
      kind: { type: "string" },
      metadata: { allOf: [{ $ref: `#/components/schemas/${META}` }] },
      spec: ANYTHING,
      status: ANYTHING,
    },
    "x-kubernetes-group-version-kind": [{ group, version: VERSION, kind }],
  };
}

function schemaName(group: string, resource: Resource): string {
  return `${group.split(".").toReversed().join(".")}.${VERSION}.${RESOURCES[resource].kind}`;
}
