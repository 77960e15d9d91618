import assert from "node:assert/strict";
import { chmod, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { checkHugePages, hugeFolder, hugePagesObstacle, makeHugeFolder, removeHugeFolder } from "../../src/host/huge-pages.ts";

const MOUNTS = `21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
25 21 0:23 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=24684100k
30 21 0:31 / /srv/huge rw - tmpfs tmpfs rw,size=1g,huge=within_size
31 21 0:32 / /srv/with\\040space rw - tmpfs tmpfs rw,huge=always
32 21 0:33 / /srv/advise rw - tmpfs tmpfs rw,huge=advise
33 21 0:34 / /srv/over rw - tmpfs tmpfs rw,huge=always
34 33 0:35 / /srv/over rw - tmpfs tmpfs rw
`;

let dir: string;
before(async () => {
  dir = await mkdtemp(join(tmpdir(), "forkd-huge-"));
});
after(async () => rm(dir, { recursive: true }));

test("a tmpfs gives huge pages to written files with huge=within_size or huge=always", () => {
  for (const place of ["/srv/huge", "/srv/huge/forkd-1", "/srv/with space/x"]) assert.equal(hugePagesObstacle(place, MOUNTS), undefined);
});

test("any other place is refused with the reason", () => {
  const reasons: Record<string, RegExp> = {
    "/dev/shm": /mounted without the option huge/,
    "/srv/advise": /with huge=advise/,
    "/srv/huge-not": /not on a tmpfs but on ext4/,
    "/srv/over": /without the option huge/,
  };
  for (const [place, reason] of Object.entries(reasons)) assert.match(hugePagesObstacle(place, MOUNTS) ?? "", reason);
});

test("a folder that does not exist is refused by name, and the hint has the command", async () => {
  await assert.rejects(checkHugePages(join(dir, "none")), {
    code: "HUGEPAGES_UNAVAILABLE",
    message: new RegExp(`${dir}/none: there is no such folder`),
    hint: /mount -o remount,huge=within_size \/dev\/shm/,
  });
});

test("each store has its own folder, which only its user can read", async () => {
  assert.notEqual(hugeFolder(dir, "/a/flat"), hugeFolder(dir, "/b/flat"));
  const folder = hugeFolder(dir, "/a/flat");
  await makeHugeFolder(folder);
  await makeHugeFolder(folder);
  await chmod(folder, 0o755);
  await assert.rejects(makeHugeFolder(folder), { code: "HUGEPAGES_UNAVAILABLE", message: /with mode 755/ });
});

test("a link that another user put there is neither used nor followed", async () => {
  const victim = join(dir, "victim");
  await mkdir(victim, { mode: 0o700 });
  await writeFile(join(victim, "memory.ram"), "");
  const folder = hugeFolder(dir, "/linked/flat");
  await symlink(victim, folder);
  await assert.rejects(makeHugeFolder(folder), { code: "HUGEPAGES_UNAVAILABLE" });
  await removeHugeFolder(folder);
  assert.deepEqual(await readdir(victim), ["memory.ram"]);
});
