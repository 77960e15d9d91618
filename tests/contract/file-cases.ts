// Cases for files of a sandbox. All use the sandbox "one".

import { above, fails, gives, including, REST_AND_SDK, type Args, type Case, type Context, type Expected } from "./case.ts";

const BINARY = Buffer.from(Array.from({ length: 512 }, (_, i) => i % 256));
const BACKGROUND = "while [ -e /srv/ticks/go ]; do echo tick > /srv/ticks/t; sleep 0.1; done";

type More = Partial<Case> & { bytes?: Buffer };

/** A request with the path in its query */
function file(what: string, route: Case["route"], query: NonNullable<Args["query"]>, expect: Case["expect"], more: More = {}): Case {
  const { bytes, ...rest } = more;
  return { what, route, args: (c) => ({ params: { id: one(c) }, query, ...(bytes ? { bytes } : {}) }), expect, ...rest };
}

/** A change with its parameters in the body */
function change(what: string, route: Case["route"], body: Record<string, unknown>, expect: Case["expect"] = DONE, more: More = {}): Case {
  return { what, route, args: (c) => ({ params: { id: one(c) }, body }), expect, ...more };
}

function run(what: string, script: string): Case {
  const args = (c: Context): Args => ({ params: { id: one(c) }, body: { args: ["sh", "-c", script] } });
  return { what, route: "execCommand", args, expect: gives({ exit_code: 0 }) };
}

const one = (c: Context): string => c.name("one");
const DONE = gives(null);
const errno = (code: Extract<Expected, { code: string }>["code"], name: string): Expected => fails(code, { details: { errno: name } });
const WHOLE_FILES = { not: REST_AND_SDK("`cp` copies whole files") };

