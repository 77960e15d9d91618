// The dashboard in a real browser, on real VMs.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { after, afterEach, before, describe, it } from "node:test";
import { pixelsTooWide, startChromium, terminalText, untilTerminal, violationsOf, Visitor, whyNoChromium } from "../helpers/dashboard.ts";
import { TestDaemon } from "../helpers/daemon.ts";
import { rounds } from "../helpers/all.ts";
import { until } from "../helpers/until.ts";

import type { Browser, Locator, Page } from "playwright-core";
import type { SandboxInfo } from "forkd";

const MANY = rounds(12, 500);

const DROP = `
  const data = new DataTransfer();
  data.items.add(new File(["dropped"], "dropped.txt"));
  document.querySelector(".drop").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
`;
/** What a guest's page may try: read, frame and call the dashboard */
const ATTACK = `async (target) => {
  const read = (init) => fetch(target + "/v1/sandboxes", { credentials: "include", ...init }).then(
    async (response) => response.type + " " + response.status + " " + (await response.text()),
    () => "refused",
  );
  const frame = document.createElement("iframe");
  frame.src = target + "/ui/";
  document.body.append(frame);
  await new Promise((resolve) => (frame.onload = resolve));
  let framed = "hidden";
  try { framed = frame.contentWindow.document.body.innerHTML; } catch {}
  const socket = new WebSocket(target.replace("http", "ws") + "/v1/sandboxes/guest-page/processes/stream");
  const opened = await new Promise((resolve) => {
    socket.onopen = () => resolve("open");
    socket.onerror = () => resolve("refused");
  });
  return {
    simple: await read({}),
    opaque: await read({ mode: "no-cors" }),
    keyed: await read({ headers: { "x-forkd-ui": "1" } }),
    framed,
    opened,
  };
}`;

