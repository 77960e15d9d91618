// Another Debian release's QEMU with that release's libraries and C library, beside the installed one.

import { execFile } from "node:child_process";
import { access, mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { formatSources, hostSources, hostSuite, hostTransportSettings } from "@forkd/runtime/host/apt-sources";
import { chooseBuildMode } from "@forkd/runtime/image/build-mode";
import { patience } from "./patience.ts";

const run = promisify(execFile);
const PROGRAM = "qemu-system-x86_64";
const LIBRARIES = "lib/x86_64-linux-gnu";
/** What the program and its loader need, of all that is unpacked */
const NEEDED = [`usr/bin/${PROGRAM}`, "usr/bin/patchelf", `usr/${LIBRARIES}`, "usr/share/qemu", "usr/share/seabios"];
const LINES_OF_REASON = 3;

type OtherQemu = { path: string; missing?: undefined } | { path?: undefined; missing: string };

/** The program, or the reason why it cannot be had. Kept in the machine's store: a download takes a minute */
export async function otherQemu(suite: string): Promise<OtherQemu> {
  const machine = process.env["FORKD_TEST_MACHINE"];
  const folder = join(machine === undefined ? tmpdir() : join(machine, "tests"), `qemu-${suite}`);
  const path = join(folder, "bin", PROGRAM);
  try {
    await access(path);
    return { path };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
  const scratch = await mkdtemp(`${folder}.`);
  try {
    const tar = join(scratch, "tree.tar");
    const refusal = await download(suite, scratch, tar);
    if (refusal !== undefined) return { missing: refusal };
    const tree = join(scratch, "usr");
    await run("tar", ["-xf", tar, "-C", scratch, ...NEEDED.map((name) => `./${name}`)]);
    const loader = join(LIBRARIES, "ld-linux-x86-64.so.2");
    // the tool is of the other release, too
    const patchelf = ["--library-path", join(tree, LIBRARIES), join(tree, "bin/patchelf")];
    const options = ["--set-interpreter", join(folder, loader), "--force-rpath", "--set-rpath", join(folder, LIBRARIES)];
    await run(join(tree, loader), [...patchelf, ...options, join(tree, "bin", PROGRAM)]);
    await rename(tree, folder);
    return { path };
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/** Writes a tree with the package to a tar. Returns the reason if the host's archive does not have it */
async function download(suite: string, scratch: string, tar: string): Promise<string | undefined> {
  const lists = join(scratch, "lists");
  await mkdir(lists);
  try {
    const own = await hostSuite();
    const sources = (await hostSources(own)).filter((source) => source.suite === own).map((source) => ({ ...source, suite }));
    await writeFile(join(lists, "sources.list"), formatSources(sources, "keep"));
    await writeFile(join(lists, "apt.conf"), await hostTransportSettings());
    const options = [`--mode=${await chooseBuildMode()}`, "--variant=extract", "--format=tar", "--architectures=amd64"];
    const packages = ["--include=qemu-system-x86,patchelf", "--aptopt=Acquire::Languages none", `--aptopt=${join(lists, "apt.conf")}`];
    await run("mmdebstrap", [...options, ...packages, suite, tar, join(lists, "sources.list")], { timeout: patience(60) });
  } catch (error) {
    const lines = String(error).trim().split("\n");
    const reasons = lines.filter((line) => line.startsWith("E: "));
    return `cannot fetch the QEMU of ${suite}: ${(reasons.length > 0 ? reasons : lines).slice(0, LINES_OF_REASON).join(" ")}`;
  }
  return undefined;
}
