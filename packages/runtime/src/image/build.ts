// Builds an image from the distribution's packages: mmdebstrap's tar stream goes directly into a squashfs.

import { createHash } from "node:crypto";
import { chmod, copyFile, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { ForkdError } from "../errors.ts";
import type { Home } from "../home.ts";
import { MEMORY_BYTES, type ConfinementPolicy } from "../host/confined.ts";
import { installation } from "../host/installation.ts";
import { run, startPiped } from "../host/command.ts";
import { sha256File } from "../util/hash-file.ts";
import { checkQualifiedName } from "../util/name.ts";
import type { Progress } from "../util/progress.ts";
import { formatSources, hostAuth, hostSources, hostSuite, hostTransportSettings } from "../host/apt-sources.ts";
import type { AptSource } from "../host/apt-sources.ts";
import { chooseBuildMode } from "./build-mode.ts";
import type { BuildMode } from "./build-mode.ts";
import { checkCopies, writeCopyTar } from "../archive/copy-tar.ts";
import type { CopySpec } from "../archive/copy-tar.ts";
import { DEFAULT_CONFIG } from "./manifest.ts";
import { DEFAULT_MAX_BYTES, writeSquashfs } from "./squashfs.ts";
import { PLATFORM } from "../host/platform.ts";
import { withStaging } from "../host/staging.ts";
import { ImageStore } from "./store.ts";
import type { StoredImage } from "./store.ts";
import { writeTextTar } from "../archive/tar-write.ts";

/** Increased when the same inputs would give a different image */
const BUILD_FORMAT = 3;
/** Without it programs in the guest cannot resolve localhost */
const HOSTS = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n";
const PACKAGE = /^[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?(=[A-Za-z0-9.+:~-]+)?$/;
const SUITE = /^[a-z0-9][a-z0-9.-]*$/;
/** On SIGTERM mmdebstrap removes its mounts and its tree; this is the time for it */
const MMDEBSTRAP_GRACE_MS = 20_000;

/** Limits of one command of `run` and all its processes */
const RUN_BOUNDS = `--seconds 1800 --memory-bytes ${MEMORY_BYTES} --tasks 2048 --`;

const HOST_CONF = "etc/apt/apt.conf.d/00forkd-host";
const HOST_AUTH = "etc/apt/auth.conf.d/00forkd-host.conf";
/** Contains passwords of the host: removed before any command of `run` starts */
const HOST_APT = [HOST_CONF, HOST_AUTH, "etc/apt/sources.list", "etc/apt/sources.list.d/*"];

/** Prefix of the warden's messages */
const UNCONFINED = /^forkd-warden: cannot confine it: (.+)$/m;
const OVER_A_BOUND = /^forkd-warden: it ((?:did not end within|has more than|takes more than) .+)$/m;

const LEFT_OUT = [
  "/usr/share/doc/*",
  "/usr/share/man/*",
  "/usr/share/info/*",
  "/usr/share/locale/*",
  "/usr/share/lintian/*",
  "/usr/share/bug/*",
];
/** update-alternatives of Java, PostgreSQL and others fails when the folder for manuals is missing, also later in the guest */
const MANUALS = Array.from({ length: 8 }, (_, at) => `"$1/usr/share/man/man${at + 1}"`);
const KEPT = ["/usr/share/doc/*/copyright", "/usr/share/locale/locale.alias"];
/** Files of apt, dpkg and debconf that no guest needs */
const LITTER = [
  "var/cache/apt/*.bin",
  "var/cache/debconf/*-old",
  "var/lib/dpkg/*-old",
  "var/cache/ldconfig/aux-cache",
  "var/log/*.log",
  "var/log/apt/*",
];

/**
 * After a command of `run` the tree is untrusted: a link in it may lead to the host, and mmdebstrap's own cleanup would follow it, and
 * would run commands from the tree's apt settings on the host. So that cleanup is skipped. Its steps are done before the commands for
 * apt, and after them inside the tree for the rest.
 */
const TIDY_APT =
  "find var/lib/apt/lists -type f -delete && rm -rf var/lib/apt/lists/auxfiles etc/apt/apt.conf.d/00mmdebstrap tmp/* var/cache/apt/archives/*.deb";
const TIDY = `cd / && rm -f ${LITTER.join(" ")} var/lib/dbus/machine-id; [ ! -e etc/machine-id ] || : > etc/machine-id
rm -rf tmp/* tmp/.[!.]*; for path in run/* run/.[!.]*; do [ "$path" = run/lock ] || rm -rf "$path"; done`;
/** Hooks with which mmdebstrap removes its own files from the tree */
const CHECK_LINKS = `root=$(readlink -f "$1") && for path in dev proc sys sbin usr/sbin; do
case $(readlink -f "$1/$path")/ in "$root"/*) ;; *) echo "/$path of the image leads out of it" >&2; exit 1 ;; esac; done`;

export type BuildOpts = {
  name: string;
  packages: readonly string[];
  copy?: readonly CopySpec[];
  /** commands inside the image after the copies, without network: an argument list, or a command line for /bin/sh */
  run?: readonly (string | readonly string[])[];
  /** default: the host's own */
  suite?: string | undefined;
  /** default: the host's apt sources */
  mirror?: string | undefined;
  /** limit of the unpacked size in `bytes` */
  maxBytes?: number | undefined;
  /** preferred (default): when `run` cannot be confined it runs in a chroot, and a note is reported as progress */
  confinement?: ConfinementPolicy | undefined;
  /** builds even when an image of the same inputs exists */
  force?: boolean | undefined;
  signal?: AbortSignal | undefined;
  progress?: Progress | undefined;
};

export type BuildResult = {
  image: StoredImage;
  /** whether an earlier build of the same inputs was used */
  reused: boolean;
};

export async function buildImage(home: Home, opts: BuildOpts): Promise<BuildResult> {
  checkQualifiedName("Image name", opts.name);
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
    if (mode === "fakechroot") refuseOrTell(opts);
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
    // No package installs it; a package, a copy or a command may overwrite it.
    "etc/hosts": HOSTS,
  });
  await writeTextTar(finishTar, {
    "etc/apt/sources.list": formatSources(build.sources, "strip"),
    "etc/hostname": "localhost\n",
    "etc/resolv.conf": "",
  });

  // A mapped root cannot pass through a private folder, so this one is searchable and outside the store.
  const scratch = await mkdtemp(join(tmpdir(), "forkd-build-"));
  try {
    await chmod(scratch, 0o755);
    // a mapped root cannot run the original for the same reason
    const warden = join(scratch, "forkd-warden");
    if (build.run.length > 0) {
      await copyFile(installation.warden, warden);
      await chmod(warden, 0o755);
    }
    const { confinement = "preferred", signal, progress } = opts;
    const argv = mmdebstrapArgs({ ...build, sourcesList, setupTar, finishTar, warden, confinement });
    opts.progress?.({ step: `Building from ${build.suite}` });
    const mmdebstrap = startPiped(argv, {
      signal: opts.signal,
      graceMs: MMDEBSTRAP_GRACE_MS,
      env: buildEnv(scratch),
      onStderr: stepReporter(opts.progress),
    });
    mmdebstrap.stdin.end();
    try {
      await writeSquashfs(mmdebstrap.stdout, build.rootfs, { maxBytes: build.maxBytes, confinement, signal, progress });
    } catch (error) {
      // When the stream ended early, mmdebstrap failed, and its error gives the reason.
      const endedFirst = mmdebstrap.stdout.readableEnded;
      if (!endedFirst) mmdebstrap.kill();
      const reason: unknown = await mmdebstrap.done.then(
        () => undefined,
        (failure: unknown) => failure,
      );
      throw endedFirst && reason !== undefined ? buildFailure(reason) : error;
    }
    await mmdebstrap.done.catch((error: unknown) => {
      throw buildFailure(error);
    });
  } finally {
    await removeScratch(scratch, build.mode);
  }
}

