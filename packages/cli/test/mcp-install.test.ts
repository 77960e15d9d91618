// forkd mcp install: shows the change, asks, makes a backup, and keeps the rest of the file.

import assert from "node:assert/strict";
import { chmod, lstat, mkdir, readdir, readFile, stat, symlink, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { configFile, MCP_CLIENTS } from "../src/mcp/clients.ts";
import { ConfigEdit } from "../src/mcp/config.ts";
import { FORKD, forkdProcess, temporaryFolder, type Result } from "./helpers.ts";

const OTHERS = `{
    "theme":   "dark", "big": 12345678901234567890,
    "mcpServers": {
        "files": { "command": "npx", "args": ["-y", "files"] }
    }
}`;

/** Compile cache, which is not configuration */
const CACHE = process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache");

async function install(home: string, args: string[], env: Record<string, string> = {}): Promise<Result> {
  return forkdProcess(["mcp", "install", ...args], {
    XDG_CACHE_HOME: CACHE,
    HOME: home,
    XDG_CONFIG_HOME: "",
    CLAUDE_CONFIG_DIR: "",
    FORKD_HOME: "",
    FORKD_RUN: "",
    ...env,
  });
}

test("the paths of the clients' files", () => {
  const where = { env: {}, home: "/home/me", cwd: "/work" };
  assert.deepEqual(
    MCP_CLIENTS.map((client) => configFile(client, where)),
    [
      "/home/me/.config/Claude/claude_desktop_config.json",
      "/home/me/.claude.json",
      "/home/me/.cursor/mcp.json",
      "/home/me/.config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
    ],
  );
  assert.equal(configFile("claude-desktop", { ...where, env: { XDG_CONFIG_HOME: "/xdg" } }), "/xdg/Claude/claude_desktop_config.json");
  assert.equal(configFile("claude-code", { ...where, env: { CLAUDE_CONFIG_DIR: "/claude" } }), "/claude/.claude.json");
  assert.equal(configFile("claude-code", { ...where, project: true }), "/work/.mcp.json");
  assert.equal(configFile("cursor", { ...where, project: true }), "/work/.cursor/mcp.json");
  assert.throws(() => configFile("cline", { ...where, project: true }), /no configuration for single projects/);
});

test("a client without a configuration gets one, and the second time nothing changes", async () => {
  await using home = await temporaryFolder();
  for (const client of MCP_CLIENTS) {
    const file = configFile(client, { env: {}, home: home.path });
    const { code, stdout } = await install(home.path, ["--client", client, "--yes"]);
    assert.equal(code, 0);
    assert.match(stdout, /^.* \(new\)\n(\+ .*\n)+Written\. Restart/);
    const { mcpServers } = JSON.parse(await readFile(file, "utf8")) as { mcpServers: { forkd: object } };
    const entry = { command: FORKD, args: ["mcp"] };
    assert.deepEqual(mcpServers.forkd, client === "claude-code" ? { type: "stdio", ...entry } : entry);
    assert.equal((await stat(file)).mode & 0o777, 0o600);
    const again = await install(home.path, ["--client", client]);
    assert.deepEqual([again.code, again.stdout], [0, `${file} has it already.\n`]);
    assert.equal((await readdir(dirname(file))).filter((name) => name.includes("backup")).length, 0);
  }
});

test("every other byte of a file is unchanged, and a backup is made", async () => {
  await using home = await temporaryFolder();
  const file = join(home.path, ".cursor", "mcp.json");
  await mkdir(dirname(file));
  await writeFile(file, OTHERS);
  await chmod(file, 0o640);
  const { code, stdout } = await install(home.path, ["--client", "cursor", "--yes"], { FORKD_HOME: "/srv/forkd" });
  assert.equal(code, 0);
  const added = `,
        "forkd": {
            "command": ${JSON.stringify(FORKD)},
            "args": [
                "mcp"
            ],
            "env": {
                "FORKD_HOME": "/srv/forkd"
            }
        }`;
  assert.equal(await readFile(file, "utf8"), OTHERS.replace('"files"] }', `"files"] }${added}`));
  assert.equal(await readFile(`${file}.forkd-backup`, "utf8"), OTHERS);
  assert.equal((await stat(file)).mode & 0o777, 0o640);
  assert.match(stdout, /\+ {9}"forkd": \{/);
  const changed = await install(home.path, ["--client", "cursor", "--yes", "--json"]);
  assert.equal((JSON.parse(changed.stdout) as { backup: string }).backup, `${file}.forkd-backup-2`);
  assert.equal(await readFile(`${file}.forkd-backup`, "utf8"), OTHERS);
});

test("without --yes it asks, and --print only shows the change", async () => {
  await using home = await temporaryFolder();
  const printed = await install(home.path, ["--client", "claude-code", "--print"]);
  assert.equal(printed.code, 0);
  assert.match(printed.stdout, /\+ {3}"mcpServers"/);
  const asked = await install(home.path, ["--client", "claude-code"]);
  assert.equal(asked.code, 2);
  assert.match(asked.stderr, /no terminal to ask at/);
  assert.deepEqual(await readdir(home.path), []);
});

test("comments and trailing commas are kept", async () => {
  await using home = await temporaryFolder();
  const file = join(home.path, ".cursor", "mcp.json");
  await mkdir(dirname(file));
  const text = '{\n  // servers of the team\n  "mcpServers": {\n    "other": { "command": "x" }, /* keep */\n  },\n}\n';
  await writeFile(file, text);
  assert.equal((await install(home.path, ["--client", "cursor", "--yes"])).code, 0);
  const after = await readFile(file, "utf8");
  assert.equal(after.replace(/,\n {4}"forkd": \{[^}]*\}/, ""), text);
  assert.match(after, /"forkd": \{/);
  const again = await install(home.path, ["--client", "cursor"]);
  assert.deepEqual([again.code, again.stdout], [0, `${file} has it already.\n`]);
});

test("a file that is not JSON, or has an unexpected structure, is not changed", async () => {
  await using home = await temporaryFolder();
  const file = join(home.path, ".claude.json");
  for (const text of ['{"a" 1}', "{", "[]", '{"mcpServers": []}', '{"mcpServers": {"forkd": 1, "forkd": 2}}', '"text"']) {
    await writeFile(file, text);
    const { code, stderr } = await install(home.path, ["--client", "claude-code", "--yes"]);
    assert.equal(code, 1, text);
    assert.match(stderr, /\[BAD_CONFIG\]/);
    assert.equal(await readFile(file, "utf8"), text);
  }
  assert.deepEqual(await readdir(home.path), [".claude.json"]);
});

test("a link stays a link, and an empty file counts as missing", async () => {
  await using home = await temporaryFolder();
  await writeFile(join(home.path, "dotfile"), "\n");
  await symlink("dotfile", join(home.path, ".claude.json"));
  assert.equal((await install(home.path, ["--client", "claude-code", "--yes"])).code, 0);
  assert.equal((await lstat(join(home.path, ".claude.json"))).isSymbolicLink(), true);
  assert.match(await readFile(join(home.path, "dotfile"), "utf8"), /"forkd"/);
});

test("a file that changed meanwhile is not overwritten", async () => {
  await using home = await temporaryFolder();
  const file = join(home.path, "config.json");
  await writeFile(file, "{}");
  const edit = await ConfigEdit.prepare(file, "forkd", { command: "forkd" });
  await writeFile(file, '{"new": 1}');
  await assert.rejects(edit.write(), { code: "BUSY" });
  assert.equal(await readFile(file, "utf8"), '{"new": 1}');
  assert.deepEqual(await readdir(home.path), ["config.json"]);
});

test("the token of a remote daemon is never written", async () => {
  await using home = await temporaryFolder();
  const { code, stderr } = await install(home.path, ["--client", "cursor", "--yes"], {
    FORKD_URL: "https://forkd.example",
    FORKD_TOKEN: "fkd_secret",
  });
  assert.equal(code, 0);
  assert.match(stderr, /the token is not written/);
  const text = await readFile(join(home.path, ".cursor", "mcp.json"), "utf8");
  assert.match(text, /https:\/\/forkd\.example/);
  assert.doesNotMatch(text, /secret/);
});
