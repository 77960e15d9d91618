// Images from Debian packages. It builds small images of its own, because it tests the build.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { chmod, mkdir, readFile, readdir, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { patience } from "../../../../tests/helpers/patience.ts";
import { ForkdError } from "../../src/errors.ts";
import { run } from "../../src/host/command.ts";
import { formatSources, hostSources, parseDeb822, parseOneLine } from "../../src/host/apt-sources.ts";
import { buildFailure, buildImage, mmdebstrapArgs } from "../../src/image/build.ts";
import { noPackages } from "./helpers/packages.ts";
import { catSquashfs, listSquashfs } from "./helpers/squashfs.ts";
import { leftovers, tempDir, tempHome } from "./helpers/temp-home.ts";

const isRoot = process.getuid?.() === 0;

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

/** Attempts of a build command to reach beyond the tree; each line is one attempt */
const LOOK = `exec > /srv/seen
  echo pid $$
  for fd in /proc/self/fd/*; do [ "\${fd##*/}" -le 3 ] || echo descriptor; done
  tail -n +3 /proc/self/net/dev | cut -d: -f1 | tr -d ' '
  ls -A /sys /etc/apt/auth.conf.d 2>/dev/null | grep -v -e ':$' -e '^$'
  grep -r '//.*@' /etc/apt/sources.list /etc/apt/apt.conf.d
  [ ! -e /proc/sys ] || echo settings
  mknod /root/dev b 8 0 2>/dev/null && echo device
  mount -t tmpfs x /mnt 2>/dev/null && echo mount
  unshare -r true 2>/dev/null && echo namespace
  ls -d ${import.meta.dirname} 2>/dev/null && echo host
  [ -z "$TMPDIR$http_proxy" ] || echo environment
  true`;
const SEEN = "pid 1\nlo\n";

/** Commands that the host would run if it read these files as settings, or followed this link */
function escape(dir: string): string {
  return `for when in Pre Post Post-Success; do
    echo "APT::Update::$when-Invoke {\\"touch ${dir}/escaped\\"; };" >> /etc/apt/apt.conf.d/99escape
    echo "DPkg::$when-Invoke {\\"touch ${dir}/escaped\\"; };" >> /etc/apt/apt.conf.d/99escape
  done; rm -rf /run; ln -s ${dir} /run`;
}
const LITTERED = "touch /tmp/litter /var/log/litter.log";

test("commands reach the shell of the image unchanged, and find no password of the host", () => {
  const build = {
    mode: "root" as const,
    suite: "s",
    packages: ["a", "b"],
    run: ["echo 'it''s' $HOME", ["touch", "/a b"]],
    copyTar: "/c'.tar",
    sourcesList: "/l",
    setupTar: "/s",
    finishTar: "/f",
    warden: "/w",
    confinement: "required" as const,
  };
  const args = mmdebstrapArgs(build);
  assert.ok(args.includes("--include=a,b"));
  const bounds = `--seconds 1800 --memory-bytes ${4 * 1024 ** 3} --tasks 2048 --`;
  const inside = `'/w' --inside "$1" ${bounds}`;
  const confined = `${inside} env "SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH"`;
  const first = args.indexOf(`--customize-hook=${confined} '/bin/sh' '-c' 'echo '\\''it'\\'''\\''s'\\'' $HOME'`);
  assert.ok(first > 0);
  assert.equal(args[first + 1], `--customize-hook=${confined} 'touch' '/a b'`);
  assert.equal(args[first - 1], "--customize-hook=tar-in '/f' /");
  // files that the commands left are only changed inside the tree
  assert.ok(args.includes("--skip=cleanup"));
  const after = args.slice(first + 2, -3);
  assert.equal(after.length, 2, after.join("\n"));
  assert.ok(after[0]?.startsWith(`--customize-hook=${confined} '/bin/sh' '-c' 'cd / && rm -f`));
  assert.match(after[1] ?? "", /readlink/);
  assert.ok(!mmdebstrapArgs({ ...build, run: [] }).includes("--skip=cleanup"));
  assert.match(args[first - 2] ?? "", /^--customize-hook=cd "\$1" && rm -f .*auth\.conf\.d\/00forkd-host\.conf etc\/apt\/sources\.list /);
  assert.ok(args.includes(`--customize-hook=tar-in '/c'\\''.tar' /`));
  const chroot = `'/w' --limit ${bounds} chroot "$1" 'touch' '/a b'`;
  const preferred = mmdebstrapArgs({ ...build, confinement: "preferred" });
  assert.ok(preferred.includes(`--customize-hook=if ${inside}; then ${confined} 'touch' '/a b'; else ${chroot}; fi`));
  assert.ok(mmdebstrapArgs({ ...build, mode: "fakechroot", confinement: "preferred" }).includes(`--customize-hook=${chroot}`));
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
  { skip: skip || (isRoot ? false : "the test user is not root"), timeout: patience(60) },
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
      run: ["cat /srv/tree/one > /srv/ran; id -u >> /srv/ran", ["chown", "1000:1000", "/srv/tree/one"], LOOK, escape(files), LITTERED],
    };
    const { image, reused } = await buildImage(home, opts);
    assert.equal(reused, false);
    assert.equal(await catSquashfs(image.rootfsPath, "srv/ran"), "10\n");
    assert.equal(await catSquashfs(image.rootfsPath, "srv/seen"), SEEN);
    assert.deepEqual(await readdir(files), ["tree"], "nothing of the host was touched");
    const listing = await listSquashfs(image.rootfsPath);
    const isLitter = (path: string): boolean =>
      /^\/(tmp\/|var\/log\/litter|etc\/apt\/apt.conf.d\/00mmdebstrap|var\/cache\/apt\/.*(bin|deb)$)/.test(path);
    assert.deepEqual([...listing.keys()].filter(isLitter), []);
    assert.equal(listing.get("/"), "drwxr-xr-x 0/0");
    assert.equal(listing.get("/srv/tree/one"), "-rw-r--r-- 1000/1000");
    assert.ok(listing.has("/usr/bin/dpkg"));
    assert.match(await catSquashfs(image.rootfsPath, "etc/hosts"), /^127\.0\.0\.1\tlocalhost$/m);
    const isLeftOut = (path: string): boolean => path.startsWith("/usr/share/man/") || path.startsWith("/var/lib/apt/lists/deb");
    assert.deepEqual(
      [...listing].filter(([path, mode]) => isLeftOut(path) && mode.startsWith("-")),
      [],
    );
    assert.ok(listing.has("/usr/share/man/man1"), "update-alternatives links manuals there");
    assert.equal([...listing.keys()].filter((path) => path.includes("forkd-host")).length, 0);
    assert.equal((await buildImage(home, { ...opts, name: "again" })).reused, true);
    await writeFile(join(files, "tree", "one"), "2");
    const stop = new AbortController();
    const progress = ({ step }: { step: string }): void => {
      if (step === "mmdebstrap: running apt-get update") stop.abort();
    };
    await assert.rejects(buildImage(home, { ...opts, signal: stop.signal, progress }), { code: "CANCELLED" });
    assert.deepEqual(await readdir(home.staging), []);
    assert.deepEqual(await readdir(tmpdir()), []);
  },
);

