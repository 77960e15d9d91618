// Makes the pictures of docs/images: five pages of the dashboard, with real sandboxes.
// Usage: node scripts/screenshots.ts [FOLDER]

import { mkdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import { TestDaemon } from "../tests/helpers/daemon.ts";
import { startChromium, untilTerminal, Visitor } from "../tests/helpers/dashboard.ts";
import { until } from "../tests/helpers/until.ts";

import type { Page } from "playwright-core";

const folder = resolve(process.argv[2] ?? join(import.meta.dirname, "..", "docs", "images"));
const SIZE = { width: 1280, height: 760 };

await mkdir(folder, { recursive: true });
await using daemon = await TestDaemon.start(["--bind", "127.0.0.1:0"]);
await daemon.makePython();
await plant(daemon);
await using browser = await startChromium();
await using visitor = await Visitor.open(browser, { viewport: SIZE, colorScheme: "dark" });
const page = await visitor.logIn(daemon);

await page.getByRole("row", { name: /tuned/ }).first().click();
await page.waitForTimeout(4500);
await shoot(page, "tree");

await page.getByRole("link", { name: "train", exact: true }).click();
await page.getByRole("link", { name: "Terminal" }).click();
await untilTerminal(page, /[#$]\s*$/);
await page.keyboard.type("python3 -c 'import numpy; print(numpy.arange(6).reshape(2, 3))'\n");
await untilTerminal(page, /\[3 4 5\]\]\s+\S+[#$]\s*$/);
await page.keyboard.type("uname -rm; head -2 /proc/meminfo\n");
await untilTerminal(page, /MemFree:.*\s+\S+[#$]\s*$/);
await shoot(page, "terminal");

await page.getByRole("link", { name: "Overview" }).click();
await page.getByText("Certificate of the fork").waitFor();
await shoot(page, "sandbox");

await page.getByRole("link", { name: "Files" }).click();
await page.getByRole("button", { name: "srv/" }).click();
await page.getByRole("button", { name: "train.py" }).click();
await page.getByRole("textbox", { name: /Content of/ }).waitFor();
await shoot(page, "files");

await page.getByRole("link", { name: "Host" }).click();
await page.locator(".uplot canvas").first().waitFor();
await page.waitForTimeout(12_000);
await shoot(page, "host");
console.log(`The pictures are in ${folder}.`);

/** A tree as an agent makes it: a warm base, forks, branches of a fork, forks of these */
async function plant({ controller }: TestDaemon): Promise<void> {
  const [train, web] = [
    await controller.spawnSandboxes("python", { name: "train", metadata: { job: "7", stage: "train" }, network: { mode: "open" } }),
    await controller.spawnSandboxes("python", { name: "web", metadata: { team: "search" }, ttlSecs: 7200 }),
  ];
  await controller.spawnSandboxes("python", { n: 2, metadata: { job: "8" } });
  const id = train[0]?.id ?? "";
  await controller.writeFile(
    id,
    "/srv/train.py",
    "import numpy as np\n\nrng = np.random.default_rng()\n\n\ndef step(weights, data):\n    return weights - 0.1 * data.T @ (data @ weights)\n\n\nprint(step(rng.normal(size=3), rng.normal(size=(8, 3))))\n",
  );
  for (const name of ["data.csv", "notes.md", "weights.bin"])
    await controller.writeFile(id, `/srv/${name}`, `${name}\n`.repeat(name.length * 40));
  await controller.evalCode(id, "import numpy as np; a = np.ones((900, 900))");
  await controller.branchSandbox(id, { tag: "tuned" });
  const tips = await controller.spawnSandboxes("tuned", { n: 3, metadata: { job: "7" } });
  await controller.updateSandbox(tips[0]?.id ?? "", { name: "attempt-1" });
  await controller.evalCode(tips[0]?.id ?? "", "b = a + 1");
  await controller.branchSandbox(tips[0]?.id ?? "", { tag: "best-so-far" });
  await controller.spawnSandboxes("best-so-far", { n: 2 });
  await controller.branchSandbox(id, { tag: "checkpoint-2" });
  await controller.suspendSandbox(web[0]?.id ?? "");
  await controller.pauseSandbox(tips[1]?.id ?? "");
}

async function shoot(from: Page, name: string): Promise<void> {
  await until(async () => (await from.locator("[aria-busy=true]").count()) === 0);
  await from.screenshot({ path: join(folder, `${name}.png`) });
}
