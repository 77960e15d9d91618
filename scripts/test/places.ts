// Folders of a test run: a template store with the warm snapshots that all test files share, and a store and a
// temporary folder for each file. They are inside the machine's store, because hard links need one file system.

import { chmod, mkdir, mkdtemp, readdir, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { messageOf } from "@forkd/runtime/errors";
import { prepareHome, resolveHome } from "@forkd/runtime/home";
import { claimFolder, folderAgeMs, ownerOf } from "@forkd/runtime/host/owner";
import { Runtime } from "@forkd/runtime/runtime";
import { isAlive } from "@forkd/runtime/util/process-id";
import { linkTree } from "../../tests/helpers/link-tree.ts";
import { endProcesses, unmountBelow } from "./leftovers.ts";

import type { Home } from "@forkd/runtime/home";

const RUN = "run-";
/** Left in a file's temporary folder by third-party programs */
const IGNORED = ["run", "node-compile-cache"];

const CLAIMED_WITHIN_MS = 60_000;

/** Environment and folders of one test file */
export type Place = { env: NodeJS.ProcessEnv; dir: string; tmp: string; home: Home };

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
    const root = await mkdtemp(join(parent, RUN));
    await claimFolder(root);
    // Other users that tests add need access.
    const tmp = temporaryOf(root);
    await mkdir(tmp);
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
    // Always two characters: paths of sockets are limited, and a test must not depend on its position in the run.
    const n = (this.#count++).toString(36).padStart(2, "0");
    const tmp = join(this.#tmp, n);
    await mkdir(tmp, { mode: 0o711 });
    const dir = join(this.#root, n);
    await mkdir(dir, { mode: 0o711 });
    const home = resolveHome({ FORKD_HOME: join(dir, "home"), FORKD_RUN: join(tmp, "run") });
    await this.#fill(home, opts);
    return { home, dir, tmp, env: { ...this.env, FORKD_HOME: home.root, FORKD_RUN: home.run, TMPDIR: tmp } };
  }

  /** Ends what a file left running, removes its folders, and returns what it should have ended or removed itself */
  async release({ dir, tmp }: Place): Promise<string[]> {
    const folders = [dir, tmp];
    const problems = await endBelow(folders);
    const files = (await readdir(tmp)).filter((name) => !IGNORED.includes(name));
    if (files.length > 0) problems.push(`it left files in its temporary folder: ${files.join(", ")}`);
    return [...problems, ...(await removeFolders(folders))];
  }

  /** Removes all folders of the run, and returns what it had left */
  async remove(): Promise<string[]> {
    return removeRun(this.#root);
  }

  async #fill(home: Home, opts: { buildsImages: boolean }): Promise<void> {
    await mkdir(home.root, { mode: 0o700 });
    if (opts.buildsImages) await symlink(this.machine.images, home.images);
    await prepareHome(home);
    const parts = opts.buildsImages ? (["guestKernels", "cache"] as const) : (["images", "guestKernels", "cache"] as const);
    for (const part of parts) await linkTree(this.machine[part], home[part]);
  }
}

/** Short, because the path of a Unix socket is limited to 107 bytes. It is found again when the run was killed */
function temporaryOf(root: string): string {
  return join(tmpdir(), `fkt-${basename(root).slice(RUN.length)}`);
}

async function removeRun(root: string): Promise<string[]> {
  const folders = [root, temporaryOf(root)];
  return [...(await endBelow(folders)), ...(await removeFolders(folders))];
}

async function endBelow(folders: readonly string[]): Promise<string[]> {
  return (await endProcesses(folders)).map(({ pid, command }) => `it left process ${pid} running: ${command}`);
}

/** Unmounts first: removing files through a mount would remove those of another folder */
async function removeFolders(folders: readonly string[]): Promise<string[]> {
  const problems: string[] = [];
  try {
    for (const point of await unmountBelow(folders)) problems.push(`it left a file system mounted at ${point}`);
    for (const folder of folders) await rm(folder, { recursive: true, force: true });
  } catch (error) {
    problems.push(`its folders ${folders.join(" and ")} could not be removed: ${messageOf(error)}`);
  }
  return problems;
}

/** Removes what killed runs left */
async function removeAbandoned(parent: string): Promise<void> {
  for (const name of await readdir(parent)) {
    const dir = join(parent, name);
    if (!name.startsWith(RUN)) continue;
    const owner = await ownerOf(dir);
    // A run that is just starting creates its folder before it claims it.
    const isAbandoned = owner === undefined ? (await folderAgeMs(dir)) > CLAIMED_WITHIN_MS : !(await isAlive(owner));
    if (isAbandoned) await removeRun(dir);
  }
}
