// The dashboard in Debian's Chromium, driven by Playwright. The browser reaches only this machine.

import assert from "node:assert/strict";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import axe from "axe-core";
import { chromium } from "playwright-core";
import { patience } from "./patience.ts";

import type { Browser, BrowserContext, BrowserContextOptions, Page } from "playwright-core";
import type { TestDaemon } from "./daemon.ts";

const PROGRAMS = ["chromium", "chromium-browser", "google-chrome"];

type Violation = { id: string; nodes: { html: string; failureSummary?: string }[] };

/** Reason why the tests cannot run; false: they can */
export function whyNoChromium(): string | false {
  return programPath() === undefined ? `none of ${PROGRAMS.join(", ")} is installed` : false;
}

export async function startChromium(): Promise<Browser> {
  return chromium.launch({
    executablePath: programPath() ?? "",
    // Chromium's own sandbox does not work in containers or as root; the pages are ours
    chromiumSandbox: false,
    args: [
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
      "--no-first-run",
      "--disable-quic",
      "--disable-gpu",
      "--disable-dev-shm-usage",
      // all other destinations go through a proxy port without a listener, so they fail
      "--proxy-server=http://127.0.0.1:1",
      "--proxy-bypass-list=*.localhost;localhost;127.0.0.1",
    ],
    timeout: patience(),
  });
}

/** A browser profile that fails the test after an error of the page, or a request to another host */
export class Visitor implements AsyncDisposable {
  readonly context: BrowserContext;
  readonly problems: string[] = [];

  private constructor(context: BrowserContext) {
    this.context = context;
    context.setDefaultTimeout(patience());
    context.on("request", (request) => {
      const { protocol, hostname } = new URL(request.url());
      if (/^(https?|wss?):$/.test(protocol) && !/(^|\.)localhost$/.test(hostname)) this.problems.push(`a request to ${request.url()}`);
    });
    context.on("weberror", (error) => this.problems.push(String(error.error())));
    context.on("console", (message) => {
      // the browser reports each failed request; a killed daemon makes some
      if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) this.problems.push(message.text());
    });
  }

  static async open(browser: Browser, opts: BrowserContextOptions = {}): Promise<Visitor> {
    return new Visitor(await browser.newContext({ viewport: { width: 1280, height: 800 }, ...opts }));
  }

  /** Logs in with a link of `forkd ui` */
  async logIn(daemon: TestDaemon, opts: { scope?: "read" | "exec" | "admin" } = {}): Promise<Page> {
    const { url } = await daemon.controller.createUiLink(opts);
    const page = await this.context.newPage();
    await page.goto(url);
    await page.locator("nav.navigation").waitFor();
    return page;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.context.close();
    assert.deepEqual(this.problems, []);
  }
}

/** Text of the visible terminal; xterm.js draws it on a canvas or in rows of its own */
export async function terminalText(page: Page): Promise<string> {
  const box = '[...document.querySelectorAll(".terminal-box")].find((each) => each.offsetParent !== null)?.firstElementChild';
  return String(await page.evaluate(`${box}?.screenText?.() ?? ""`));
}

export async function untilTerminal(page: Page, text: RegExp): Promise<void> {
  const end = Date.now() + patience();
  for (;;) {
    const seen = await terminalText(page);
    if (text.test(seen)) return;
    assert.ok(Date.now() < end, `the terminal never showed ${String(text)}: ${seen.trim().slice(-600)}`);
    await page.waitForTimeout(50);
  }
}

/** WCAG A and AA. Evaluated, not added as a script: the page forbids scripts that are not its own */
export async function violationsOf(page: Page): Promise<string[]> {
  await page.evaluate(axe.source);
  const found = (await page.evaluate(
    "axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] }).then((result) => result.violations)",
  )) as Violation[];
  return found.map(
    ({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html.slice(0, 160)} ${failureSummary ?? ""}`).join(" | ")}`,
  );
}

/** Pixels by which the page is wider than the screen */
export async function pixelsTooWide(page: Page): Promise<number> {
  return Number(await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"));
}

function programPath(): string | undefined {
  const folders = (process.env["PATH"] ?? "").split(delimiter);
  return folders.flatMap((folder) => PROGRAMS.map((name) => join(folder, name))).find(isExecutable);
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false; // not there
  }
}