test("an unknown package is named", () => {
  const stderr = "Reading package lists...\nE: Unable to locate package no-such-package\nE: apt-get failed";
  const failed = new ForkdError("HOST_COMMAND_FAILED", `mmdebstrap failed: it ended with 25.\n${stderr}`);
  const named = buildFailure(failed) as ForkdError;
  assert.deepEqual([named.code, named.cause], ["BAD_REQUEST", failed]);
  assert.match(named.message, /there is no package no-such-package in this suite/);
  for (const other of [
    new ForkdError("HOST_COMMAND_FAILED", "mmdebstrap failed: it ended with 1.\nE: No space left"),
    new Error("another"),
  ])
    assert.equal(buildFailure(other), other);
  const message = "mmdebstrap failed: exit status 25.\nI: running\nforkd-warden: cannot confine it: making namespaces: no\nE: hook failed";
  const unconfined = buildFailure(new ForkdError("HOST_COMMAND_FAILED", message)) as ForkdError;
  assert.equal(unconfined.code, "CONFINEMENT_UNAVAILABLE");
  assert.match(unconfined.message, /this host does not allow it: making namespaces: no\.$/);
});

test(
  "an ordinary user builds an image",
  { skip: skip || (isRoot ? false : "only root can make the test user"), timeout: patience(60) },
  async (t) => {
    const user = `forkdt${process.pid}`;
    const dir = await tempDir(t);
    // Root in the build is another user on the host, which must be able to pass through.
    await chmod(dir, 0o711);
    const tmp = join(dir, "tmp");
    await mkdir(tmp);
    await chmod(tmp, 0o1777);
    await run(["useradd", "--create-home", "--base-dir", dir, "--shell", "/bin/sh", user]);
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
    const { image } = await buildImage(home, { name: "user", packages: ["hostname"], run: ["id -u > /root/uid; chown 42:43 /root/uid", ${JSON.stringify(LOOK)}] });
    process.stdout.write(image.rootfsPath);`;
    const child = spawn(process.execPath, ["--input-type=module", "-e", script], {
      uid,
      gid,
      cwd: "/",
      env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", HOME: homeDir, USER: user, TMPDIR: tmp },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let out = "";
    let err = "";
    child.stdout.on("data", (data: Buffer) => (out += data.toString()));
    child.stderr.on("data", (data: Buffer) => (err += data.toString()));
    const code = await new Promise((done) => child.once("close", done));
    assert.equal(code, 0, err);
    assert.equal(await catSquashfs(out, "root/uid"), "0\n");
    assert.equal(await catSquashfs(out, "srv/seen"), SEEN);
    const listing = await listSquashfs(out);
    assert.equal(listing.get("/root/uid"), "-rw-r--r-- 42/43");
    assert.equal(listing.get("/etc/shadow"), "-rw-r----- 0/42");
    assert.deepEqual(await readdir(tmp), []);
  },
);
