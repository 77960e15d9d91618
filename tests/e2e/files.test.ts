// All file operations in a guest, as root and as an unprivileged user.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { FileGuest, refuses } from "../helpers/file-guest.ts";
import { until } from "../helpers/until.ts";

/** A user that exists in every image */
const USER = "daemon";
const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

describe("files", () => {
  let guest: FileGuest;

  before(async () => {
    guest = await FileGuest.start();
    await guest.sh(`mkdir -p /srv/root /srv/${USER}; chown ${USER}: /srv/${USER}`);
  });
  after(async () => guest[Symbol.asyncDispose]());

  for (const user of [undefined, USER]) {
    const owner = user ?? "root";
    const home = `/srv/${owner}`;

    describe(`as ${owner}`, () => {
      it("are written, read, appended to and overwritten in part, with the right owner", async () => {
        const { files } = guest;
        const path = `${home}/a/b/file`;
        await files.write(path, "0123456789", { user, parents: true, mode: "640" });
        await files.append(path, "abc", { user });
        await files.write(path, "XY", { user, offset: 4 });
        await files.write(path, "Z", { user, offset: 20 });
        assert.equal(await files.readText(path, { user }), "0123XY6789abc\0\0\0\0\0\0\0Z");
        assert.equal(await files.readText(path, { user, offset: 3, length: 4 }), "3XY6");
        assert.equal(await guest.sh(`stat -c '%U %a %s' ${path} ${home}/a`), `${owner} 640 21\n${owner} 755 60`);
        const { kind, mode, size, owner: by } = await files.stat(path, { user });
        assert.deepEqual([kind, mode, size, by], ["file", "0640", 21, owner]);
      });

      it("are created, moved, copied, listed and removed", async () => {
        const { files } = guest;
        await files.mkdir(`${home}/tree`, { user, mode: "711" });
        await files.mkdir(`${home}/tree/x/y`, { user, parents: true });
        await files.write(`${home}/tree/x/y/deep`, "deep", { user });
        await files.symlink("x/y/deep", `${home}/tree/link`, { user });
        await files.copy(`${home}/tree`, `${home}/copy`, { user, recursive: true });
        await files.move(`${home}/copy`, `${home}/moved`, { user });
        await refuses(files.move(`${home}/moved`, `${home}/tree`, { user }), "FILE_EXISTS", "EEXIST");
        await refuses(files.move(`${home}/moved`, `${home}/tree`, { user, overwrite: true }), "FILE_EXISTS", "ENOTEMPTY");
        const listed = await files.list(`${home}/moved`, { user, depth: 10 });
        assert.deepEqual(
          listed.map(({ path, kind, owner: by, target }) => [path.slice(home.length), kind, by, target]),
          [
            ["/moved/link", "symlink", owner, "x/y/deep"],
            ["/moved/x", "directory", owner, null],
            ["/moved/x/y", "directory", owner, null],
            ["/moved/x/y/deep", "file", owner, null],
          ],
        );
        assert.equal(await guest.sh(`diff -r --no-dereference ${home}/tree ${home}/moved && stat -c %a ${home}/moved`), "711");
        await files.chmod(`${home}/moved`, "700", { user, recursive: true });
        assert.equal(await guest.sh(`find ${home}/moved ! -type l ! -perm 700`), "");
        await files.remove(`${home}/moved/link`, { user });
        await refuses(files.remove(`${home}/moved`, { user }), "FILE_EXISTS", "ENOTEMPTY");
        await files.remove(`${home}/moved`, { user, recursive: true });
        assert.equal(await files.exists(`${home}/moved`, { user }), false);
        await refuses(files.remove(`${home}/moved`, { user, recursive: true }), "FILE_NOT_FOUND", "ENOENT");
      });

      it("are moved across file systems", async () => {
        const { files } = guest;
        const there = `/tmp/${owner}`;
        await guest.sh(`mkdir ${there}; chown ${owner}: ${there}`);
        await files.write(`${home}/cross/file`, "x", { user, parents: true });
        await files.move(`${home}/cross`, `${there}/crossed`, { user });
        assert.equal(
          await guest.sh(`stat -c %U ${there}/crossed/file; ls -A ${there}; ls ${home} | grep cross || true`),
          `${owner}\ncrossed`,
        );
        await files.copy(`${there}/crossed/file`, `${home}/back`, { user });
        assert.equal(await files.readText(`${home}/back`, { user }), "x");
      });

      it("are transferred as archives, and belong to the user who unpacks", async () => {
        const { files } = guest;
        await guest.sh(
          `mkdir -p ${home}/pack/in; echo 1 > ${home}/pack/in/one; ln -s in/one ${home}/pack/l; chown -R ${owner}: ${home}/pack`,
        );
        const archive = Buffer.concat(await Array.fromAsync(files.downloadTar(`${home}/pack`, { user })));
        assert.deepEqual(await files.uploadTar(`${home}/new/unpacked`, archive, { user }), { entries: 4, bytes: 2 });
        assert.equal(await guest.sh(`diff -r ${home}/pack ${home}/new/unpacked; find ${home}/new ! -user ${owner}`), "");
      });
    });
  }

  it("belong to the archive's owner when root unpacks, and to the user when a user does", async () => {
    await guest.sh("mkdir /srv/owned; touch /srv/owned/f; chown 1234:4321 /srv/owned/f; chmod 4755 /srv/owned/f");
    const archive = Buffer.concat(await Array.fromAsync(guest.files.downloadTar("/srv/owned")));
    await guest.files.uploadTar("/srv/root/owned", archive);
    await guest.files.uploadTar(`/srv/${USER}/owned`, archive, { user: USER });
    assert.equal(await guest.sh(`stat -c '%u:%g %a' /srv/root/owned/f /srv/${USER}/owned/f`), "1234:4321 4755\n1:1 755");
  });

  it("change their owner only as root", async () => {
    const { files } = guest;
    await guest.sh("mkdir -p /srv/hands/in; touch /srv/hands/in/f; ln -s /etc/passwd /srv/hands/in/l");
    await files.chown("/srv/hands", { owner: USER, group: "audio", recursive: true });
    assert.equal(
      await guest.sh("stat -c '%U:%G' /srv/hands /srv/hands/in/f /srv/hands/in/l /etc/passwd"),
      "daemon:audio\ndaemon:audio\ndaemon:audio\nroot:root",
    );
    await files.chown("/srv/hands", { group: "0" });
    assert.equal(await guest.sh("stat -c '%U:%G' /srv/hands"), "daemon:root");
    await refuses(files.chown("/srv/hands", { owner: "root", user: USER }), "FILE_DENIED", "EPERM");
    await assert.rejects(files.chown("/srv/hands", { owner: "nobody-of-that-name" }), { code: "BAD_REQUEST" });
  });

  it("of other users are inaccessible to a user, by any operation", async () => {
    const { files } = guest;
    await guest.sh("mkdir -m 700 /srv/closed; echo x > /srv/closed/f");
    const asked: Record<string, () => Promise<unknown>> = {
      read: () => files.read("/srv/closed/f", { user: USER }),
      write: () => files.write("/srv/closed/g", "x", { user: USER }),
      append: () => files.append("/srv/closed/f", "x", { user: USER }),
      stat: () => files.stat("/srv/closed/f", { user: USER }),
      list: () => files.list("/srv/closed", { user: USER }),
      mkdir: () => files.mkdir("/srv/closed/d", { user: USER }),
      move: () => files.move("/srv/closed", "/srv/daemon/closed", { user: USER }),
      copy: () => files.copy("/srv/closed", "/srv/daemon/closed", { user: USER, recursive: true }),
      remove: () => files.remove("/srv/closed/f", { user: USER }),
      removeTree: () => files.remove("/srv/closed", { user: USER, recursive: true }),
      symlink: () => files.symlink("x", "/srv/closed/l", { user: USER }),
      pack: () => Array.fromAsync(files.downloadTar("/srv/closed", { user: USER })),
      unpack: () => files.uploadTar("/srv/closed/new", Buffer.alloc(1024), { user: USER }),
      watch: () => files.watch("/srv/closed", { user: USER }),
    };
    for (const [what, work] of Object.entries(asked)) await assert.doesNotReject(refuses(work(), "FILE_DENIED", "EACCES"), what);
    await refuses(files.chmod("/srv/closed", "777", { user: USER }), "FILE_DENIED", "EPERM");
    assert.equal(await guest.sh("ls -A /srv/closed; stat -c '%U %a' /srv/closed"), "f\nroot 700");
    await files.write("/srv/free", "still root");
  });

  it("may have any name", async () => {
    const { files } = guest;
    const names = [
      Buffer.from("two words"),
      Buffer.from("line\nend"),
      Buffer.from([0x6e, 0xff, 0xfe]),
      Buffer.from("☃".repeat(85)),
      Buffer.from("-rf"),
    ];
    const list = names.map((name) => `bytes.fromhex('${name.toString("hex")}')`).join(", ");
    await guest.py(`
os.makedirs('/srv/names')
for name in [${list}]:
    open(b'/srv/names/' + name, 'wb').write(name)`);
    const listed = await files.list("/srv/names");
    assert.equal(listed.length, names.length);
    for (const [i, file] of listed.entries()) {
      const bytes = Buffer.from(await files.read(file.path));
      assert.ok(names.some((name) => name.equals(bytes)));
      const exact = file.name_base64 === undefined ? Buffer.from(file.name) : Buffer.from(file.name_base64, "base64");
      assert.ok(exact.equals(bytes), file.name);
      await files.append(file.path, "!");
      await files.copy(file.path, `/srv/names/copy ${i}`);
      await files.chmod(file.path, "600");
    }
    await files.mkdir("/srv/names2");
    const archive = Buffer.concat(await Array.fromAsync(files.downloadTar("/srv/names")));
    await files.uploadTar("/srv/names2", archive);
    assert.equal(await guest.sh("diff -r /srv/names /srv/names2 && ls -A /srv/names | grep -c forkd || true"), "0");
    for (const file of listed) await files.remove(file.path);
    await files.remove("/srv/names", { recursive: true });
  });

  it("may be deeper than the maximum path length", async () => {
    const { files } = guest;
    await guest.py(`
os.makedirs('/srv/deep')
os.chdir('/srv/deep')
for i in range(300):
    os.mkdir('d' * 50)
    os.chdir('d' * 50)
open('bottom', 'w').write('here')
os.chdir('/')`);
    const listed = await files.list("/srv/deep", { depth: 1000 });
    assert.equal(listed.length, 301);
    await files.copy("/srv/deep", "/srv/deep2", { recursive: true });
    await files.uploadTar("/srv/deep3", Buffer.concat(await Array.fromAsync(files.downloadTar("/srv/deep2"))));
    for (const path of ["/srv/deep", "/srv/deep2", "/srv/deep3"]) {
      assert.equal((await files.list(path, { depth: 1000 })).at(-1)?.name, "bottom");
      await files.remove(path, { recursive: true });
    }
    assert.equal(await guest.sh("ls -A /srv | grep -e deep -e forkd || true"), "");
  });

  it("may be dangling or circular links", async () => {
    const { files } = guest;
    await guest.sh("mkdir /srv/links; cd /srv/links; ln -s a b; ln -s b a; ln -s /nowhere c; ln -s . here; echo x > real; ln -s real way");
    await refuses(files.stat("/srv/links/a", { follow: true }), "FILE_FAILED", "ELOOP");
    await refuses(files.read("/srv/links/c"), "FILE_NOT_FOUND", "ENOENT");
    assert.equal((await files.stat("/srv/links/c")).target, "/nowhere");
    assert.equal(await files.exists("/srv/links/c"), true);
    assert.equal((await files.list("/srv/links", { depth: 50 })).length, 6);
    await files.write("/srv/links/way", "through the link");
    assert.equal(await guest.sh("cat /srv/links/real; stat -c %F /srv/links/way"), "through the linksymbolic link");
    await files.copy("/srv/links", "/srv/links2", { recursive: true });
    await files.remove("/srv/links/here");
    await files.remove("/srv/links", { recursive: true });
    assert.equal(await guest.sh("readlink /srv/links2/a /srv/links2/here | tr '\\n' ' '"), "b .");
  });

  it("may be sparse or empty", async () => {
    const { files } = guest;
    await guest.sh("mkdir /srv/sparse; cd /srv/sparse; truncate -s 2G holes; echo end >> holes; : > empty; truncate -s 1M only");
    await files.copy("/srv/sparse", "/srv/sparse2", { recursive: true });
    const archive = Buffer.concat(await Array.fromAsync(files.downloadTar("/srv/sparse")));
    assert.ok(archive.length < 100_000, `${archive.length} bytes`);
    await files.uploadTar("/srv/sparse3", archive);
    for (const folder of ["/srv/sparse2", "/srv/sparse3"])
      assert.equal(
        await guest.sh(`cd ${folder}; stat -c %s holes empty only; tail -c 4 holes; du -sk . | cut -f1`),
        "2147483652\n0\n1048576\nend\n4",
      );
  });

  it("may be pipes and devices: an operation that waits for one blocks no other, and can be cancelled", async () => {
    const { files } = guest;
    await guest.sh("mkfifo /srv/pipe /srv/silent");
    const reading = files.readText("/srv/pipe");
    const waiting = new AbortController();
    const silent = files.read("/srv/silent", { signal: waiting.signal });
    silent.catch(() => undefined);
    await guest.py("1 + 1");
    await guest.sh("echo through the pipe > /srv/pipe");
    assert.equal(await reading, "through the pipe\n");
    waiting.abort(new Error("enough"));
    await assert.rejects(silent, /enough/);
    // the reader has closed the pipe: a shell that opens it for writing would block
    await until(async () => (await guest.sandbox.exec(["sh", "-c", "timeout 0.2 sh -c 'echo x > /srv/silent'"])).exit_code === 124);
    await refuses(files.write("/srv/silent", "x"), "FILE_FAILED", "ENXIO");
    assert.equal((await files.read("/dev/zero", { length: 100_000 })).length, 100_000);
    await files.write("/dev/null", Buffer.alloc(300_000));
    assert.equal((await files.stat("/dev/null")).kind, "char");
  });

  it("of a large folder are listed in pages", async () => {
    await guest.py(`
os.makedirs('/srv/many')
for i in range(2500):
    open(f'/srv/many/{i:05}', 'w').close()`);
    const { controller, id } = guest.sandbox;
    const first = await controller.listFiles(id, "/srv/many", { limit: 1000 });
    const second = await controller.listFiles(id, "/srv/many", { limit: 1000, cursor: first.nextCursor ?? "" });
    const third = await controller.listFiles(id, "/srv/many", { limit: 1000, cursor: second.nextCursor ?? "" });
    assert.deepEqual([first.length, second.length, third.length, third.nextCursor], [1000, 1000, 500, null]);
    assert.equal(
      [...first, ...second, ...third].map(({ name }) => name).join(),
      Array.from({ length: 2500 }, (_, i) => String(i).padStart(5, "0")).join(),
    );
    assert.equal((await guest.files.list("/srv/many")).length, 2500);
  });

  it("that cannot be read are marked in a list", async () => {
    await guest.sh("mkdir -p /srv/part/open /srv/part/shut; chmod 700 /srv/part/shut; touch /srv/part/open/f");
    const listed = await guest.files.list("/srv/part", { depth: 3, user: USER });
    assert.deepEqual(
      listed.map(({ name, errno }) => [name, errno]),
      [
        ["open", undefined],
        ["f", undefined],
        ["shut", "EACCES"],
      ],
    );
    assert.equal(text(await guest.files.read("/srv/part/open/f", { user: USER })), "");
  });

  it("leave neither tools nor temporary files", async () => {
    await until(async () => (await guest.tools()) === 0);
    assert.equal(await guest.halfMade(), "");
  });
});
