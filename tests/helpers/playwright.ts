// Playwright, connected to the browser of a sandbox through the daemon's proxy.

import { execFile } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { messageOf } from "@forkd/runtime";
import { chromium } from "playwright-core";
import { patience } from "./patience.ts";

import type { Sandbox } from "forkd";
import type { Browser, Page } from "playwright-core";

const PACKAGE = "chromium-headless-shell";
const DEBUGGING_PORT = 9222;
/** Tag of its process, as the recipe gives it */
const BROWSER = "browser";
const OUTPUT_CHARS = 2000;
/** Time for output that the agent has kept */
const OUTPUT_MS = 1000;
/** Playwright's default timeouts are too short for emulated guests */
const TIMEOUT_MS = patience(40);

/** Reason why the recipe cannot be built on this machine: Ubuntu has no Chromium package */
export async function whyNoBrowser(): Promise<string | false> {
  const { stdout } = await promisify(execFile)("apt-cache", ["pkgnames", PACKAGE]);
  return stdout.split("\n").includes(PACKAGE) ? false : `the apt sources of this machine have no ${PACKAGE}`;
}

/** `bind` and `token` belong to the daemon */
export async function connectBrowser(sandbox: Sandbox, bind: string, token: string): Promise<Browser> {
  const version = await sandbox.ports.fetch(DEBUGGING_PORT, "/json/version");
  const { webSocketDebuggerUrl } = (await version.json()) as { webSocketDebuggerUrl: string };
  // The browser reports its own address in the guest; only the path is valid outside
  const { pathname } = new URL(webSocketDebuggerUrl);
  const endpoint = `ws://${bind}/v1/sandboxes/${sandbox.id}/proxy/${DEBUGGING_PORT}${pathname}`;
  return chromium.connectOverCDP(endpoint, { headers: { "X-Forkd-Token": token }, timeout: TIMEOUT_MS });
}

/** Adds to a failure what became of the browsers: a browser that has ended shows only as a lost connection */
export async function explained<V>(work: Promise<V>, sandboxes: readonly Sandbox[]): Promise<V> {
  try {
    return await work;
  } catch (error) {
    const reports = await Promise.all(sandboxes.map(async (sandbox) => `${sandbox.id}: ${await reportOf(sandbox)}`));
    throw new Error([messageOf(error), ...reports].join("\n"), { cause: error });
  }
}

async function reportOf(sandbox: Sandbox): Promise<string> {
  try {
    const state = JSON.stringify(await sandbox.processes.get(BROWSER));
    let output = "";
    const keep = (text: string): void => void (output = (output + text).slice(-OUTPUT_CHARS));
    const process = await sandbox.processes.attach(BROWSER, { onStdout: keep, onStderr: keep });
    await sleep(OUTPUT_MS);
    process.detach();
    const { stdout: kernel } = await sandbox.exec("dmesg | tail -n 5");
    return `${state}, its output ends with ${output}, the guest kernel's log with ${kernel}`;
  } catch (error) {
    return messageOf(error);
  }
}

/** The page that was open in the snapshot */
export function warmPage(browser: Browser): Page {
  const page = browser.contexts()[0]?.pages()[0];
  if (!page) throw new Error("the browser has no page");
  page.setDefaultTimeout(TIMEOUT_MS);
  return page;
}
