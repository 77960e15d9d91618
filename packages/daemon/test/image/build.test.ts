import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { run } from "../../src/host/run.ts";
import { formatSources, hostSources, hostSuite, parseDeb822, parseOneLine } from "../../src/image/apt-sources.ts";
import { buildImage, mmdebstrapArgs } from "../../src/image/build.ts";
import { catSquashfs, listSquashfs } from "./helpers/squashfs.ts";
import { leftovers, tempDir, tempHome } from "./helpers/temp-home.ts";

const isRoot = process.getuid?.() === 0;

/** Why packages cannot be had here, or false */
async function noPackages(): Promise<string | false> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-test-apt-"));
  try {
    await hostSources(await hostSuite());
    await run(["mmdebstrap", "--version"]);
    await run(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=0", "download", "hostname"], {
      cwd: dir,
      timeoutMs: 20_000,
    });
    return false;
  } catch (error) {
    return `no packages: ${error instanceof Error ? error.message.split("\n")[0] : String(error)}`;
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}
const skip = await noPackages();

test("sources of third parties are left out", async (t) => {
  const dir = await tempDir(t);
  await mkdir(join(dir, "sources.list.d"));
  await writeFile(
    join(dir, "sources.list"),
    "deb [arch=amd64 signed-by=/k.gpg] http://u:p@mirror.test/debian bookworm main contrib # own\ndeb-src http://mirror.test/debian bookworm main\n",
  );
  await writeFile(join(dir, "sources.list.d", "vendor.list"), "deb https://vendor.test/apt stable main\n");
  await writeFile(
    join(dir, "sources.list.d", "own.sources"),
    "Types: deb\n# note\nURIs: http://sec.test/debian\nSuites: bookworm-security bookworm-backports\nComponents: main\nSigned-By:\n -----BEGIN\n\nTypes: deb\nEnabled: no\nURIs: http://off.test\nSuites: bookworm\nComponents: main\n",
  );
  const sources = await hostSources("bookworm", dir);
  assert.deepEqual(sources, [
    { uri: "http://u:p@mirror.test/debian", suite: "bookworm", components: ["main"], signedBy: "/k.gpg" },
    { uri: "http://sec.test/debian", suite: "bookworm-security", components: ["main"] },
  ]);
  assert.equal(formatSources(sources, "strip").includes("u:p"), false);
  await assert.rejects(hostSources("trixie", dir), { code: "BAD_REQUEST" });
});

test("source files are read in both formats", () => {
  assert.deepEqual(parseOneLine("# deb x\n deb  http://a  s  main\n"), [{ uri: "http://a", suite: "s", components: ["main"] }]);
  assert.deepEqual(parseDeb822("Types: deb deb-src\nURIs: http://a http://b\nSuites: s\nComponents: main"), [
    { uri: "http://a", suite: "s", components: ["main"] },
    { uri: "http://b", suite: "s", components: ["main"] },
  ]);
});

test("commands reach the shell of the image as they were written", () => {
  const args = mmdebstrapArgs({
    mode: "root",
    suite: "s",
    packages: ["a", "b"],
    run: ["echo 'it''s' $HOME", ["touch", "/a b"]],
    copyTar: "/c'.tar",
    sourcesList: "/l",
    setupTar: "/s",
    finishTar: "/f",
  });
  assert.ok(args.includes("--include=a,b"));
  assert.ok(args.includes(`--customize-hook=chroot "$1" '/bin/sh' '-c' 'echo '\\''it'\\'''\\''s'\\'' $HOME'`));
  assert.ok(args.includes(`--customize-hook=chroot "$1" 'touch' '/a b'`));
  assert.ok(args.includes(`--customize-hook=tar-in '/c'\\''.tar' /`));
});

test("bad input is refused before anything starts", async (t) => {
  const home = await tempHome(t);
  const bad = [
    { packages: ["--foo"] },
    { packages: ["a b"] },
    { packages: ["?essential"] },
    { packages: [], copy: [{ from: "/does/not/exist", to: "/x" }] },
    { packages: [], copy: [{ from: "/etc/hostname", to: "relative" }] },
    { packages: [], copy: [{ from: "/etc/hostname", to: "/a/../../x" }] },
    { packages: [], run: [[]] },
    { packages: [], suite: "x y" },
    { packages: [], mirror: "ftp://x" },
  ];
  for (const opts of bad) await assert.rejects(buildImage(home, { name: "x", ...opts }), { code: "BAD_REQUEST" }, JSON.stringify(opts));
  await assert.rejects(buildImage(home, { name: "../x", packages: [] }), { code: "BAD_NAME" });
  assert.deepEqual(await leftovers(home), []);
});

