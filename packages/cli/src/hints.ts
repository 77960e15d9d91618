// Replaces fields and routes of the API, in backticks in the daemon's hints, by options and verbs of the command line.

/** The verb for a route */
const VERBS: Record<string, string> = {
  "GET /v1/snapshots": "forkd snapshot ls",
  "GET /v1/cluster": "forkd cluster status",
  "GET /v1/sandboxes": "forkd ls",
  "GET /v1/images": "forkd image ls",
  "POST /v1/images": "forkd image",
  "GET /v1/workspaces": "forkd workspace list",
  "GET /v1/tokens": "forkd token ls",
  "GET /v1/projects": "forkd project ls",
  "GET /v1/quota": "forkd quota",
  "GET /v1/keys": "forkd key ls",
  "GET /v1/recipes": "forkd recipes",
  "GET /v1/sandboxes/ID/processes": "forkd ps ID",
  "GET /v1/sandboxes/ID/contexts": "forkd context ls ID",
  "GET /v1/sandboxes/ID/ports": "forkd ports ID",
  "PUT /v1/sandboxes/ID/files": "forkd cp",
};

/** Options whose name differs from that of the field */
const OPTIONS: Record<string, string> = { stdin: "-i" };

export function inOwnWords(hint: string): string {
  return hint.replaceAll(/`([^`]+)`/g, (_all, name: string) => (VERBS[name] ? `'${VERBS[name]}'` : (optionOf(name) ?? name)));
}

/** `field`, `field=true` or `field=VALUE` */
function optionOf(name: string): string | undefined {
  const [, field = "", value] = /^([a-z][a-z_]*)(?:=(\S+))?$/.exec(name) ?? [];
  if (field === "") return undefined;
  const option = OPTIONS[field] ?? `--${field.replaceAll("_", "-")}`;
  return value === undefined || value === "true" ? option : `${option} ${value}`;
}
