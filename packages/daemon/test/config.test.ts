// Settings: precedence of their sources, and invalid values.

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { CONFIG_OPTIONS, resolveConfig, splitBind } from "../src/config.ts";
import { ForkdError } from "@forkd/runtime/errors";
import { resolveHome } from "@forkd/runtime/home";
import type { TestContext } from "node:test";
import type { ConfigInput, ResolvedConfig } from "../src/config.ts";

type Given = { options?: NonNullable<ConfigInput["options"]>; env?: Record<string, string>; file?: unknown };

async function resolve(t: TestContext, given: Given = {}): Promise<ResolvedConfig & { dir: string }> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-config-"));
  t.after(() => rm(dir, { recursive: true }));
  if (given.file !== undefined) {
    await writeFile(join(dir, "config.json"), typeof given.file === "string" ? given.file : JSON.stringify(given.file));
  }
  const home = resolveHome({ FORKD_HOME: dir, FORKD_RUN: dir });
  return { ...(await resolveConfig({ options: given.options ?? {}, env: given.env ?? {}, home })), dir };
}

async function refused(t: TestContext, given: Given, ...patterns: RegExp[]): Promise<void> {
  await assert.rejects(resolve(t, given), (error) => {
    assert.ok(error instanceof ForkdError);
    assert.equal(error.code, "BAD_CONFIG");
    for (const pattern of patterns) assert.match(error.message, pattern);
    return true;
  });
}

test("without settings, everything has its default", async (t) => {
  const { values, entries, warnings, dir } = await resolve(t);
  assert.equal(values.bind, "127.0.0.1:8889");
  assert.equal(values.auditLog, join(dir, "audit.log"));
  assert.equal(values.branchConcurrency, 4);
  assert.equal(values.maxMemoryMiB, null);
  assert.equal(values.drainSecs, 30);
  assert.equal(values.confinement, "preferred");
  assert.equal(values.isolation, "auto");
  assert.deepEqual(entries["max_sandboxes"], { value: 1000, source: "default" });
  for (const name of Object.keys(entries)) assert.ok(name.replaceAll("_", "-") in CONFIG_OPTIONS, name);
  assert.deepEqual(warnings, []);
  assert.ok(Object.isFrozen(values));
});

test("an option overrides the environment, which overrides the file, which overrides the default", async (t) => {
  const file = { max_sandboxes: 1, min_free_mib: 1, drain_secs: 1 };
  const env = { FORKD_MAX_SANDBOXES: "2", FORKD_MIN_FREE_MIB: "2", FORKD_PARALLELISM: "" };
  const { entries, values } = await resolve(t, { file, env, options: { "max-sandboxes": "3" } });
  assert.deepEqual(entries["max_sandboxes"], { value: 3, source: "option" });
  assert.deepEqual(entries["min_free_mib"], { value: 2, source: "environment" });
  assert.deepEqual(entries["drain_secs"], { value: 1, source: "file" });
  assert.equal(entries["parallelism"]?.source, "default", "an empty variable is none");
  assert.equal(values.maxSandboxes, 3);
});

test("paths are absolute, and those of the file relative to its folder", async (t) => {
  const { values, dir } = await resolve(t, { file: { token_file: "secret/token" }, options: { "audit-log": "a.log" } });
  assert.equal(values.tokenFile, join(dir, "secret/token"));
  assert.equal(values.auditLog, join(process.cwd(), "a.log"));
});

test("none removes a setting", async (t) => {
  const { values, entries } = await resolve(t, { options: { bind: "none", "audit-log": "none" }, file: { max_memory_mib: null } });
  assert.deepEqual([values.bind, values.auditLog, values.maxMemoryMiB], [null, null, null]);
  assert.deepEqual(entries["bind"], { value: null, source: "option" });
});

test("a refusal names the setting, its value, the rule and where it comes from", async (t) => {
  await refused(t, { options: { "branch-concurrency": "0" } }, /branch_concurrency/, /"0"/, /from 1/, /--branch-concurrency/);
  await refused(t, { env: { FORKD_DRAIN_SECS: "soon" } }, /drain_secs/, /"soon"/, /FORKD_DRAIN_SECS/);
  await refused(t, { file: { log_level: "loud" } }, /log_level/, /"loud"/, /trace, debug/, /config\.json/);
});

test("invalid values are refused", async (t) => {
  for (const bind of ["8889", "127.0.0.1", "127.0.0.1:99999", ":8889", "::1:8889", "a b:1", "", "http://x:1"]) {
    await refused(t, { options: { bind } }, /bind/);
  }
  for (const file of [
    "{",
    "[]",
    "3",
    { bogus: 1 },
    { insecure: "maybe" },
    { max_sandboxes: 1.5 },
    { default_image: "../x" },
    { confinement: "off" },
    { isolation: "emulated" },
  ]) {
    await refused(t, { file });
  }
  await refused(t, { env: { FORKD_CONFIG: "/nowhere/config.json" } }, /nowhere/);
});

