// A real browser that opens a link to a server in a guest: page, WebSocket, events, and separate origins.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { prepareHome, resolveHome } from "@forkd/runtime";
import { Sandbox } from "forkd";
import { Browser } from "../helpers/browser.ts";
import { TestDaemon } from "../helpers/daemon.ts";
import { NODE_SERVER } from "../helpers/port-servers.ts";
import { warmSnapshot } from "../helpers/shared-stores.ts";
import { until } from "../helpers/until.ts";
import { ensureNodeImage, NODE_WARM } from "../helpers/vm.ts";

const browser = await Browser.start();

describe("a server in a sandbox, seen by a browser", { skip: typeof browser === "string" ? browser : false }, () => {
  let daemon: TestDaemon;
  let sandbox: Sandbox;
  let other: Sandbox;

  before(async () => {
    await ensureNodeImage(await prepareHome(resolveHome()));
    daemon = await TestDaemon.start(["--bind", "127.0.0.1:0"]);
    await warmSnapshot(daemon.home, "node", NODE_WARM);
    sandbox = await Sandbox.create("node", { controller: daemon.controller });
    other = await Sandbox.create("node", { controller: daemon.controller });
    for (const each of [sandbox, other]) await each.eval(NODE_SERVER);
  });

  after(async () => {
    if (typeof browser === "object") await browser[Symbol.asyncDispose]();
    await daemon[Symbol.asyncDispose]();
  });

  const open = async (url: string) => (typeof browser === "object" ? browser.open(url) : assert.fail(browser));

  it("opens by its link, with a WebSocket and server-sent events", async () => {
    const { url } = await sandbox.ports.preview(3000);
    const page = await open(url);
    const host = new URL(await sandbox.ports.url(3000)).host;
    assert.equal(await page.evaluate("location.href"), `http://${host}/`);
    assert.equal(await page.evaluate("document.title"), "guest");
    await until(async () => (await page.evaluate("seen.error ?? seen.echoed")) !== null);
    assert.equal(await page.evaluate("seen.error"), null);
    assert.equal(await page.evaluate("seen.echoed"), `hello from ${host}`);
    await until(async () => (await page.evaluate("seen.events.length")) === 2);
    assert.equal(await page.evaluate("seen.events.join()"), "one,two");
  });

  it("never gets forkd's cookie, neither in scripts nor in headers, and keeps its own", async () => {
    const { url } = await sandbox.ports.preview(3000);
    const page = await open(url);
    await page.evaluate("fetch('/headers')");
    const told = String(await page.evaluate("fetch('/headers').then((response) => response.text())"));
    assert.doesNotMatch(told, /forkd_preview|fkp_/);
    assert.match(told, /own=1/);
    assert.equal(await page.evaluate("document.cookie"), "own=1");
    const ours = (await page.cookies(url)).filter(({ name }) => name === "forkd_preview");
    assert.deepEqual(
      ours.map(({ domain, httpOnly }) => [domain, httpOnly]),
      [[new URL(url).hostname, true]],
    );
  });

  it("is inaccessible to pages of another sandbox in the same browser", async () => {
    await open((await other.ports.preview(3000)).url);
    const page = await open((await sandbox.ports.preview(3000)).url);
    const foreign = await other.ports.url(3000);
    const ask = (init: string): Promise<unknown> =>
      page.evaluate(`fetch(${JSON.stringify(foreign)}, ${init}).then((response) => response.type, () => "refused")`);
    assert.equal(await ask("{ credentials: 'include' }"), "refused");
    const socket = `new Promise((done) => {
      const socket = new WebSocket(${JSON.stringify(foreign.replace("http", "ws"))} + "echo");
      socket.onopen = () => done("open");
      socket.onerror = () => done("refused");
    })`;
    assert.equal(await page.evaluate(socket), "refused");
    assert.deepEqual(await page.evaluate("document.cookie"), "own=1");
  });

  it("needs a link: a missing link, an old one and a closed port each get an error page", async () => {
    const fresh = await Sandbox.create("node", { controller: daemon.controller });
    const heading = async (url: string): Promise<unknown> => (await open(url)).evaluate("document.querySelector('h1').textContent");
    assert.match(String(await heading(await fresh.ports.url(3000))), /a preview link or a token is needed/);
    const { url, expires_at_unix: expires } = await fresh.ports.preview(3000, { expiresInSecs: 1 });
    await until(() => Date.now() > expires * 1000);
    assert.match(String(await heading(url)), /has expired/);
    assert.match(String(await heading(url.replace("fkp_", "fkp_x"))), /is expired or invalid/);
    assert.match(String(await heading((await fresh.ports.preview(9999)).url)), /Cannot connect to port 9999/);
    await fresh.kill();
  });
});
