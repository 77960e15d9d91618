// Builds an image from the distribution's packages: mmdebstrap's tar stream straight into a squashfs.

import { createHash } from "node:crypto";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ForkdError } from "../errors.ts";
import type { Home } from "../home.ts";
import { run, startPiped } from "../host/run.ts";
import { sha256File } from "../util/hash-file.ts";
import { checkName } from "../util/name.ts";
import type { Progress } from "../util/progress.ts";
import { formatSources, hostAuth, hostSources, hostSuite, hostTransportSettings } from "./apt-sources.ts";
import type { AptSource } from "./apt-sources.ts";
import { chooseBuildMode } from "./build-mode.ts";
import type { BuildMode } from "./build-mode.ts";
import { checkCopies, writeCopyTar } from "./copy-tar.ts";
import type { CopySpec } from "./copy-tar.ts";
import { DEFAULT_CONFIG } from "./manifest.ts";
import { DEFAULT_MAX_BYTES, writeSquashfs } from "./squashfs.ts";
import { withStaging } from "../host/staging.ts";
import { ImageStore } from "./store.ts";
import type { StoredImage } from "./store.ts";
import { writeTextTar } from "./text-tar.ts";

/** Changes when the same inputs would give another image */
const BUILD_FORMAT = 2;
/** Without it nothing in the guest finds localhost */
const HOSTS = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n";
const PACKAGE = /^[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?(=[A-Za-z0-9.+:~-]+)?$/;
const SUITE = /^[a-z0-9][a-z0-9.-]*$/;
/** mmdebstrap takes down mounts and its tree when it is asked to end */
const MMDEBSTRAP_GRACE_MS = 20_000;

const HOST_CONF = "etc/apt/apt.conf.d/00forkd-host";
const HOST_AUTH = "etc/apt/auth.conf.d/00forkd-host.conf";

const LEFT_OUT = [
  "/usr/share/doc/*",
  "/usr/share/man/*",
  "/usr/share/info/*",
  "/usr/share/locale/*",
  "/usr/share/lintian/*",
  "/usr/share/bug/*",
];
const KEPT = ["/usr/share/doc/*/copyright", "/usr/share/locale/locale.alias"];
/** What apt, dpkg and debconf leave that no guest needs */
const LITTER = [
  "var/cache/apt/*.bin",
  "var/cache/debconf/*-old",
  "var/lib/dpkg/*-old",
  "var/cache/ldconfig/aux-cache",
  "var/log/*.log",
  "var/log/apt/*",
];

export type BuildOpts = {
  name: string;
  packages: readonly string[];
  copy?: readonly CopySpec[];
  /** run inside the image after the copies: an argument list, or a command line for /bin/sh */
  run?: readonly (string | readonly string[])[];
  /** default: the host's own */
  suite?: string | undefined;
  /** default: the host's apt sources */
  mirror?: string | undefined;
  /** limit of the unpacked size in `bytes` */
  maxBytes?: number | undefined;
  /** build even when an image made from the same inputs is there */
  force?: boolean | undefined;
  signal?: AbortSignal | undefined;
  progress?: Progress | undefined;
};

export type BuildResult = {
  image: StoredImage;
  /** whether an unchanged earlier build was used */
  reused: boolean;
};

export async function buildImage(home: Home, opts: BuildOpts): Promise<BuildResult> {
  checkName("Image name", opts.name);
  checkInputs(opts);
  const copies = opts.copy ?? [];
  await checkCopies(copies);
  const suite = opts.suite ?? (await hostSuite());
  const sources: AptSource[] = opts.mirror === undefined ? await hostSources(suite) : [{ uri: opts.mirror, suite, components: ["main"] }];
  const store = new ImageStore(home);
  const maxBytes = opts.maxBytes ?? DEFAULT_MAX_BYTES;
  const packages = [...new Set(opts.packages)].toSorted();

  return withStaging(home, async (staging) => {
    const copyTar = copies.length === 0 ? undefined : join(staging, "copy.tar");
    if (copyTar !== undefined) await writeCopyTar(copies, copyTar, { maxBytes, signal: opts.signal });
    const buildKey = await hashInputs(suite, sources, packages, opts.run ?? [], copyTar);
    if (!opts.force) {
      const earlier = (await store.list()).find(
        (image) => image.manifest.source.kind === "packages" && image.manifest.source.build_key === buildKey,
      );
      if (earlier !== undefined) {
        await store.tag(opts.name, earlier.id);
        return { image: await store.get(opts.name), reused: true };
      }
    }
    const mode = await chooseBuildMode();
    const rootfs = join(staging, "rootfs.squashfs");
    await bootstrap({ mode, suite, sources, packages, run: opts.run ?? [], copyTar, staging, rootfs, maxBytes }, opts);
    opts.progress?.({ step: "Storing the image" });
    const source = { kind: "packages" as const, suite, packages, build_key: buildKey };
    const image = await store.add({ rootfsTmpPath: rootfs, name: opts.name, config: DEFAULT_CONFIG, source, signal: opts.signal });
    return { image, reused: false };
  });
}

type Bootstrap = {
  mode: BuildMode;
  suite: string;
  sources: readonly AptSource[];
  packages: readonly string[];
  run: readonly (string | readonly string[])[];
  copyTar: string | undefined;
  staging: string;
  rootfs: string;
  maxBytes: number;
};

async function bootstrap(build: Bootstrap, opts: BuildOpts): Promise<void> {
  const sourcesList = join(build.staging, "sources.list");
  const setupTar = join(build.staging, "setup.tar");
  const finishTar = join(build.staging, "finish.tar");
  await writeFile(sourcesList, formatSources(build.sources, "keep"), { mode: 0o600 });
  await writeTextTar(setupTar, {
    [HOST_CONF]: await hostTransportSettings(opts.signal),
    [HOST_AUTH]: await hostAuth(),
    // no package brings it; a package, a copy or a command may write another one
    "etc/hosts": HOSTS,
  });
  await writeTextTar(finishTar, {
    "etc/apt/sources.list": formatSources(build.sources, "strip"),
    "etc/hostname": "localhost\n",
    "etc/resolv.conf": "",
  });

  // A mapped root cannot pass through a private folder, so this one is searchable and lies outside the store
  const scratch = await mkdtemp(join(tmpdir(), "forkd-build-"));
  try {
    await chmod(scratch, 0o755);
    const argv = mmdebstrapArgs({ ...build, sourcesList, setupTar, finishTar });
    opts.progress?.({ step: `Building from ${build.suite}` });
    const mmdebstrap = startPiped(argv, {
      signal: opts.signal,
      graceMs: MMDEBSTRAP_GRACE_MS,
      env: buildEnv(scratch),
      onStderr: stepReporter(opts.progress),
    });
    mmdebstrap.stdin.end();
    try {
      await writeSquashfs(mmdebstrap.stdout, build.rootfs, { maxBytes: build.maxBytes, signal: opts.signal, progress: opts.progress });
    } catch (error) {
      // A stream that ended by itself and was too short means that mmdebstrap failed, and it says why
      const endedFirst = mmdebstrap.stdout.readableEnded;
      if (!endedFirst) mmdebstrap.kill();
      const reason: unknown = await mmdebstrap.done.then(
        () => undefined,
        (failure: unknown) => failure,
      );
      throw endedFirst && reason !== undefined ? explain(reason) : error;
    }
    await mmdebstrap.done.catch((error: unknown) => {
      throw explain(error);
    });
  } finally {
    await removeScratch(scratch, build.mode);
  }
}

/** The command line; paths of tars and lists are files the outer mmdebstrap process reads */
export function mmdebstrapArgs(build: {
  mode: BuildMode;
  suite: string;
  packages: readonly string[];
  run: readonly (string | readonly string[])[];
  copyTar: string | undefined;
  sourcesList: string;
  setupTar: string;
  finishTar: string;
}): string[] {
  const argv = ["mmdebstrap", `--mode=${build.mode}`, "--variant=minbase", "--format=tar", "--architectures=amd64"];
  if (build.packages.length > 0) argv.push(`--include=${build.packages.join(",")}`);
  argv.push("--aptopt=Acquire::Languages none", "--dpkgopt=force-unsafe-io");
  for (const path of LEFT_OUT) argv.push(`--dpkgopt=path-exclude=${path}`);
  for (const path of KEPT) argv.push(`--dpkgopt=path-include=${path}`);
  argv.push(`--setup-hook=tar-in ${quote(build.setupTar)} /`);
  if (build.copyTar !== undefined) argv.push(`--customize-hook=tar-in ${quote(build.copyTar)} /`);
  for (const command of build.run) {
    const inside = typeof command === "string" ? ["/bin/sh", "-c", command] : command;
    argv.push(`--customize-hook=chroot "$1" ${inside.map(quote).join(" ")}`);
  }
  const removed = [HOST_CONF, HOST_AUTH, "etc/apt/sources.list", "etc/apt/sources.list.d/*", ...LITTER];
  argv.push(`--customize-hook=cd "$1" && rm -f ${removed.join(" ")}`, `--customize-hook=tar-in ${quote(build.finishTar)} /`);
  argv.push(build.suite, "-", build.sourcesList);
  return argv;
}

function checkInputs(opts: BuildOpts): void {
  for (const name of opts.packages) {
    if (!PACKAGE.test(name)) throw new ForkdError("BAD_REQUEST", `${JSON.stringify(name)} is not a package name.`);
  }
  if (opts.suite !== undefined && !SUITE.test(opts.suite))
    throw new ForkdError("BAD_REQUEST", `${JSON.stringify(opts.suite)} is not a suite name.`);
  if (opts.mirror !== undefined && !/^(https?|file|copy):\/\/?[^\s[\]]+$/.test(opts.mirror))
    throw new ForkdError("BAD_REQUEST", "The mirror is not an http, https or file address.");
  for (const command of opts.run ?? []) {
    const words = typeof command === "string" ? [command] : command;
    if (words.length === 0 || words.some((word) => word.includes("\0")))
      throw new ForkdError("BAD_REQUEST", "A command to run in the image is empty or holds a NUL byte.");
  }
}

async function hashInputs(
  suite: string,
  sources: readonly AptSource[],
  packages: readonly string[],
  commands: readonly (string | readonly string[])[],
  copyTar: string | undefined,
): Promise<string> {
  const copied = copyTar === undefined ? "" : (await sha256File(copyTar)).hex;
  const inputs = [BUILD_FORMAT, suite, formatSources(sources, "strip"), packages, commands, copied];
  return createHash("sha256").update(JSON.stringify(inputs)).digest("hex");
}

/** Only what apt and the commands need: secrets in the caller's environment stay out of the build */
function buildEnv(scratch: string): NodeJS.ProcessEnv {
  const env: NodeJS.ProcessEnv = {
    PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    HOME: "/root",
    LC_ALL: "C.UTF-8",
    DEBIAN_FRONTEND: "noninteractive",
    TMPDIR: scratch,
    // Midnight: newer files get this time. Much earlier would touch the packages' own files and make compiled Python stale.
    SOURCE_DATE_EPOCH: String(Math.floor(Date.now() / 86_400_000) * 86_400),
  };
  for (const name of ["http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"]) {
    const value = process.env[name];
    if (value !== undefined) env[name] = value;
  }
  return env;
}

function stepReporter(progress: Progress | undefined): (text: string) => void {
  return (text) => {
    for (const line of text.split("\n")) {
      const step = /^I: (.+)\.\.\.$/.exec(line)?.[1];
      if (step !== undefined) progress?.({ step: `mmdebstrap: ${step}` });
    }
  };
}

function explain(error: unknown): unknown {
  if (!(error instanceof ForkdError) || error.code !== "HOST_COMMAND_FAILED") return error;
  const unknown = /E: Unable to locate package (\S+)/.exec(error.message)?.[1];
  if (unknown !== undefined)
    return new ForkdError("BAD_REQUEST", `Cannot build the image: there is no package ${unknown} in this suite.`, { cause: error });
  return error;
}

/** What a killed build in a user namespace left may belong to mapped ids; then it can only be removed from inside such a namespace */
async function removeScratch(dir: string, mode: BuildMode): Promise<void> {
  try {
    await rm(dir, { recursive: true, force: true });
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? "";
    if (mode !== "unshare" || !["EACCES", "EPERM", "ENOTEMPTY"].includes(code)) throw error;
    await run(["unshare", "--user", "--map-root-user", "--map-auto", "rm", "-rf", "--", dir]);
  }
}

/** For /bin/sh and for mmdebstrap's own splitting of hook lines */
function quote(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}