export const fileCases: Case[] = [
  file("a file is written", "writeFile", { path: "/srv/data.bin" }, gives({ bytes: BINARY.length }), { bytes: BINARY }),
  file("a binary file is read", "readFile", { path: "/srv/data.bin" }, gives(BINARY)),
  file(
    "looked at",
    "statFile",
    { path: "/srv/data.bin" },
    gives({ kind: "file", size: BINARY.length, uid: 0, gid: 0, owner: "root", group: "root", target: null, mtime_ms: above(1e12) }),
  ),
  file(
    "measured",
    "diskUsage",
    { path: "/srv/data.bin" },
    gives({ bytes: above(1), entries: 1, total_bytes: above(1e6), used_bytes: above(1) }),
    {
      not: REST_AND_SDK("`exec ID -- du` does it"),
    },
  ),
  file("the disk usage of a missing path", "diskUsage", { path: "/srv/nothing" }, errno("FILE_NOT_FOUND", "ENOENT"), {
    not: REST_AND_SDK("`exec ID -- du` does it"),
  }),
  file("read in part", "readFile", { path: "/srv/data.bin", offset: 250, length: 10 }, gives(BINARY.subarray(250, 260)), WHOLE_FILES),
  file("beyond its end there is nothing", "readFile", { path: "/srv/data.bin", offset: 100_000 }, gives(Buffer.alloc(0)), WHOLE_FILES),
  file("appended to", "writeFile", { path: "/srv/data.bin", append: true }, gives({ bytes: 3 }), {
    bytes: Buffer.from("end"),
    ...WHOLE_FILES,
  }),
  file("written into", "writeFile", { path: "/srv/data.bin", offset: 511 }, gives({ bytes: 2 }), {
    bytes: Buffer.from("XE"),
    ...WHOLE_FILES,
  }),
  file(
    "the rest of the file is unchanged",
    "readFile",
    { path: "/srv/data.bin", offset: 510 },
    gives(Buffer.from([254, ...Buffer.from("XEnd")])),
    WHOLE_FILES,
  ),
  file("both at once is a mistake", "writeFile", { path: "/srv/data.bin", offset: 1, append: true }, fails("BAD_REQUEST"), {
    bytes: Buffer.from("x"),
    ...WHOLE_FILES,
  }),
  file("with a mode", "writeFile", { path: "/srv/script", mode: "750" }, gives({ bytes: 2 }), {
    bytes: Buffer.from("hi"),
    not: REST_AND_SDK("`cp` keeps the mode of a file"),
  }),
  file("the file has the mode", "statFile", { path: "/srv/script" }, gives({ mode: "0750", size: 2 }), {
    not: REST_AND_SDK("it was not written"),
  }),
  file("an empty file", "writeFile", { path: "/srv/empty" }, gives({ bytes: 0 }), { bytes: Buffer.alloc(0) }),
  file("an empty file is read", "readFile", { path: "/srv/empty" }, gives(Buffer.alloc(0))),
  file("folders are made on request", "writeFile", { path: "/srv/a/b/file", parents: true }, gives({ bytes: 1 }), {
    bytes: Buffer.from("x"),
  }),
  file("created parents are folders", "statFile", { path: "/srv/a/b" }, gives({ kind: "directory" })),
  file("parents are created only on request", "writeFile", { path: "/srv/none/file" }, errno("FILE_NOT_FOUND", "ENOENT"), {
    bytes: Buffer.from("x"),
  }),
  file("a file that does not exist", "readFile", { path: "/srv/nothing" }, errno("FILE_NOT_FOUND", "ENOENT")),
  file("does not look like anything", "statFile", { path: "/srv/nothing" }, errno("FILE_NOT_FOUND", "ENOENT")),
  file("a folder is not read", "readFile", { path: "/srv" }, errno("FILE_FAILED", "EISDIR"), {
    not: REST_AND_SDK("`cp` says how to copy a folder"),
  }),
  file("below a file there is nothing", "statFile", { path: "/srv/empty/x" }, errno("FILE_FAILED", "ENOTDIR")),
  file("a path is absolute", "readFile", { path: "srv/data.bin" }, fails("BAD_REQUEST"), {
    not: REST_AND_SDK("without a / it is a file of this machine"),
  }),
  {
    what: "a file of no sandbox",
    route: "readFile",
    args: () => ({ params: { id: "sb-nothing" }, query: { path: "/etc/hostname" } }),
    expect: fails("NOT_FOUND"),
  },

  change("a directory is made", "makeDirectory", { path: "/srv/shared", mode: "777" }),
  change("an existing folder is refused", "makeDirectory", { path: "/srv/shared" }, errno("FILE_EXISTS", "EEXIST")),
  change("an existing folder is accepted with parents", "makeDirectory", { path: "/srv/shared", parents: true }),
  change("a directory of another user", "makeDirectory", { path: "/srv/shared/mine", user: "nobody" }),
  file("the folder belongs to the user", "statFile", { path: "/srv/shared/mine" }, gives({ owner: "nobody", mode: "0755" })),
  change("who may not make one elsewhere", "makeDirectory", { path: "/etc/mine", user: "nobody" }, errno("FILE_DENIED", "EACCES")),
  change("a user that does not exist", "makeDirectory", { path: "/srv/x", user: "no-such-user" }, fails("BAD_REQUEST")),
  change("a link is made", "makeSymlink", { target: "data.bin", path: "/srv/link" }),
  file("the link is a link", "statFile", { path: "/srv/link" }, gives({ kind: "symlink", target: "data.bin" })),
  file("to a file", "statFile", { path: "/srv/link", follow: true }, gives({ kind: "file", target: null })),
  change("a copy", "copyFile", { from: "/srv/link", to: "/srv/copy" }),
  file("the copy has the link's target", "statFile", { path: "/srv/copy" }, gives({ kind: "file", size: above(500) })),
  change("a copy does not overwrite by default", "copyFile", { from: "/srv/empty", to: "/srv/copy" }, errno("FILE_EXISTS", "EEXIST")),
  change("a copy overwrites on request", "copyFile", { from: "/srv/empty", to: "/srv/copy", overwrite: true }),
  change("no folder by mistake", "copyFile", { from: "/srv/a", to: "/srv/a2" }, errno("FILE_FAILED", "EISDIR")),
  change("a tree is copied on request", "copyFile", { from: "/srv/a", to: "/srv/a2", recursive: true }),
  change("a move", "moveFile", { from: "/srv/a2", to: "/srv/a3" }),
  change("to another file system", "moveFile", { from: "/srv/a3", to: "/tmp/a3" }),
  file("arrives whole", "statFile", { path: "/tmp/a3/b/file" }, gives({ kind: "file", size: 1 })),
  change("a move does not overwrite by default", "moveFile", { from: "/srv/empty", to: "/srv/script" }, errno("FILE_EXISTS", "EEXIST"), {
    not: REST_AND_SDK("it was not written"),
  }),
  change("a mode", "chmodFile", { path: "/tmp/a3", mode: "700", recursive: true }),
  change("an owner", "chownFile", { path: "/tmp/a3", owner: "nobody", group: "nogroup", recursive: true }),
  change("an unknown owner", "chownFile", { path: "/tmp/a3", owner: "no-such-user" }, fails("BAD_REQUEST")),
  change("no owner at all", "chownFile", { path: "/tmp/a3" }, fails("BAD_REQUEST", { usage: true })),
  file(
    "a list",
    "listFiles",
    { path: "/tmp/a3", depth: 2 },
    gives([
      { path: "/tmp/a3/b", name: "b", kind: "directory", mode: "0700", owner: "nobody", group: "nogroup" },
      { path: "/tmp/a3/b/file", name: "file", kind: "file", mode: "0700", owner: "nobody", size: 1 },
    ]),
  ),
  file("of one folder", "listFiles", { path: "/srv" }, gives(including({ name: "link", target: "data.bin" }, { name: "shared" }))),
  file("a page of it", "listFiles", { path: "/srv", limit: 2 }, gives([{ name: "a" }, { name: "copy" }]), {
    not: REST_AND_SDK("the command line lists all"),
    save: "files",
  }),
  {
    what: "the next page",
    route: "listFiles",
    args: (c) => ({ params: { id: one(c) }, query: { path: "/srv", limit: 2, cursor: c.next("files") } }),
    expect: gives([{ name: "data.bin" }, { name: "empty" }]),
    not: REST_AND_SDK("the command line lists all"),
  },
  file("a list of a file is refused", "listFiles", { path: "/srv/empty" }, errno("FILE_FAILED", "ENOTDIR")),
  file("a list of an unreadable folder is refused", "listFiles", { path: "/root", user: "nobody" }, errno("FILE_DENIED", "EACCES")),
  file("a folder with something in it is not removed by mistake", "removeFile", { path: "/tmp/a3" }, errno("FILE_EXISTS", "ENOTEMPTY")),
  file("a tree is removed on request", "removeFile", { path: "/tmp/a3", recursive: true }, DONE),
  file("a removed tree is not found", "removeFile", { path: "/tmp/a3", recursive: true }, errno("FILE_NOT_FOUND", "ENOENT")),
  file("a single one", "removeFile", { path: "/srv/copy" }, DONE),

  file(
    "a folder as an archive",
    "readTar",
    { path: "/srv" },
    gives((value: unknown) => String(value).includes("data.bin")),
  ),
  file("an archive of a missing path", "readTar", { path: "/none" }, errno("FILE_NOT_FOUND", "ENOENT")),
  file("an archive as a folder", "writeTar", { path: "/srv/unpacked" }, gives({ bytes: above(0) }), { bytes: archive() }),
  file("with what is in it", "listFiles", { path: "/srv/unpacked" }, gives(including({ kind: "file" }))),
  file("an invalid archive", "writeTar", { path: "/srv/broken" }, fails("BAD_REQUEST"), {
    bytes: Buffer.alloc(2000, "x"),
    not: REST_AND_SDK("`cp` makes its archives itself"),
  }),

  run("something that changes", `mkdir /srv/ticks; touch /srv/ticks/go; (${BACKGROUND}) >/dev/null 2>&1 &`),
  file(
    "a folder is watched",
    "watchFiles",
    { path: "/srv/ticks" },
    gives([{ type: /created|modified/, path: "/srv/ticks/t", directory: false }]),
  ),
  run("the changes stop", "rm /srv/ticks/go"),
  file("a missing path cannot be watched", "watchFiles", { path: "/none" }, errno("FILE_NOT_FOUND", "ENOENT")),
];

/** A tar archive with one file of one byte; two zero blocks mark the end */
function archive(): Buffer {
  const header = Buffer.alloc(512);
  header.write("one");
  header.write("0000644\0" + "0000000\0".repeat(2) + "00000000001\x0000000000000\0" + " ".repeat(8) + "0", 100);
  header.write("ustar\x0000", 257, "latin1");
  const sum = header.reduce((all, byte) => all + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return Buffer.concat([header, Buffer.from("1"), Buffer.alloc(511 + 1024)]);
}
