// Every command line and every program of the README, of docs/cli.md, of docs/mcp.md and of docs/recipes.md runs.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { withoutPython } from "../contract/python-driver.ts";
import { TestDaemon } from "../helpers/daemon.ts";

const ROOT = resolve(import.meta.dirname, "..", "..");
/** Need the internet; `image pull` itself is tested against a registry on this machine */
const NOT_RUN = [/^\S*forkd image pull /];
const BLOCK_WITHIN_MS = 300_000;

const noPython = withoutPython();

type Block = { language: string; text: string; line: number };

for (const file of ["README.md", "docs/cli.md", "docs/mcp.md", "docs/recipes.md"]) {
  describe(file, () => {
    let daemon: TestDaemon;
    let bin: string;
    /** where its command lines make files; the others name files of the repository */
    let cwd = ROOT;
    let blocks: Block[] = [];

    before(async () => {
      blocks = blocksOf(await readFile(join(ROOT, file), "utf8"));
      daemon = await TestDaemon.make();
      bin = await mkdtemp(join(tmpdir(), "forkd-test-bin-"));
      await symlink(join(ROOT, "forkd"), join(bin, "forkd"));
      if (file === "docs/recipes.md") cwd = bin;
    });

    after(async () => {
      await daemon.cli(["down", "--kill-sandboxes"]);
      await daemon[Symbol.asyncDispose]();
      await rm(bin, { recursive: true, force: true });
    });

    it("shows commands", () => {
      assert.ok(blocks.filter(({ language }) => language === "sh").length > 0);
      assert.deepEqual(
        blocks.filter(({ language }) => !["sh", "ts", "python"].includes(language)),
        [],
        "a block in a language that no test runs",
      );
    });

    it("each of which works, in their order", { timeout: 2 * BLOCK_WITHIN_MS }, async (context) => {
      for (const block of blocks) {
        if (block.language === "python" && noPython !== false) {
          context.diagnostic(`not run, ${noPython}: line ${block.line}`);
          continue;
        }
        const { code, output } = await runBlock(block, context.diagnostic.bind(context));
        assert.equal(code, 0, `${file}, line ${block.line}:\n${block.text}\n${output}`);
      }
    });

    async function runBlock(block: Block, note: (message: string) => void): Promise<Outcome> {
      if (block.language === "sh") return runShell(block, note);
      if (block.language === "ts") return runProgram(block);
      return run("python3", ["-c", block.text], { ...daemon.env, PYTHONPATH: join(ROOT, "python", "src"), PYTHONDONTWRITEBYTECODE: "1" });
    }

    async function runShell({ text }: Block, note: (message: string) => void): Promise<Outcome> {
      const lines = text.split("\n").filter((line) => {
        const skipped = NOT_RUN.some((pattern) => pattern.test(line));
        if (skipped) note(`not run, it needs the internet: ${line}`);
        return !skipped;
      });
      // any port will do, and the usual one may be in use here
      const script = lines.join("\n").replaceAll("127.0.0.1:8889", "127.0.0.1:0");
      return run("bash", ["-euo", "pipefail", "-c", script], { ...daemon.env, PATH: `${bin}:${process.env["PATH"] ?? ""}` }, cwd);
    }

    async function runProgram({ text }: Block): Promise<Outcome> {
      // inside the repository, so that the package is found as it is by whoever installs it
      const dir = join(ROOT, "dist", `docs-test-${process.pid}`);
      await mkdir(dir, { recursive: true });
      try {
        const program = join(dir, "program.ts");
        await writeFile(program, text);
        return await run(process.execPath, ["--disable-warning=ExperimentalWarning", program], daemon.env);
      } finally {
        await rm(dir, { recursive: true, force: true });
      }
    }
  });
}

type Outcome = { code: number; output: string };

async function run(program: string, args: string[], env: NodeJS.ProcessEnv, cwd = ROOT): Promise<Outcome> {
  return new Promise((done) => {
    execFile(program, args, { cwd, env, timeout: BLOCK_WITHIN_MS, maxBuffer: 64 * 1024 * 1024 }, (error, stdout, stderr) => {
      done({ code: error ? (typeof error.code === "number" ? error.code : 1) : 0, output: `${stdout}${stderr}` });
    });
  });
}

function blocksOf(text: string): Block[] {
  return [...text.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm)].map((match) => ({
    language: match[1] ?? "",
    text: match[2] ?? "",
    line: text.slice(0, match.index).split("\n").length + 1,
  }));
}
