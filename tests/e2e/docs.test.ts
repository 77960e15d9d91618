// Runs all commands and programs in the README, docs/cli.md, docs/mcp.md and docs/recipes.md.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { withoutPython } from "../contract/python-driver.ts";
import { TestDaemon } from "../helpers/daemon.ts";
import { patience } from "../helpers/patience.ts";

const ROOT = resolve(import.meta.dirname, "..", "..");
/** Commands that need the internet; `image pull` is tested against a local registry */
const NOT_RUN = [/^\S*forkd image pull /];

const noPython = withoutPython();

type Block = { language: string; text: string; line: number };

for (const file of ["README.md", "docs/cli.md", "docs/mcp.md", "docs/recipes.md"]) {
  describe(file, () => {
    let daemon: TestDaemon;
    let bin: string;
    /** working folder: the commands of docs/recipes.md create files, the others name files of the repository */
    let cwd = ROOT;
    let blocks: Block[] = [];

    before(async () => {
      blocks = blocksOf(await readFile(join(ROOT, file), "utf8"));
      daemon = await TestDaemon.make();
      bin = await mkdtemp(join(tmpdir(), "forkd-test-bin-"));
      await symlink(join(ROOT, "forkd"), join(bin, "forkd"));
      // Programs import the SDK as if npm had installed it.
      await mkdir(join(bin, "node_modules"));
      await symlink(join(ROOT, "packages", "sdk"), join(bin, "node_modules", "forkd"));
      if (file === "docs/recipes.md") cwd = bin;
    });

    after(async () => {
      await daemon.cli(["down", "--kill-sandboxes"]);
      await daemon[Symbol.asyncDispose]();
      await rm(bin, { recursive: true, force: true });
    });

    it("commands", () => {
      assert.ok(blocks.filter(({ language }) => language === "sh").length > 0);
      assert.deepEqual(
        blocks.filter(({ language }) => !["sh", "ts", "python"].includes(language)),
        [],
        "a block in a language that no test runs",
      );
    });

    it("succeed in their order", async (context) => {
      for (const block of inOrder(blocks)) {
        if (block.language === "python" && noPython !== false) {
          context.diagnostic(`not run, ${noPython}: line ${block.line}`);
          continue;
        }
        const { code, output } = await runBlock(block, context.diagnostic.bind(context));
        assert.equal(code, 0, `${file}, line ${block.line}:\n${block.text}\n${output}`);
        for (const said of printedBy(block)) assert.ok(output.includes(said), `${file}, line ${block.line} says ${said}:\n${output}`);
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
      // any free port: the documented one may be in use
      const anyPort = lines.join("\n").replaceAll("127.0.0.1:8889", "127.0.0.1:0");
      // put host files into the test's folder; guest paths have a sandbox name before them
      const script = anyPort.replaceAll(/(^|\s|file:\/\/)\/tmp\//gm, `$1${bin}/`);
      return run("bash", ["-euo", "pipefail", "-c", script], { ...daemon.env, PATH: `${bin}:${process.env["PATH"] ?? ""}` }, cwd);
    }

    async function runProgram({ text }: Block): Promise<Outcome> {
      const program = join(bin, "program.ts");
      await writeFile(program, text);
      return run(process.execPath, ["--disable-warning=ExperimentalWarning", program], daemon.env);
    }
  });
}

type Outcome = { code: number; output: string };

async function run(program: string, args: string[], env: NodeJS.ProcessEnv, cwd = ROOT): Promise<Outcome> {
  return new Promise((done) => {
    execFile(program, args, { cwd, env, timeout: patience(60), maxBuffer: 64 * 1024 * 1024 }, (error, stdout, stderr) => {
      done({ code: error ? (typeof error.code === "number" ? error.code : 1) : 0, output: `${stdout}${stderr}` });
    });
  });
}

/** A program at the top of a page needs the results of the first commands below it */
function inOrder(blocks: readonly Block[]): Block[] {
  const commands = blocks.findIndex(({ language }) => language === "sh");
  return [...blocks.slice(commands, commands + 1), ...blocks.slice(0, commands), ...blocks.slice(commands + 1)];
}

/** Expected output of a TypeScript program, from its comments */
function printedBy({ language, text }: Block): string[] {
  if (language !== "ts") return [];
  return [...text.matchAll(/console\.log\(.*\); \/\/ (.+)$/gm)].map((match) => match[1] ?? "");
}

function blocksOf(text: string): Block[] {
  return [...text.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm)].map((match) => ({
    language: match[1] ?? "",
    text: match[2] ?? "",
    line: text.slice(0, match.index).split("\n").length + 1,
  }));
}
