// The dashboard of a gateway in a real browser: login by the command line, the tree with its nodes, a fork, a terminal on
// another node, and the pages of nodes and projects.

import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { nodeOf, TestCluster, type TestGateway } from "../helpers/cluster.ts";
import { pixelsTooWide, startChromium, terminalText, untilTerminal, violationsOf, Visitor, whyNoChromium } from "../helpers/dashboard.ts";
import { until } from "../helpers/until.ts";

import type { Browser, Locator, Page } from "playwright-core";
import type { UiLink } from "forkd";
import type { TestDaemon } from "../helpers/daemon.ts";

/** The browser's own switch of tabs is not available without a window */
const setHidden = (value: boolean): string =>
  `Object.defineProperty(document, "hidden", { value: ${value}, configurable: true });
   document.dispatchEvent(new Event("visibilitychange"))`;

describe("the dashboard of a cluster", { skip: whyNoChromium() }, () => {
  let cluster: TestCluster;
  let gateway: TestGateway;
  let browser: Browser;
  let codes: string[];

  const nodeAt = (at: number): TestDaemon => {
    const node = cluster.nodes[at];
    assert.ok(node);
    return node;
  };

  /** The command line with the gateway's address. Its name is one that a visitor may ask for */
  const cli = async (args: string[]): Promise<string> => {
    const FORKD_URL = `http://localhost:${gateway.bind.split(":")[1] ?? ""}`;
    const { code, stdout, stderr } = await nodeAt(0).cli(args, { env: { FORKD_URL, FORKD_TOKEN: cluster.token } });
    assert.equal(code, 0, stderr);
    return stdout;
  };

  const logIn = async (visitor: Visitor, scope = "operator"): Promise<Page> => {
    const { url } = JSON.parse(await cli(["ui", "--no-open", "--json", "--scope", scope])) as UiLink;
    const page = await visitor.context.newPage();
    await page.goto(url);
    await page.locator("nav.navigation").waitFor();
    return page;
  };

  before(async () => {
    browser = await startChromium();
    cluster = await TestCluster.make();
    await cluster.addNode([], async (daemon) => daemon.makePython());
    await cluster.addNode();
    const file = join(cluster.dir, "python.pack");
    for (const [at, args] of [
      [0, ["pack", "python", "-o", file, "--level", "1"]],
      [1, ["unpack", file]],
    ] as const) {
      const { code, stderr } = await nodeAt(at).cli(args);
      assert.equal(code, 0, stderr);
    }
    codes = await Promise.all(cluster.nodes.map(async ({ controller }) => (await controller.status()).node));
    gateway = await cluster.addGateway();
  });

  after(async () => {
    await browser.close();
    await cluster[Symbol.asyncDispose]();
  });

  it("logs in by forkd ui, shows the node of each row, and forks from the page", async () => {
    await using visitor = await Visitor.open(browser);
    const page = await logIn(visitor);
    assert.ok(!page.url().includes("login"));
    const [cookie] = await visitor.context.cookies();
    assert.deepEqual([cookie?.httpOnly, cookie?.sameSite, cookie?.domain], [true, "Strict", "localhost"]);
    const snapshot = page.locator(".row.is-snapshot");
    await until(
      async () => (await snapshot.locator(".node").getAttribute("title"))?.split(", ").toSorted().join() === codes.toSorted().join(),
    );
    // made beside the page, on a node that is known
    const [made] = await nodeAt(1).controller.spawnSandboxes("python", { name: "on-b" });
    assert.equal(nodeOf(made?.id ?? ""), codes[1]);
    await row(page, "on-b")
      .getByText(codes[1] ?? "", { exact: true })
      .waitFor();

    await row(page, "python").click();
    await page.getByRole("button", { name: "Fork", exact: true }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("How many").fill("2");
    assert.equal(await dialog.locator(".command code").textContent(), "forkd fork python -n 2");
    await dialog.getByRole("button", { name: "Fork 2" }).click();
    await page.getByText(/2 forks of python in/).waitFor();
    await until(async () => (await page.locator(".row.is-sandbox").count()) === 3);
    for (const { id, name } of await gateway.controller.listSandboxes()) {
      const cell = row(page, name ?? id).locator(".node");
      assert.equal(await cell.textContent(), nodeOf(id));
    }
    await page.getByRole("button", { name: "Undo" }).click();
    await until(async () => (await page.locator(".row.is-sandbox").count()) === 1);
  });

  it("follows events after the page was hidden: it continues from the position on every node", async () => {
    await using visitor = await Visitor.open(browser);
    const page = await logIn(visitor);
    await row(page, "on-b").waitFor();
    await page.evaluate(setHidden(true));
    await nodeAt(0).controller.spawnSandboxes("python", { name: "meanwhile" });
    await page.evaluate(setHidden(false));
    await row(page, "meanwhile").waitFor();
    await page.getByRole("link", { name: "Events" }).click();
    await page
      .getByRole("row", { name: /sandbox\.created/ })
      .first()
      .waitFor();
    assert.equal(await page.locator(".problem").count(), 0);
    await gateway.controller.killSandbox("meanwhile");
  });

  it("opens a terminal and files of a sandbox on any node", async () => {
    await using visitor = await Visitor.open(browser);
    const page = await logIn(visitor, "exec");
    await page.goto(`${origin(page)}/ui/sandboxes/on-b/terminal`);
    await untilTerminal(page, /[#$]\s*$/);
    await page.locator(".terminal-box:visible .xterm-helper-textarea").focus();
    await page.keyboard.insertText("echo from-the-page > /srv/note.txt; cat /srv/note.txt");
    await page.keyboard.press("Enter");
    await untilTerminal(page, /^from-the-page$/m);
    assert.match(await terminalText(page), /from-the-page/);
    const text = await nodeAt(1).controller.readFile("on-b", "/srv/note.txt");
    assert.equal(Buffer.from(text).toString(), "from-the-page\n");
    await page.goto(`${origin(page)}/ui/sandboxes/on-b/files`);
    await page.getByRole("heading", { name: "on-b" }).waitFor();
  });

  it("shows the nodes, who holds a snapshot, and projects with their limits", async () => {
    await using visitor = await Visitor.open(browser);
    const page = await logIn(visitor);
    await page.getByRole("link", { name: "Nodes", exact: true }).click();
    for (const code of codes) {
      const card = page.locator(".card").filter({ has: page.getByRole("heading", { name: code }) });
      await card.getByText("up", { exact: true }).waitFor();
      await card.getByRole("link", { name: "python" }).waitFor();
      await card.getByRole("meter", { name: `Sandboxes of ${code}` }).waitFor();
    }
    assert.equal(await page.locator("main > .command code").textContent(), "forkd cluster status");

    await page.goto(`${origin(page)}/ui/snapshots/python`);
    const holders = page.locator(".card").filter({ has: page.getByRole("heading", { name: "Nodes that hold it" }) });
    for (const code of codes) await holders.getByText(code, { exact: true }).waitFor();

    await page.getByRole("link", { name: "Projects" }).click();
    await page.getByRole("textbox", { name: /^Name/ }).fill("acme");
    await page.getByRole("button", { name: "Make it" }).click();
    await page.getByRole("button", { name: "Set limits of acme" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("spinbutton", { name: "Sandboxes", exact: true }).fill("20");
    assert.equal(await dialog.locator(".command code").textContent(), "forkd project set acme --sandboxes 20");
    await dialog.getByRole("button", { name: "Set", exact: true }).click();
    await page.getByRole("meter", { name: "Sandboxes of acme" }).waitFor();
    const quota = JSON.parse(await cli(["--project", "acme", "quota", "--json"])) as { limits: { sandboxes: number } };
    assert.equal(quota.limits.sandboxes, 20);
  });

  it("fits a phone and passes axe on the pages of a cluster", async () => {
    // a limit in both sizes of its bar
    await gateway.controller.updateProject("default", { sandboxes: 100, snapshots: 1 });
    const found: string[] = [];
    for (const colorScheme of ["dark", "light"] as const) {
      await using visitor = await Visitor.open(browser, { colorScheme, viewport: { width: 360, height: 740 }, reducedMotion: "reduce" });
      const page = await logIn(visitor);
      for (const path of ["", "nodes", "projects", "snapshots/python", "sandboxes/on-b", "host"]) {
        await page.goto(`${origin(page)}/ui/${path}`);
        await page.locator("main h1").waitFor({ state: "attached" });
        await until(async () => (await page.locator("[aria-busy=true]").count()) === 0);
        if (["nodes", "projects"].includes(path)) await page.getByRole("meter").first().waitFor();
        const wide = await pixelsTooWide(page);
        if (wide > 0) found.push(`${path}: ${wide} pixels too wide`);
        found.push(...(await violationsOf(page)).map((each) => `${path} ${colorScheme}: ${each}`));
      }
    }
    assert.deepEqual(found, []);
  });

  it("shows only its own project without the scope operator, and says when a node is down", async () => {
    await using visitor = await Visitor.open(browser);
    const page = await logIn(visitor, "admin");
    await page.getByRole("link", { name: "Projects" }).click();
    await page.getByRole("heading", { name: "Project", exact: true }).waitFor();
    await page.getByRole("heading", { name: "default" }).waitFor();
    assert.equal(await page.getByRole("button", { name: /Set limits/ }).count(), 0);
    const { bind } = nodeAt(1);
    await nodeAt(1).kill9();
    await page.getByRole("link", { name: "Nodes", exact: true }).click();
    const card = page.locator(".card").filter({ has: page.getByRole("heading", { name: codes[1] ?? "" }) });
    await card.getByText("down", { exact: true }).waitFor();
    await card.getByText(/It does not answer/).waitFor();
    await nodeAt(1).up(["--bind", bind ?? "", "--cluster-key-file", cluster.keyFile]);
    await card.getByText("up", { exact: true }).waitFor();
    await page.getByRole("button", { name: "Log out" }).click();
    await page.getByText("You are logged out.").waitFor();
  });
});

function row(page: Page, name: string): Locator {
  return page.locator(".row:not(.head)").filter({ has: page.getByText(name, { exact: true }) });
}

function origin(page: Page): string {
  return new URL(page.url()).origin;
}