/** The command line; the outer mmdebstrap process reads the tars and lists */
export function mmdebstrapArgs(build: {
  mode: BuildMode;
  suite: string;
  packages: readonly string[];
  run: readonly (string | readonly string[])[];
  copyTar: string | undefined;
  sourcesList: string;
  setupTar: string;
  finishTar: string;
  warden: string;
  confinement: ConfinementPolicy;
}): string[] {
  const argv = ["mmdebstrap", `--mode=${build.mode}`, "--variant=minbase", "--format=tar", `--architectures=${PLATFORM.packages}`];
  if (build.packages.length > 0) argv.push(`--include=${build.packages.join(",")}`);
  argv.push("--aptopt=Acquire::Languages none", "--dpkgopt=force-unsafe-io");
  for (const path of LEFT_OUT) argv.push(`--dpkgopt=path-exclude=${path}`);
  for (const path of KEPT) argv.push(`--dpkgopt=path-include=${path}`);
  argv.push(`--setup-hook=mkdir -p ${MANUALS.join(" ")}`, `--setup-hook=tar-in ${quote(build.setupTar)} /`);
  if (build.copyTar !== undefined) argv.push(`--customize-hook=tar-in ${quote(build.copyTar)} /`);
  const finish = `--customize-hook=tar-in ${quote(build.finishTar)} /`;
  if (build.run.length === 0) argv.push(`--customize-hook=cd "$1" && rm -f ${[...HOST_APT, ...LITTER].join(" ")}`, finish);
  else {
    argv.push("--skip=cleanup", `--customize-hook=cd "$1" && rm -f ${HOST_APT.join(" ")} && ${TIDY_APT}`, finish);
    for (const command of build.run) argv.push(`--customize-hook=${runHook(command, build)}`);
    // without a shell in the tree its leftovers are kept
    argv.push(`--customize-hook=${runHook(TIDY, build)} || true`, `--customize-hook=${CHECK_LINKS}`);
  }
  argv.push(build.suite, "-", build.sourcesList);
  return argv;
}

