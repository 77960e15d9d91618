// The dashboard with a tree of 1000 nodes: size of the first page, time until the tree is drawn, work per change.
// Runs alone: it measures time

import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { gzipSync } from "node:zlib";
import { TestDaemon } from "../helpers/daemon.ts";
import { startChromium, Visitor, whyNoChromium } from "../helpers/dashboard.ts";
import { patience } from "../helpers/patience.ts";
import { until } from "../helpers/until.ts";

import type { Browser } from "playwright-core";
import type { Tree, TreeNode, TreeSandbox } from "forkd";

const BUILT = resolve(import.meta.dirname, "..", "..", "dist", "ui");
const FIRST_PAGE_BYTES = 40 * 1024;
/** 200 ms on a machine whose reference is 6 s, and more on a slower one */
const DRAWN_MS = Math.max(200, patience(1) / 60);
/** 30 frames per second */
const FRAME_MS = Math.max(34, patience(1) / 350);
/** Other work of the machine only adds to a time, so the best of several counts */
const MOST_TRIES = 30;

/** Time since the navigation began at which the first row of a sandbox is painted */
const WATCH = `
  new MutationObserver((_, observer) => {
    if (!document.querySelector(".row.is-sandbox")) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => (globalThis.drawnMs = performance.now())));
  }).observe(document, { childList: true, subtree: true });
`;
/** Median time between two frames while the tree is scrolled from its top to its end */
const SCROLL = `(async () => {
  const box = document.querySelector(".grid");
  const times = [];
  let last = performance.now();
  for (let top = 0; top < box.scrollHeight; top += 200) {
    box.scrollTop = top;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    times.push(now - last);
    last = now;
  }
  return times.sort((a, b) => a - b)[Math.floor(times.length / 2)];
})()`;

describe("the speed of the dashboard", { skip: whyNoChromium() }, () => {
  let daemon: TestDaemon;
  let browser: Browser;

  before(async () => {
    browser = await startChromium();
    daemon = await TestDaemon.start(["--bind", "127.0.0.1:0"]);
  });

  after(async () => {
    await browser.close();
    await daemon[Symbol.asyncDispose]();
  });

  it("loads at most 40 KB for the first page, and terminal and plots only when they are opened", async (t) => {
    const page = await readFile(join(BUILT, "index.html"), "utf8");
    const first = new Set(["index.html"]);
    const open = [...page.matchAll(/\/ui\/assets\/([\w.-]+)/g)].map(([, name = ""]) => name);
    for (let name = open.pop(); name !== undefined; name = open.pop()) {
      if (first.has(name)) continue;
      first.add(name);
      const text = await readFile(join(BUILT, name), "utf8");
      // static imports; dynamic ones are calls
      if (name.endsWith(".js")) open.push(...[...text.matchAll(/(?:from|import)\s*"\.\/([\w.-]+)"/g)].map(([, other = ""]) => other));
    }
    const sizes = await Promise.all([...first].map(async (name) => gzipSync(await readFile(join(BUILT, name)), { level: 9 }).length));
    const bytes = sizes.reduce((sum, size) => sum + size, 0);
    t.diagnostic(`first page: ${bytes} bytes in ${first.size} files`);
    assert.ok(bytes <= FIRST_PAGE_BYTES, `${bytes} bytes: ${[...first].join(", ")}`);
    const others = (await readdir(BUILT)).filter((name) => !first.has(name));
    for (const name of ["terminals-", "plot-"])
      assert.ok(
        others.some((other) => other.startsWith(name)),
        name,
      );
  });

  it("draws a tree of 1000 nodes within 200 ms on a machine of usual speed, and scrolls it smoothly", async (t) => {
    await using visitor = await Visitor.open(browser);
    const page = await visitor.logIn(daemon);
    const tree = JSON.stringify(largeTree());
    await page.route("**/v1/tree", async (route) => route.fulfill({ contentType: "application/json", body: tree }));
    await page.addInitScript(WATCH);
    const times: number[] = [];
    while (times.length < MOST_TRIES && !(Math.min(...times) <= DRAWN_MS)) {
      await page.goto(`${new URL(page.url()).origin}/ui/`);
      await until(async () => (await page.evaluate("globalThis.drawnMs")) !== undefined);
      times.push(Number(await page.evaluate("globalThis.drawnMs")));
    }
    const best = Math.min(...times);
    assert.equal(await page.locator(".grid").getAttribute("aria-rowcount"), "1001");
    const frames: number[] = [];
    while (frames.length < MOST_TRIES && !(Math.min(...frames) <= FRAME_MS)) frames.push(Number(await page.evaluate(SCROLL)));
    const frame = Math.min(...frames);
    t.diagnostic(`drawn after ${times.map(Math.round).join(", ")} ms; a frame takes ${frame.toFixed(1)} ms while scrolling`);
    assert.ok(best <= DRAWN_MS, `${best} ms`);
    assert.ok(frame <= FRAME_MS, `${frame} ms`);
  });
});

/** 1000 nodes: ten snapshots, each with branches and their sandboxes */
function largeTree(): Tree {
  const facts = { nodes: ["aaaa"], project: "default", status: "ready" as const, memory_mib: 256, created_at_unix: 1_700_000_000 };
  const sandbox = (id: string): TreeSandbox => {
    const rest = { node: "aaaa", memory_mib: 256, network_mode: "none", created_at_unix: 1_700_000_000, expires_at_unix: null } as const;
    return { id, name: null, state: "running", metadata: { job: "7" }, ...rest };
  };
  const sandboxes = (prefix: string, n: number): TreeSandbox[] => Array.from({ length: n }, (_, at) => sandbox(`sb-${prefix}-${at}`));
  const roots = Array.from({ length: 10 }, (_, at): TreeNode => {
    const branch = (from: number): TreeNode => ({
      id: `sn-${at}-${from}`,
      tag: `branch-${at}-${from}`,
      branched_from: `sb-${at}-${from}`,
      ...facts,
      sandboxes: sandboxes(`${at}-${from}`, 9),
      snapshots: [],
    });
    return {
      id: `sn-${at}`,
      tag: `base-${at}`,
      branched_from: null,
      ...facts,
      sandboxes: sandboxes(String(at), 49),
      snapshots: [0, 1, 2, 3, 4].map(branch),
    };
  });
  return { roots };
}