test(
  "an image is built from packages, files and commands, and not built twice",
  { skip: skip || (isRoot ? false : "the test user is not root"), timeout: 600_000 },
  async (t) => {
    const home = await tempHome(t);
    const files = await tempDir(t);
    const { TMPDIR } = process.env;
    process.env["TMPDIR"] = await tempDir(t);
    t.after(() => (TMPDIR === undefined ? delete process.env["TMPDIR"] : (process.env["TMPDIR"] = TMPDIR)));
    await mkdir(join(files, "tree"));
    await writeFile(join(files, "tree", "one"), "1");
    const opts = {
      name: "base",
      packages: ["hostname"],
      copy: [{ from: join(files, "tree"), to: "/srv/tree" }],
      run: ["cat /srv/tree/one > /srv/ran; id -u >> /srv/ran", ["chown", "1000:1000", "/srv/tree/one"]],
    };
    const { image, reused } = await buildImage(home, opts);
    assert.equal(reused, false);
    assert.equal(await catSquashfs(image.rootfsPath, "srv/ran"), "10\n");
    const listing = await listSquashfs(image.rootfsPath);
    assert.equal(listing.get("/"), "drwxr-xr-x 0/0");
    assert.equal(listing.get("/srv/tree/one"), "-rw-r--r-- 1000/1000");
    assert.ok(listing.has("/usr/bin/dpkg"));
    assert.match(await catSquashfs(image.rootfsPath, "etc/hosts"), /^127\.0\.0\.1\tlocalhost$/m);
    assert.equal(
      [...listing.keys()].filter((path) => path.startsWith("/usr/share/man/") || path.startsWith("/var/lib/apt/lists/deb")).length,
      0,
    );
    assert.equal([...listing.keys()].filter((path) => path.includes("forkd-host")).length, 0);
    assert.equal((await buildImage(home, { ...opts, name: "again" })).reused, true);
    await writeFile(join(files, "tree", "one"), "2");
    const stop = new AbortController();
    setTimeout(() => stop.abort(), 2000);
    await assert.rejects(buildImage(home, { ...opts, signal: stop.signal }), { code: "CANCELLED" });
    assert.deepEqual(await readdir(home.staging), []);
    assert.deepEqual(await readdir(tmpdir()), []);
  },
);

test("an unknown package is named", { skip: skip || (isRoot ? false : "the test user is not root"), timeout: 600_000 }, async (t) => {
  const home = await tempHome(t);
  await assert.rejects(buildImage(home, { name: "x", packages: ["no-such-package-anywhere"] }), (error: Error & { code?: string }) => {
    assert.equal(error.code, "BAD_REQUEST", error.message);
    assert.match(error.message, /no-such-package-anywhere/);
    return true;
  });
  assert.deepEqual(await leftovers(home), []);
});

test(
  "an ordinary user builds an image",
  { skip: skip || (isRoot ? false : "only root can make the test user"), timeout: 600_000 },
  async (t) => {
    const user = `forkdt${process.pid}`;
    await run(["useradd", "--create-home", "--base-dir", tmpdir(), "--shell", "/bin/sh", user]);
    t.after(() => run(["userdel", "--remove", user]).catch((error: Error) => t.diagnostic(error.message)));
    const passwd =
      (await readFile("/etc/passwd", "utf8"))
        .split("\n")
        .find((line) => line.startsWith(`${user}:`))
        ?.split(":") ?? [];
    const [uid, gid, homeDir = ""] = [Number(passwd[2]), Number(passwd[3]), passwd[5]];
    const build = resolve(import.meta.dirname, "../../src/image/build.ts");
    const homeModule = resolve(import.meta.dirname, "../../src/home.ts");
    const script = `
    const { buildImage } = await import(${JSON.stringify(build)});
    const { prepareHome, resolveHome } = await import(${JSON.stringify(homeModule)});
    const home = await prepareHome(resolveHome({ FORKD_HOME: ${JSON.stringify(join(homeDir, "store"))}, FORKD_RUN: ${JSON.stringify(join(homeDir, "run"))} }));
    const { image } = await buildImage(home, { name: "user", packages: ["hostname"], run: ["id -u > /root/uid; chown 42:43 /root/uid"] });
    process.stdout.write(image.rootfsPath);`;
    const child = spawn(process.execPath, ["--input-type=module", "-e", script], {
      uid,
      gid,
      cwd: "/",
      env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", HOME: homeDir, USER: user },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let out = "";
    let err = "";
    child.stdout.on("data", (data: Buffer) => (out += data.toString()));
    child.stderr.on("data", (data: Buffer) => (err += data.toString()));
    const code = await new Promise((done) => child.once("close", done));
    assert.equal(code, 0, err);
    assert.equal(await catSquashfs(out, "root/uid"), "0\n");
    const listing = await listSquashfs(out);
    assert.equal(listing.get("/root/uid"), "-rw-r--r-- 42/43");
    assert.equal(listing.get("/etc/shadow"), "-rw-r----- 0/42");
    assert.deepEqual(
      (await readdir(tmpdir())).filter((name) => name.startsWith("forkd-build-")),
      [],
    );
  },
);