test("origins are normalised as browsers send them", async (t) => {
  assert.equal((await resolve(t)).values.corsOrigins, null);
  const given = { options: { "cors-origins": "https://App.Example.org:443, http://localhost:3000" } };
  const { entries } = await resolve(t, given);
  assert.deepEqual(entries["cors_origins"], { value: "https://app.example.org,http://localhost:3000", source: "option" });
  assert.equal((await resolve(t, { env: { FORKD_CORS_ORIGINS: "*" } })).values.corsOrigins, "*");
  assert.equal((await resolve(t, { file: { cors_origins: "none" } })).values.corsOrigins, null);
  for (const origin of [
    "app.example.org",
    "https://a.org/",
    "https://a.org,",
    "https://a.org,*",
    "https://u@a.org",
    "ftp://a.org",
    "https://",
    "https://a b",
  ])
    await refused(t, { options: { "cors-origins": origin } }, /cors_origins/, /separated by commas/);
});

test("additional hosts are names without a port", async (t) => {
  assert.equal((await resolve(t)).values.allowedHosts, null);
  assert.equal((await resolve(t, { options: { "allowed-hosts": "Forkd, api.example.org" } })).values.allowedHosts, "forkd,api.example.org");
  assert.equal((await resolve(t, { env: { FORKD_ALLOWED_HOSTS: "*" } })).values.allowedHosts, "*");
  for (const hosts of ["a:80", "https://a", "a,", "*.a", "a b"])
    await refused(t, { options: { "allowed-hosts": hosts } }, /allowed_hosts/, /without a port/);
});

test("folders that may be shared are kept as absolute paths", async (t) => {
  assert.equal((await resolve(t)).values.shareRoots, null);
  const { values, dir } = await resolve(t, { file: { share_roots: "data, /srv/sets" } });
  assert.equal(values.shareRoots, `${join(dir, "data")},/srv/sets`);
  assert.equal((await resolve(t, { env: { FORKD_SHARE_ROOTS: "none" } })).values.shareRoots, null);
  for (const roots of ["/a,,/b", ","]) await refused(t, { options: { "share-roots": roots } }, /share_roots/, /separated by commas/);
});

test("an address that others can reach needs TLS, or an explicit opt-out", async (t) => {
  for (const bind of ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "example.org:1"]) {
    await refused(t, { options: { bind } }, /without TLS/);
    const insecure = await resolve(t, { options: { bind, insecure: true } });
    assert.match(insecure.warnings.join(), /INSECURE/);
    const tls = await resolve(t, { options: { bind, "tls-cert": "c", "tls-key": "k" } });
    assert.deepEqual(tls.warnings, []);
  }
  for (const bind of ["127.0.0.1:1", "127.8.9.1:1", "[::1]:1", "localhost:1"])
    assert.deepEqual((await resolve(t, { options: { bind } })).warnings, []);
});

test("a certificate needs its key, and a key its certificate", async (t) => {
  await refused(t, { options: { "tls-cert": "c" } }, /tls_key is missing/);
  await refused(t, { env: { FORKD_TLS_KEY: "k" } }, /tls_cert is missing/);
});

test("options of the older controller are accepted with a warning", async (t) => {
  const { warnings } = await resolve(t, { options: { state: "/x", "prewarm-scratch-dir": "/y" } });
  assert.equal(warnings.length, 2);
  for (const name of ["state", "snapshot-root", "prewarm-scratch-dir", "bind", "insecure"]) assert.ok(CONFIG_OPTIONS[name], name);
});

test("an address is split into host and port", () => {
  assert.deepEqual(splitBind("127.0.0.1:80"), { host: "127.0.0.1", port: 80 });
  assert.deepEqual(splitBind("[::1]:80"), { host: "::1", port: 80 });
});

test("a domain for servers in sandboxes is a name, with a scheme if browsers reach it behind another proxy", async (t) => {
  assert.equal((await resolve(t)).values.proxyDomain, "localhost");
  for (const [given, value] of [
    ["none", null],
    ["Preview.Example.org", "preview.example.org"],
    ["https://preview.example.org", "https://preview.example.org"],
    ["preview.example.org:8443", "preview.example.org:8443"],
  ] as const)
    assert.equal((await resolve(t, { options: { "proxy-domain": given } })).values.proxyDomain, value);
  for (const domain of ["", "127.0.0.1", "0x7f.1", "a b", "-a.org", "a..org", "a.org/x", "ftp://a.org", "a.org:123456", "*.a.org"])
    await refused(t, { options: { "proxy-domain": domain } }, /proxy_domain/, /a domain such as/);
});

test("an index has an address without a login or a query", async (t) => {
  const { values } = await resolve(t, { env: { FORKD_HUB_URL: "https://hub.example/registry.json" } });
  assert.equal(values.hubUrl, "https://hub.example/registry.json");
  for (const url of ["hub.example", "ftp://hub.example/x", "https://me:pw@hub.example/x", "https://hub.example/x?token=1"])
    await refused(t, { env: { FORKD_HUB_URL: url } }, /hub_url/, /without a login or a query/);
});
