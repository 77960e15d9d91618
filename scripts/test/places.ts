// Folders of a test run: a template store with the warm snapshots that all test files share, and a store and a
// temporary folder for each file. They are inside the machine's store, because hard links need one file system.

import { execFile } from "node:child_process";
import { chmod, mkdir, mkdtemp, readdir, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { prepareHome, resolveHome } from "@forkd/runtime/home";
import { claimFolder, folderAgeMs, ownerOf } from "@forkd/runtime/host/owner";
import { Runtime } from "@forkd/runtime/runtime";
import { isAlive } from "@forkd/runtime/util/process-id";
import { linkTree } from "../../tests/helpers/link-tree.ts";

import type { Home } from "@forkd/runtime/home";

const run = promisify(execFile);
/** Left in a file's temporary folder by third-party programs */
const IGNORED = ["run", "node-compile-cache"];

const CLAIMED_WITHIN_MS = 60_000;

/** Environment and folders of one test file */
export type Place = { env: NodeJS.ProcessEnv; tmp: string; home: Home };

export class Places {
  readonly machine: Home;
  readonly template: Home;
  readonly #root: string;
  readonly #tmp: string;
  #count = 0;

  private constructor(machine: Home, root: string, tmp: string) {
    this.machine = machine;
    this.#root = root;
    this.#tmp = tmp;
    this.template = resolveHome({ FORKD_HOME: join(root, "template"), FORKD_RUN: join(tmp, "template") });
  }

  /** @param opts.vms whether the run boots VMs */
  static async make(opts: { vms: boolean }): Promise<Places> {
    const machine = await prepareHome(resolveHome());
    // Probe this host and build the guest kernel for the current agent once. Otherwise each test file would probe KVM
    // itself, which takes 10 s where KVM does not work.
    if (opts.vms) await (await Runtime.start({ home: machine })).close();
    const parent = join(machine.root, "tests");
    await mkdir(parent, { recursive: true, mode: 0o711 });
    await removeAbandoned(parent);
    const root = await mkdtemp(join(parent, "run-"));
    await claimFolder(root);
    // Short, because the path of a Unix socket is limited to 107 bytes. Other users that tests add need access.
    const tmp = await mkdtemp(join(tmpdir(), "fkt-"));
    for (const dir of [root, tmp]) await chmod(dir, 0o711);
    const places = new Places(machine, root, tmp);
    // The template store makes snapshots of images that are built during the run.
    await places.#fill(places.template, { buildsImages: true });
    return places;
  }

  /** Variables with the shared stores, for all test files */
  get env(): NodeJS.ProcessEnv {
    const { machine, template } = this;
    return { FORKD_TEST_MACHINE: machine.root, FORKD_TEST_TEMPLATE: template.root, FORKD_TEST_TEMPLATE_RUN: template.run };
  }

  /**
   * A store with the existing images, and a temporary folder; with `buildsImages` new images stay in the machine's
   * store
   */
  async forFile(opts: { buildsImages: boolean }): Promise<Place> {
    const n = String(this.#count++);
    const tmp = join(this.#tmp, n);
    await mkdir(tmp, { mode: 0o711 });
    await mkdir(join(this.#root, n), { mode: 0o711 });
    const home = resolveHome({ FORKD_HOME: join(this.#root, n, "home"), FORKD_RUN: join(tmp, "run") });
    await this.#fill(home, opts);
    return { home, tmp, env: { ...this.env, FORKD_HOME: home.root, FORKD_RUN: home.run, TMPDIR: tmp } };
  }

  /** Removes a file's folders and returns the leftovers in its temporary folder */
  async release(place: Place): Promise<string[]> {
    const left = (await readdir(place.tmp)).filter((name) => !IGNORED.includes(name));
    await rm(place.tmp, { recursive: true, force: true });
    await rm(join(place.home.root, ".."), { recursive: true, force: true });
    return left;
  }

  async remove(): Promise<void> {
    for (const dir of [this.#root, this.#tmp]) await rm(dir, { recursive: true, force: true });
  }

  /** Pids of processes with one of the file's folders in their command line */
  async processes(place: Place): Promise<number[]> {
    const marks = [place.tmp, join(place.home.root, "..")];
    const { stdout } = await run("ps", ["-e", "-o", "pid=,args="], { maxBuffer: 64 * 1024 * 1024 });
    return stdout
      .split("\n")
      .filter((line) => marks.some((mark) => line.includes(`${mark}/`)))
      .map((line) => Number(line.trim().split(" ")[0]));
  }

  async #fill(home: Home, opts: { buildsImages: boolean }): Promise<void> {
    await mkdir(home.root, { mode: 0o700 });
    if (opts.buildsImages) await symlink(this.machine.images, home.images);
    await prepareHome(home);
    const parts = opts.buildsImages ? (["guestKernels", "cache"] as const) : (["images", "guestKernels", "cache"] as const);
    for (const part of parts) await linkTree(this.machine[part], home[part]);
  }
}

/** Removes the folders of killed runs */
async function removeAbandoned(parent: string): Promise<void> {
  for (const name of await readdir(parent)) {
    const dir = join(parent, name);
    if (!name.startsWith("run-")) continue;
    const owner = await ownerOf(dir);
    // A run that is just starting creates its folder before it claims it.
    const isAbandoned = owner === undefined ? (await folderAgeMs(dir)) > CLAIMED_WITHIN_MS : !(await isAlive(owner));
    if (isAbandoned) await rm(dir, { recursive: true, force: true });
  }
}
