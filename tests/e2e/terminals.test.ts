// Terminals in the guest, and from a host terminal through the CLI.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { Sandbox, type Process } from "forkd";
import { TestDaemon } from "../helpers/daemon.ts";
import { Terminal } from "../helpers/terminal.ts";
import { until } from "../helpers/until.ts";

const CLI = join(resolve(import.meta.dirname, "..", ".."), "packages", "cli", "bin", "forkd.mjs");
const SIZE = { rows: 24, cols: 80 };
const CTRL_C = "\u0003";
const CTRL_Z = "\u001a";
const CTRL_D = "\u0004";
const LEAVE = "\u001d";

/** Shows the size of its screen after each change, until q is pressed */
const FULL_SCREEN = `
import curses
def main(screen):
    while True:
        rows, cols = screen.getmaxyx()
        screen.erase()
        screen.addstr(2, 4, "[%d by %d]" % (rows, cols))
        screen.refresh()
        if screen.getch() == ord("q"): return
curses.wrapper(main)
print("left the screen")
`;

type Screen = { process: Process; text: () => string };

describe("a terminal", () => {
  let daemon: TestDaemon;
  let sandbox: Sandbox;

  before(async () => {
    daemon = await TestDaemon.start();
    await daemon.makePython();
    sandbox = await Sandbox.create("python", { controller: daemon.controller, name: "web" });
  });

  after(async () => daemon[Symbol.asyncDispose]());

  const open = async (command: string | string[], opts: object = {}): Promise<Screen> => {
    let text = "";
    const process = await sandbox.processes.start(command, { terminal: SIZE, ...opts, onStdout: (out) => void (text += out) });
    return { process, text: () => text };
  };

  it("is the process's controlling terminal: input, output and errors, size, name and type", async () => {
    const screen = await open("stty size; tty; test -t 0 -a -t 1 -a -t 2 && echo all three; echo $TERM >&2; echo x > /dev/tty");
    assert.equal((await screen.process.wait()).exit_code, 0);
    assert.match(screen.text(), /^24 80\r\n\/dev\/pts\/\d+\r\nall three\r\nxterm-256color\r\nx\r\n$/);
    const own = await open("echo $TERM", { env: { TERM: "vt100" } });
    await own.process.wait();
    assert.equal(own.text(), "vt100\r\n");
  });

  it("belongs to its user", async () => {
    const screen = await open("id -un; stat -c '%U %a' $(tty); read line < /dev/tty; echo got $line", { user: "daemon" });
    await until(() => screen.text().includes("daemon 620"));
    await screen.process.write("typed\n");
    assert.equal((await screen.process.wait()).exit_code, 0);
    assert.match(screen.text(), /^daemon\r\ndaemon 620\r\ntyped\r\ngot typed\r\n$/);
  });

  it("can be resized, and its programs get SIGWINCH", async () => {
    const screen = await open(["python3", "-c", FULL_SCREEN]);
    await until(() => screen.text().includes("[24 by 80]"));
    await screen.process.resize({ rows: 40, cols: 120 });
    await until(() => screen.text().includes("[40 by 120]"));
    await screen.process.write("q");
    assert.equal((await screen.process.wait()).exit_code, 0);
    assert.match(screen.text(), /left the screen\r\n$/);
  });

  it("supports job control: stop, list, continue, interrupt", async () => {
    // without bracketed paste, whose escape sequences would be in the output
    const screen = await open(["bash", "--norc", "-i"], { env: { TERM: "dumb" } });
    const type = async (text: string, answer: RegExp): Promise<void> => {
      const from = screen.text().length;
      await screen.process.write(text);
      await until(() => answer.test(screen.text().slice(from)));
    };
    await type("sleep 7100\n", /sleep 7100\r\n/);
    await until(async () => (await sandbox.exec("grep -al '^sleep.7100' /proc/[0-9]*/cmdline || true")).stdout !== "");
    await type(CTRL_Z, /Stopped/);
    await type("jobs\n", /\[1\]\+ +Stopped +sleep 7100/);
    await type("fg\n", /fg\r\nsleep 7100\r\n/);
    // the process continues when it owns the terminal
    const states = "for f in $(grep -al '^sleep.7100' /proc/[0-9]*/cmdline); do grep State ${f%cmdline}status; done";
    await until(async () => (await sandbox.exec(states)).stdout.includes("S (sleeping)"));
    await type(CTRL_C, /\^C/);
    await type("echo code $?\n", /code 130\r\n/);
    await screen.process.write("exit 4\n");
    assert.equal((await screen.process.wait()).exit_code, 4);
  });

  it("ends its input with Ctrl-D, within a line as well", async () => {
    for (const [typed, shown] of [
      ["line\n", /^line\r\nline\r\n$/],
      ["part", /^partpart$/],
      ["", /^$/],
    ] as const) {
      const screen = await open(["cat"]);
      if (typed !== "") await screen.process.write(typed);
      await screen.process.closeStdin();
      assert.equal((await screen.process.wait()).exit_code, 0, typed);
      assert.match(screen.text().replaceAll("^D\b\b", ""), shown);
    }
  });

  it("loses nothing of a large output, up to its end", async () => {
    const screen = await open(["seq", "1", "60000"]);
    assert.equal((await screen.process.wait()).exit_code, 0);
    assert.equal(screen.text(), Array.from({ length: 60_000 }, (_, i) => `${i + 1}\r\n`).join(""));
  });

  it("hangs up when its process ends; programs under nohup stay", async () => {
    const screen = await open(["bash", "--norc", "-i"]);
    await screen.process.write("nohup sleep 7101 >/dev/null 2>&1 & sleep 7102 & exec sleep 0.2\n");
    assert.equal((await screen.process.wait()).exit_code, 0);
    const running = async (program: string): Promise<boolean> =>
      (await sandbox.exec(`grep -al '^sleep.${program}' /proc/[0-9]*/cmdline || true`)).stdout !== "";
    assert.ok(await running("7101"));
    await sandbox.exec("pkill sleep || kill $(grep -alE '^sleep.710' /proc/[0-9]*/cmdline | cut -d/ -f3) || true");
  });

  it("continues without its client, which sees the same screen when it returns", async () => {
    const screen = await open(["python3", "-c", FULL_SCREEN], { tag: "screen" });
    await until(() => screen.text().includes("[24 by 80]"));
    screen.process.detach();
    let again = "";
    const process = await sandbox.processes.attach("screen", { onStdout: (out) => void (again += out) });
    assert.ok(process.terminal);
    await until(() => again.includes("[24 by 80]"));
    await process.write("q");
    await process.wait();
  });

  describe("of the local machine", { skip: hasPython() ? false : "there is no python3, which makes terminals for this test" }, () => {
    const at = (...args: string[]): Terminal =>
      new Terminal([process.execPath, "--disable-warning=ExperimentalWarning", CLI, ...args], daemon.env);

    it("forkd sh is a shell: keys, size, exit code, and the terminal is restored", async () => {
      await using terminal = at("sh", "web");
      const before = await terminal.modes();
      await terminal.shows(/# $/);
      assert.notEqual(await terminal.modes(), before);
      await terminal.ask("stty size", /33 101\r\n/);
      await terminal.ask("echo $0", /bash\r\n/);
      // Wait for a running program: a key that comes before the program owns the terminal would not reach it
      await terminal.ask(`python3 -c "import time; print('up', flush=True); time.sleep(600)"`, /up\r\n/);
      terminal.type(CTRL_C);
      await terminal.shows(/\^C.*KeyboardInterrupt\r\n.*# $/s);
      terminal.resize(40, 120);
      await until(async () => {
        const from = terminal.screen.length;
        await terminal.ask("stty size", /\d+ \d+\r\n/);
        return terminal.screen.slice(from).includes("40 120");
      });
      terminal.type("exit 3\r");
      assert.equal(await terminal.exit(), 3);
      assert.equal(await terminal.modes(), before);
    });

    it("forkd sh accepts another shell, and ends with Ctrl-D", async () => {
      await using terminal = at("sh", "web", "--cwd", "/usr", "--", "sh");
      await terminal.shows(/# $/);
      await terminal.ask("pwd", /\/usr\r\n/);
      terminal.type(CTRL_D);
      assert.equal(await terminal.exit(), 0);
    });

    it("can be detached and attached again, and is restored each time", async () => {
      await using terminal = at("exec", "-it", "--tag", "left", "web", "--", "bash", "--norc");
      const before = await terminal.modes();
      await terminal.shows(/# $/);
      await terminal.ask("marker=here", /marker=here\r\n/);
      terminal.type(LEAVE.repeat(3));
      assert.equal(await terminal.exit(), 0);
      assert.match(terminal.screen, /Left process \d+ running\. To attach again: forkd attach web \d+/);
      assert.equal(await terminal.modes(), before);
      await using again = at("attach", "web", "left");
      await again.shows(/marker=here/);
      await again.ask("echo still $marker", /still here\r\n/);
      again.type("exit 6\r");
      assert.equal(await again.exit(), 6);
    });

    it("is restored when the command is ended, and its program ends too", async () => {
      await using terminal = at("sh", "web", "--", "sh", "-c", "echo up; sleep 7103");
      const before = await terminal.modes();
      await terminal.shows(/up\r\n/);
      process.kill(terminal.pid, "SIGTERM");
      assert.equal(await terminal.exit(), 143);
      assert.equal(await terminal.modes(), before);
      await until(async () => (await sandbox.exec("grep -al '^sleep.7103' /proc/[0-9]*/cmdline || true")).stdout === "");
    });

    it("Ctrl-C without -t is sent to the program", async () => {
      await using terminal = at("exec", "web", "--", "sh", "-c", "trap 'echo caught; exit 9' INT; echo up; while :; do sleep 0.05; done");
      await terminal.shows(/up/);
      terminal.type(CTRL_C);
      assert.equal(await terminal.exit(), 9);
      assert.match(terminal.screen, /caught/);
    });

    it("is restored when the sandbox ends", async () => {
      const own = await Sandbox.create("python", { controller: daemon.controller, name: "short-lived" });
      await using terminal = at("sh", "short-lived");
      const before = await terminal.modes();
      await terminal.shows(/# $/);
      await own.kill();
      assert.equal(await terminal.exit(), 1);
      assert.match(terminal.screen, /\[VMM_EXITED\]/);
      assert.equal(await terminal.modes(), before);
    });
  });
});

function hasPython(): boolean {
  try {
    execFileSync("python3", ["-c", "import pty"]);
    return true;
  } catch {
    return false;
  }
}
