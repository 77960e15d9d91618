// Playwright at the browser of a sandbox, through the daemon's proxy.

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { chromium } from "playwright-core";

import type { Sandbox } from "forkd";
import type { Browser, Page } from "playwright-core";

const PACKAGE = "chromium-headless-shell";
const DEBUGGING_PORT = 9222;
/** Emulated guests take seconds for what Playwright expects at once */
const TIMEOUT_MS = 300_000;

/** Why the recipe cannot be built on this machine: Ubuntu has no package of Chromium */
export async function whyNoBrowser(): Promise<string | false> {
  const { stdout } = await promisify(execFile)("apt-cache", ["pkgnames", PACKAGE]);
  return stdout.split("\n").includes(PACKAGE) ? false : `the apt sources of this machine have no ${PACKAGE}`;
}

/** `bind` and `token` are the daemon's */
export async function connectBrowser(sandbox: Sandbox, bind: string, token: string): Promise<Browser> {
  const version = await sandbox.ports.fetch(DEBUGGING_PORT, "/json/version");
  const { webSocketDebuggerUrl } = (await version.json()) as { webSocketDebuggerUrl: string };
  // the browser knows only its own address
  const { pathname } = new URL(webSocketDebuggerUrl);
  const endpoint = `ws://${bind}/v1/sandboxes/${sandbox.id}/proxy/${DEBUGGING_PORT}${pathname}`;
  return chromium.connectOverCDP(endpoint, { headers: { "X-Forkd-Token": token }, timeout: TIMEOUT_MS });
}

/** The page on which the browser was warm */
export function warmPage(browser: Browser): Page {
  const page = browser.contexts()[0]?.pages()[0];
  if (!page) throw new Error("the browser has no page");
  page.setDefaultTimeout(TIMEOUT_MS);
  return page;
}
