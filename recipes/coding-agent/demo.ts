// Demo of a fork in the middle of an agent's work: three machines try three fixes in parallel, and the tests select the
// best patch.
//
//     forkd build coding-agent
//     node_modules/.bin/node recipes/coding-agent/demo.ts [winner.patch]

import { spawn } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Sandbox } from "forkd";

const PROJECT = join(import.meta.dirname, "project");
const REPOSITORY = "/home/agent/stats";
const HERE = { cwd: REPOSITORY, user: "agent", timeoutSecs: 300 };

/** Three attempts that a model might make; each is the new body of median() */
const IDEAS = [
  {
    name: "average the two in the middle",
    body: `    qsort(values, n, sizeof *values, ascending);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;`,
  },
  {
    name: "sort a copy",
    body: `    double *sorted = malloc(n * sizeof *sorted);
    memcpy(sorted, values, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, ascending);
    double middle = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    free(sorted);
    return middle;`,
  },
  {
    name: "count without sorting",
    body: `    double low = values[0], high = values[0];
    for (int i = 0; i < n; i++) {
        int below = 0;
        for (int j = 0; j < n; j++)
            below += values[j] < values[i];
        if (below == (n - 1) / 2)
            low = values[i];
        if (below == n / 2)
            high = values[i];
    }
    return (low + high) / 2;`,
  },
];

type Attempt = { name: string; passed: boolean; verdict: string; patch: string };

async function main(saveTo: string | undefined): Promise<void> {
  await using agent = await Sandbox.create("coding-agent", { ttlSecs: 1800 });
  await bringProject(agent);

  const before = await agent.exec(["make", "test"], HERE);
  console.log(`The repository: ${lastLine(before.stdout)}`);
  const found = await agent.exec(["rg", "--line-number", "median\\(", "stats.c"], HERE);
  console.log(`The agent reads ${found.stdout.trim()}`);
  // Work in the parent, not committed: the three children inherit it and do not repeat it.
  await agent.exec(["sed", "-i", "s/#include <stdlib.h>/&\\n#include <string.h>/", "stats.c"], HERE);

  const children = await agent.fork(IDEAS.length, { ttlSecs: 1800 });
  try {
    const attempts = await Promise.all(IDEAS.map((idea, index) => attempt(children[index] as Sandbox, idea)));
    for (const { name, passed, verdict } of attempts) console.log(`${passed ? "✓" : "✗"} ${name}: ${verdict}`);
    const [winner] = attempts.filter(({ passed }) => passed).toSorted((a, b) => a.patch.length - b.patch.length);
    if (!winner) throw new Error("none of the fixes passes the tests");
    console.log(`\nThe winner: ${winner.name}\n\n${winner.patch}`);
    if (saveTo) await writeFile(saveTo, winner.patch);
  } finally {
    await Promise.all(children.map((child) => child.kill()));
  }
}

/** Uploads the host's folder as a repository of the agent */
async function bringProject(agent: Sandbox): Promise<void> {
  await agent.files.mkdir(REPOSITORY, { user: "agent" });
  const tar = spawn("tar", ["-C", PROJECT, "-c", "."], { stdio: ["ignore", "pipe", "inherit"] });
  await agent.files.uploadTar(REPOSITORY, tar.stdout, { user: "agent" });
  for (const args of [
    ["init", "-q"],
    ["add", "."],
    ["commit", "-qm", "stats"],
  ]) {
    const { exit_code: code, stderr } = await agent.exec(["git", ...args], HERE);
    if (code !== 0) throw new Error(`git ${args[0]} failed: ${stderr}`);
  }
}

async function attempt(child: Sandbox, { name, body }: { name: string; body: string }): Promise<Attempt> {
  const path = `${REPOSITORY}/stats.c`;
  const source = await child.files.readText(path);
  const fixed = source.replace(/(double median\([^)]*\)\n\{\n)[^}]*\n\}/, (_all, head: string) => `${head}${body}\n}`);
  await child.files.write(path, fixed, { user: "agent" });
  const { exit_code: code, stdout, stderr } = await child.exec(["make", "test"], HERE);
  const { stdout: patch } = await child.exec(["git", "diff"], HERE);
  return { name, passed: code === 0, verdict: lastLine(stdout) || lastLine(stderr), patch };
}

function lastLine(text: string): string {
  return text.trim().split("\n").at(-1) ?? "";
}

await main(process.argv[2]);