/** In namespaces, with the tree as root; in a chroot when the host allows none, which is tested before the command runs */
function runHook(
  command: string | readonly string[],
  { mode, warden, confinement }: { mode: BuildMode; warden: string; confinement: ConfinementPolicy },
): string {
  const words = typeof command === "string" ? ["/bin/sh", "-c", command] : command;
  const line = words.map(quote).join(" ");
  const chroot = `${quote(warden)} --limit ${RUN_BOUNDS} chroot "$1" ${line}`;
  if (mode === "fakechroot") return chroot;
  const inside = `${quote(warden)} --inside "$1" ${RUN_BOUNDS}`;
  const confined = `${inside} env "SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH" ${line}`;
  return confinement === "required" ? confined : `if ${inside}; then ${confined}; else ${chroot}; fi`;
}

function unconfined(why: string, cause?: unknown): ForkdError {
  return new ForkdError("CONFINEMENT_UNAVAILABLE", `Cannot use run: it must be confined, and this host does not allow it: ${why}.`, {
    cause,
  });
}

/** In fakechroot the packages' scripts and the commands of `run` have all rights of the daemon's user: fakechroot confines nothing */
export function refuseOrTell({ confinement, progress }: Pick<BuildOpts, "confinement" | "progress">): void {
  const why = `${userInfo().username} has no subordinate user ids, so the build uses fakechroot`;
  if (confinement === "required")
    throw new ForkdError("CONFINEMENT_UNAVAILABLE", `Cannot build an image: the build must be confined, and ${why}.`, {
      hint: "'forkd doctor' says how to get subordinate user ids; images can also be pulled or imported.",
    });
  progress?.({ step: `The build is not confined: ${why}. Its packages and commands can do what that user can.`, note: true });
}

/** The error of a failed build; it names the missing package, or the limit that a command exceeded */
export function buildFailure(error: unknown): unknown {
  if (!(error instanceof ForkdError) || error.code !== "HOST_COMMAND_FAILED") return error;
  const unknown = /E: Unable to locate package (\S+)/.exec(error.message)?.[1];
  if (unknown !== undefined)
    return new ForkdError("BAD_REQUEST", `Cannot build the image: there is no package ${unknown} in this suite.`, { cause: error });
  const why = UNCONFINED.exec(error.message)?.[1];
  if (why !== undefined) return unconfined(why, error);
  const bound = OVER_A_BOUND.exec(error.message)?.[1];
  if (bound === undefined) return error;
  return new ForkdError("BUILD_FAILED", `Cannot build the image: a command of \`run\` ${bound}, and was ended.`, {
    cause: error,
    hint: "Let the command do less at a time, or do it in a step of a recipe, which runs in a VM of the size that you choose.",
  });
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

/** Only variables that apt and the commands need: secrets in the caller's environment stay out of the build */
function buildEnv(scratch: string): NodeJS.ProcessEnv {
  const env: NodeJS.ProcessEnv = {
    PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    HOME: "/root",
    LC_ALL: "C.UTF-8",
    DEBIAN_FRONTEND: "noninteractive",
    TMPDIR: scratch,
    // Midnight: newer files get this time. A much earlier time would change the packages' own files and make compiled Python stale.
    SOURCE_DATE_EPOCH: String(Math.floor(Date.now() / 86_400_000) * 86_400),
  };
  for (const name of ["http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"]) {
    const value = process.env[name];
    if (value !== undefined) env[name] = value;
  }
  return env;
}

export function stepReporter(progress: Progress | undefined): (text: string) => void {
  let isTold = false;
  return (text) => {
    for (const line of text.split("\n")) {
      const step = /^I: (.+)\.\.\.$/.exec(line)?.[1];
      if (step !== undefined) progress?.({ step: `mmdebstrap: ${step}` });
      const why = UNCONFINED.exec(line)?.[1];
      if (why === undefined || isTold) continue;
      isTold = true;
      progress?.({ step: `The commands of the build are not confined: ${why}.`, note: true });
    }
  };
}

/** Leftovers of a killed build in a user namespace may belong to mapped ids; then they can only be removed inside such a namespace */
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
