// Every setting in the table of docs/operations.md is an option of `forkd up`, a variable and an entry of the file.

import assert from "node:assert/strict";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { parseArgs } from "node:util";
import { resolveConfig } from "@forkd/daemon";
import { resolveHome } from "@forkd/runtime";
import { daemonOptions, upCommand } from "../src/commands/up.ts";
import { forkd, temporaryFolder } from "./helpers.ts";

import type { Cli } from "../src/cli.ts";

type Row = { name: string; option: string; takesValue: boolean; variable: string; fallback: string };
type Value = string | number | boolean | null;
type Entries = Record<string, { value: Value; source: string }>;

const DOCS = resolve(import.meta.dirname, "..", "..", "..", "docs", "operations.md");
/** Defaults that depend on the host; the docs describe them in words */
const DESCRIBED = new Set(["audit_log", "parallelism", "dns_servers"]);

/** A value other than the default for each setting */
function examples(folder: string): Record<string, Value> {
  return {
    bind: null,
    tls_cert: join(folder, "cert.pem"),
    tls_key: join(folder, "key.pem"),
    insecure: true,
    cors_origins: "https://app.example.org",
    allowed_hosts: "forkd.example.org",
    proxy_domain: "preview.example.org",
    share_roots: folder,
    token_file: join(folder, "token"),
    cluster_key_file: join(folder, "cluster.key"),
    audit_log: join(folder, "audit"),
    branch_concurrency: 2,
    max_sandboxes: 7,
    max_suspended: 8,
    max_snapshots: 9,
    max_memory_mib: 9000,
    max_disk_mib: 9001,
    min_free_mib: 1,
    confinement: "required",
    isolation: "kvm",
    accelerator: "tcg",
    hugepages_dir: folder,
    default_image: "other",
    pack_trust: "known",
    pack_cache_mib: 5,
    drain_secs: 3,
    leave_secs: 4,
    exit_when_idle_secs: 3600,
    log_level: "warn",
    parallelism: 2,
    hub_url: "https://hub.example.org/registry.json",
    dns_servers: "192.0.2.53",
  };
}

async function rows(): Promise<Row[]> {
  const text = await readFile(DOCS, "utf8");
  const found = [...text.matchAll(/^\| `(\w+)` \| `--([\w-]+)( [^`]+)?` \| `(FORKD_\w+)` \| ([^|]+) \|/gm)].map(
    ([, name = "", option = "", value, variable = "", fallback = ""]) => ({
      name,
      option,
      takesValue: value !== undefined,
      variable,
      fallback: fallback.replaceAll("`", "").trim(),
    }),
  );
  assert.ok(found.length > 20, "the table of settings was not found");
  return found;
}

async function settingsFrom(env: Record<string, string>): Promise<Entries> {
  const { code, stdout, stderr } = await forkd(["config", "--json"], env);
  assert.equal(code, 0, stderr);
  return JSON.parse(stdout) as Entries;
}

function written(value: Value | undefined): string {
  return value === null ? "none" : String(value);
}

test("the docs name every setting, with its default", async () => {
  await using folder = await temporaryFolder();
  const table = await rows();
  const entries = await settingsFrom({ FORKD_HOME: folder.path, FORKD_RUN: folder.path });
  assert.deepEqual(table.map(({ name }) => name).sort(), Object.keys(entries).sort());
  for (const { name, fallback } of table)
    if (!DESCRIBED.has(name)) assert.equal(fallback, written(entries[name]?.value), `the default of ${name}`);
});

test("each is an option of forkd up", async () => {
  await using folder = await temporaryFolder();
  const values = examples(folder.path);
  const command = upCommand({} as Cli).exitOverride();
  const args = (await rows()).map(({ name, option, takesValue }) => (takesValue ? `--${option}=${written(values[name])}` : `--${option}`));
  assert.deepEqual(command.parseOptions(args), { operands: [], unknown: [] });
  const options = parseArgs({ args: daemonOptions(command), strict: false }).values;
  const { entries } = await resolveConfig({ options, env: {}, home: resolveHome({}) });
  for (const { name } of await rows()) assert.deepEqual(entries[name], { value: values[name], source: "option" }, name);
});

test("each is a variable and an entry of the file", async () => {
  await using folder = await temporaryFolder();
  const values = examples(folder.path);
  const env = { FORKD_HOME: join(folder.path, "home"), FORKD_RUN: join(folder.path, "run") };
  const variables = Object.fromEntries((await rows()).map(({ name, variable }) => [variable, written(values[name])]));
  const fromVariables = await settingsFrom({ ...env, ...variables });
  await mkdir(env.FORKD_HOME);
  await writeFile(join(env.FORKD_HOME, "config.json"), JSON.stringify(values));
  const fromFile = await settingsFrom(env);
  for (const { name } of await rows()) {
    assert.deepEqual(fromVariables[name], { value: values[name], source: "environment" }, name);
    assert.deepEqual(fromFile[name], { value: values[name], source: "file" }, name);
  }
});
