// The recipe playwright-browser: five forks of one warm browser, each driven by Playwright through the proxy.
// Builds images: the image of a recipe is part of what is tested.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { Sandbox } from "forkd";
import { TestDaemon } from "../helpers/daemon.ts";
import { connectBrowser, explained, warmPage, whyNoBrowser } from "../helpers/playwright.ts";
import { buildRecipe } from "../helpers/recipe.ts";

import type { Page } from "playwright-core";

const CHILDREN = 5;

describe("recipe playwright-browser", { skip: await whyNoBrowser() }, () => {
  let daemon: TestDaemon;
  let token: string;
  let children: Sandbox[];
  let pages: Page[];

  before(async () => {
    daemon = await TestDaemon.start(["--bind", "127.0.0.1:0"]);
    token = (await daemon.controller.createToken("playwright")).token;
    const tag = await buildRecipe(daemon, "playwright-browser", { set: { size: "640,400" } });
    const { controller } = daemon;
    children = await Promise.all(Array.from({ length: CHILDREN }, async () => Sandbox.create(tag, { controller })));
    pages = await Promise.all(children.map(open));
  });

  after(async () => {
    await Promise.all((pages ?? []).map(async (page) => page.context().browser()?.close()));
    await daemon[Symbol.asyncDispose]();
  });

  it("shows the warm page in every fork", async () => {
    for (const page of pages) assert.equal(await page.title(), "warm");
    const screenshots = await explained(Promise.all(pages.map(async (page) => page.screenshot())), children);
    const [first] = screenshots;
    for (const screenshot of screenshots) assert.deepEqual(screenshot, first);
  });

  it("has an independent page in each fork", async () => {
    const screenshots = await explained(
      Promise.all(
        pages.map(async (page, index) => {
          await children[index]?.files.write("/tmp/own.html", `<title>page ${index}</title><h1>Page ${index}</h1>`);
          await page.goto("file:///tmp/own.html");
          return page.screenshot();
        }),
      ),
      children,
    );
    const titles = await Promise.all(pages.map(async (page) => page.title()));
    assert.deepEqual(titles, ["page 0", "page 1", "page 2", "page 3", "page 4"]);
    assert.equal(new Set(screenshots.map((screenshot) => screenshot.toString("base64"))).size, CHILDREN);
  });

  it("continues in forks of a child: both show its page and the text typed there", async () => {
    const [child, page] = [children[0], pages[0]];
    assert.ok(child && page);
    await page.setContent("<title>form</title><input autofocus style='caret-color: transparent'>");
    await page.fill("input", "written before the fork");
    const screenshot = await page.screenshot();
    const copies = await Promise.all((await child.fork(2)).map(open));
    for (const copy of copies) {
      assert.equal(await copy.inputValue("input"), "written before the fork");
      assert.deepEqual(await copy.screenshot(), screenshot);
      await copy.context().browser()?.close();
    }
  });

  async function open(sandbox: Sandbox): Promise<Page> {
    assert.ok(daemon.bind);
    return warmPage(await connectBrowser(sandbox, daemon.bind, token));
  }
});