describe("the dashboard", { skip: whyNoChromium() }, () => {
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

  afterEach(async () => void (await daemon.controller.killSandboxes({ all: true })));

  async function fork(name: string, more: object = {}): Promise<SandboxInfo> {
    const [made] = await daemon.controller.spawnSandboxes("python", { name, ...more });
    assert.ok(made);
    return made;
  }

  it("makes the first sandbox with one click, and opens its terminal", async () => {
    await using visitor = await Visitor.open(browser);
    const page = await visitor.logIn(daemon);
    await page.getByRole("button", { name: "Make the first sandbox" }).click();
    await untilTerminal(page, /[#$]\s*$/);
    assert.match(page.url(), /\/ui\/sandboxes\/sb-\w+\/terminal$/);
    const [first] = await daemon.controller.listSandboxes();
    assert.equal(first?.name, "first");
    assert.equal(first?.created_by, "ui:local");
    await daemon.controller.killSandboxes({ all: true });
    await daemon.controller.deleteSnapshot("quickstart");
    await daemon.down();
    await daemon.makePython();
    await daemon.up(["--bind", daemon.bind ?? ""]);
  });

  it("logs in once per link, leaves no code in the address, and stays logged in after a reload", async () => {
    await using visitor = await Visitor.open(browser);
    const { url } = await daemon.controller.createUiLink();
    const page = await visitor.context.newPage();
    await page.goto(url);
    await page.locator("nav.navigation").waitFor();
    assert.ok(!page.url().includes("login"));
    await page.reload();
    await page.locator("nav.navigation").waitFor();
    const [cookie] = await visitor.context.cookies();
    assert.deepEqual([cookie?.httpOnly, cookie?.sameSite, cookie?.domain], [true, "Strict", "forkd.localhost"]);
    assert.equal(await page.evaluate("document.cookie"), "");
    assert.equal(await page.getByRole("link", { name: "Nodes" }).count(), 0, "a daemon alone has no page of nodes");
    await using other = await Visitor.open(browser);
    const second = await other.context.newPage();
    await second.goto(url);
    await second.getByText("the link was opened before").waitFor();
    await page.getByRole("button", { name: "Log out" }).click();
    await page.getByText("You are logged out.").waitFor();
    await page.reload();
    await page.getByText("This browser is not logged in.").waitFor();
  });

  it("forks from the page, shows the command line, and undoes it", async () => {
    await using visitor = await Visitor.open(browser);
    const page = await visitor.logIn(daemon);
    await row(page, "python").click();
    await page.getByRole("button", { name: "Fork", exact: true }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("How many").fill("2");
    assert.equal(await dialog.locator(".command code").textContent(), "forkd fork python -n 2");
    await dialog.getByRole("button", { name: "Fork 2" }).click();
    await page.getByText(/2 forks of python in/).waitFor();
    await until(async () => (await sandboxRows(page).count()) === 2);
    await page.getByRole("button", { name: "Undo" }).click();
    await until(async () => (await sandboxRows(page).count()) === 0);
    assert.deepEqual(await daemon.controller.listSandboxes(), []);
  });

  it("shows the same in two tabs, and follows each change of state", async () => {
    await using visitor = await Visitor.open(browser);
    const page = await visitor.logIn(daemon);
    const other = await visitor.context.newPage();
    await other.goto(page.url());
    const sandbox = await fork("seen");
    for (const tab of [page, other]) {
      await tab.bringToFront();
      await row(tab, "seen").getByText("running").waitFor();
    }
    await daemon.controller.pauseSandbox(sandbox.id);
    await row(other, "seen").getByText("paused").waitFor();
    await daemon.controller.updateSandbox(sandbox.id, { name: "renamed" });
    await row(other, "renamed").waitFor();
    await daemon.controller.killSandbox(sandbox.id);
    await row(other, "renamed").waitFor({ state: "detached" });
    await page.bringToFront();
    await row(page, "renamed").waitFor({ state: "detached" });
  });

  it("keeps a terminal over a reload, a fork and a restart of the daemon", async () => {
    await using visitor = await Visitor.open(browser);
    const sandbox = await fork("typed");
    const page = await visitor.logIn(daemon);
    await page.goto(`${origin(page)}/ui/sandboxes/typed/terminal`);
    await untilTerminal(page, /[#$]\s*$/);
    await type(page, "word=kept; echo first-$word");
    await untilTerminal(page, /^first-kept$/m);
    await page.reload();
    await untilTerminal(page, /^first-kept$/m);
    await type(page, "echo second-$word");
    await untilTerminal(page, /^second-kept$/m);

    const { sandboxes } = await daemon.controller.forkSandbox(sandbox.id);
    await page.goto(`${origin(page)}/ui/sandboxes/${sandboxes[0]?.id}/terminal`);
    await untilTerminal(page, /^second-kept$/m);
    await type(page, "echo fork-$word");
    await untilTerminal(page, /^fork-kept$/m);

    await page.goto(`${origin(page)}/ui/sandboxes/typed/terminal`);
    await untilTerminal(page, /^second-kept$/m);
    assert.doesNotMatch(await terminalText(page), /fork-kept/);
    const bind = daemon.bind ?? "";
    await daemon.kill9();
    await page.getByText("The daemon does not answer.").waitFor();
    await daemon.up(["--bind", bind]);
    await page.getByText("The daemon does not answer.").waitFor({ state: "detached" });
    await page.locator(".terminal-note").waitFor({ state: "detached" });
    await type(page, "echo third-$word");
    await untilTerminal(page, /^third-kept$/m);

    await page.getByRole("button", { name: "+ New terminal" }).click();
    await page.getByRole("button", { name: "Terminal 2", pressed: true }).waitFor();
    await untilTerminal(page, /^\S+[#$]\s*$/);
    await type(page, "echo other-${word:-none}");
    await untilTerminal(page, /^other-none$/m);
    await page.getByRole("button", { name: "Terminal 1" }).click();
    await untilTerminal(page, /^third-kept$/m);
  });

  it("uploads and downloads byte for byte, edits text, and shows hostile names as text", async () => {
    await using visitor = await Visitor.open(browser, { acceptDownloads: true });
    const sandbox = await fork("filed");
    const evil = "/srv/<img src=x onerror=alert(1)>\n\u202etxt.exe";
    await daemon.controller.writeFile(sandbox.id, evil, "x");
    await daemon.controller.writeFile(sandbox.id, "/srv/note.txt", "one\ntwo\n");
    const page = await visitor.logIn(daemon);
    await page.goto(`${origin(page)}/ui/sandboxes/filed/files`);
    await page.getByRole("button", { name: "srv/" }).click();
    await page.getByRole("button", { name: "<img src=x onerror=alert(1)>␊\ufffdtxt.exe" }).waitFor();

    const bytes = randomBytes(3_000_001);
    await page.getByLabel("Files to upload").setInputFiles({ name: "data.bin", mimeType: "application/octet-stream", buffer: bytes });
    await page.getByRole("button", { name: "data.bin" }).click();
    assert.deepEqual(Buffer.from(await daemon.controller.readFile(sandbox.id, "/srv/data.bin")), bytes);
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download" }).click()]);
    assert.deepEqual(await readFile(await download.path()), bytes);

    await page.getByRole("button", { name: "note.txt" }).click();
    const text = page.getByLabel("Content of note.txt");
    assert.equal(await text.inputValue(), "one\ntwo\n");
    await text.fill("one\nthree\n");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Saved note.txt.").waitFor();
    assert.equal(Buffer.from(await daemon.controller.readFile(sandbox.id, "/srv/note.txt")).toString(), "one\nthree\n");

    // by drop
    await page.evaluate(DROP);
    await page.getByRole("button", { name: "dropped.txt" }).waitFor();
    assert.equal(Buffer.from(await daemon.controller.readFile(sandbox.id, "/srv/dropped.txt")).toString(), "dropped");
  });

  it("shows what a guest prints as data: escape sequences, titles, HTML, a line of 10 MB", async () => {
    await using visitor = await Visitor.open(browser);
    const sandbox = await fork("hostile", { metadata: { "<b>key</b>": "<script>alert(1)</script>\u202e" } });
    const page = await visitor.logIn(daemon);
    await row(page, "hostile").getByText("<b>key</b>=<script>alert(1)</script>\ufffd").waitFor();
    await page.goto(`${origin(page)}/ui/sandboxes/hostile/terminal`);
    await untilTerminal(page, /[#$]\s*$/);
    const title = await page.title();
    await type(
      page,
      String.raw`stty -echo; printf '\033]0;evil title\007\033]52;c;ZXZpbA==\007\033[6n\033[c\033]8;;javascript:alert(1)\007link\033]8;;\007 <u>html</u>\n'; read -r -t 3 -n 99; stty echo; echo done-1`,
    );
    await untilTerminal(page, /^done-1$/m);
    assert.match(await terminalText(page), /link <u>html<\/u>/);
    assert.equal(await page.title(), title);
    // answers to the queries of an earlier time are not typed again
    await page.reload();
    await untilTerminal(page, /^done-1$/m);
    await type(page, "echo clean");
    await untilTerminal(page, /[#$] echo clean$/m);
    await type(page, `python3 -c 'print("x" * 10_000_000)' | tail -c 9999999; echo; echo done-2`);
    await untilTerminal(page, /^done-2$/m);

    await daemon.controller.startProcess(sandbox.id, ["python3", "-c", "print('y' * 10_000_000 + '<i>end</i>\\x1b[31m')"], { tag: "long" });
    await page.goto(`${origin(page)}/ui/sandboxes/hostile/processes`);
    await page.getByRole("row", { name: /long/ }).getByRole("button", { name: "Output" }).click();
    await page.getByText(/<i>end<\/i>\s*$/).waitFor();
    await page.getByText("It ended with exit code 0.").waitFor();
  });

  it("has no terminals, files, credentials or actions with the scope read", async () => {
    await using visitor = await Visitor.open(browser);
    const sandbox = await fork("looked-at");
    const page = await visitor.logIn(daemon, { scope: "read" });
    await row(page, "looked-at").click();
    assert.equal(await page.locator(".selection button").count(), 0);
    await page.goto(`${origin(page)}/ui/sandboxes/looked-at/terminal`);
    await page.getByText("Certificate of the fork").waitFor();
    const tabs = await page.getByRole("navigation", { name: "Parts of the sandbox" }).getByRole("link").allTextContents();
    assert.deepEqual(tabs, ["Overview", "Network", "Logs", "Events"]);
    await page.getByRole("link", { name: "Tokens" }).click();
    await page.getByText("Tokens need the scope admin").waitFor();
    assert.equal((await daemon.controller.listProcesses(sandbox.id)).length, 0);
  });

  it("cannot be framed, called or read by the page of a guest", async () => {
    await using visitor = await Visitor.open(browser);
    const sandbox = await fork("guest-page");
    const page = await visitor.logIn(daemon);
    const own = origin(page);
    const { controller } = daemon;
    await controller.writeFile(sandbox.id, "/srv/index.html", "<!doctype html><title>guest</title>");
    await controller.startProcess(sandbox.id, ["python3", "-m", "http.server", "8000", "-d", "/srv"], { tag: "web" });
    await until(async () => (await controller.listPorts(sandbox.id)).some(({ port }) => port === 8000));
    await page.goto(`${own}/ui/sandboxes/guest-page/ports`);
    const [guest] = await Promise.all([visitor.context.waitForEvent("page"), page.getByRole("button", { name: "Open" }).click()]);
    await guest.waitForLoadState();
    assert.equal(await guest.title(), "guest");
    assert.equal(await guest.evaluate("window.opener"), null);
    const outcome = await guest.evaluate(`(${ATTACK})(${JSON.stringify(own)})`);
    assert.deepEqual(outcome, { simple: "refused", opaque: "opaque 0 ", keyed: "refused", framed: "hidden", opened: "refused" });
    const onGuest = await guest.goto(`${new URL(guest.url()).origin}/ui/`);
    assert.equal(onGuest?.status(), 404);
    // the guest's page reports the refused requests in its console
    visitor.problems.length = 0;
  });

  it("works with the keyboard alone", async () => {
    await using visitor = await Visitor.open(browser);
    const sandbox = await fork("keyed");
    const page = await visitor.logIn(daemon);
    await row(page, "keyed").waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("keyed");
    await page.keyboard.press("Enter");
    await page.keyboard.press("End");
    await page.keyboard.press("f");
    const dialog = page.getByRole("dialog");
    await dialog.waitFor();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await page.locator(".grid").focus();
    await page.keyboard.press("b");
    await dialog.waitFor();
    await page.keyboard.type("by-keys");
    await page.keyboard.press("Enter");
    // The tree can show the branch before its request is answered; until then the open dialog takes the keys.
    await dialog.waitFor({ state: "detached" });
    await row(page, "by-keys").waitFor();
    assert.equal((await daemon.controller.getSnapshot("by-keys")).branched_from, sandbox.id);
    await page.keyboard.press("/");
    await page.keyboard.press("Escape");
    await page.locator(".grid").focus();
    await page.keyboard.press("Home");
    await page.keyboard.press("ArrowLeft");
    await until(async () => (await row(page, "python").getAttribute("aria-expanded")) === "false");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "keyed" }).waitFor();
    await daemon.controller.killSandboxes({ all: true });
    await daemon.controller.deleteSnapshot("by-keys");
  });

  it(`follows ${MANY} forks while the tree is open`, async () => {
    await using visitor = await Visitor.open(browser);
    const page = await visitor.logIn(daemon);
    await row(page, "python").waitFor();
    const step = Math.min(MANY, 50);
    for (let made = 0; made < MANY; made += step) await daemon.controller.spawnSandboxes("python", { n: step, ttlSecs: 3600 });
    const running = page.getByTestId("running");
    await until(async () => (await running.textContent()) === String(MANY));
    assert.ok((await page.getByRole("row").count()) < 80, "only the rows in view are in the document");
    await until(async () => (await page.locator(".grid").getAttribute("aria-rowcount")) === String(MANY + 2));
    await daemon.controller.killSandboxes({ all: true });
    await until(async () => (await running.textContent()) === "0");
  });

  it("fits a phone and a 4K screen, and passes axe in dark and light", async () => {
    await fork("axed", { metadata: { job: "7" } });
    const pages = [
      "",
      "sandboxes/axed",
      "sandboxes/axed/terminal",
      "sandboxes/axed/files",
      "sandboxes/axed/processes",
      "sandboxes/axed/ports",
    ];
    const others = [
      "sandboxes/axed/network",
      "sandboxes/axed/logs",
      "sandboxes/axed/events",
      "snapshots/python",
      "images",
      "recipes",
      "hub",
    ];
    const found: string[] = [];
    for (const colorScheme of ["dark", "light"] as const) {
      await using visitor = await Visitor.open(browser, { colorScheme, viewport: { width: 360, height: 740 }, reducedMotion: "reduce" });
      const page = await visitor.logIn(daemon);
      for (const path of [...pages, ...others, "events", "projects", "nodes", "tokens", "host"]) {
        await page.goto(`${origin(page)}/ui/${path}`);
        await page.locator("main h1").waitFor({ state: "attached" });
        await until(async () => (await page.locator("[aria-busy=true]").count()) === 0);
        if (path === "") await row(page, "axed").click();
        for (const [width, height] of colorScheme === "dark"
          ? [[360, 740]]
          : [
              [360, 740],
              [3840, 2160],
            ]) {
          await page.setViewportSize({ width: width ?? 0, height: height ?? 0 });
          const wide = await pixelsTooWide(page);
          if (wide > 0) found.push(`${path} at ${width}: ${wide} pixels too wide`);
        }
        found.push(...(await violationsOf(page)).map((each) => `${path} ${colorScheme}: ${each}`));
        await page.setViewportSize({ width: 360, height: 740 });
      }
      // the hub has no address here, so its request fails
      visitor.problems.length = 0;
    }
    assert.deepEqual(found, []);
  });
});

function row(page: Page, name: string): Locator {
  return page.locator(".row:not(.head)").filter({ has: page.getByText(name, { exact: true }) });
}

function sandboxRows(page: Page): Locator {
  return page.locator(".row.is-sandbox");
}

function origin(page: Page): string {
  return new URL(page.url()).origin;
}

async function type(page: Page, line: string): Promise<void> {
  await page.locator(".terminal-box:visible .xterm-helper-textarea").focus();
  await page.keyboard.insertText(line);
  await page.keyboard.press("Enter");
}
