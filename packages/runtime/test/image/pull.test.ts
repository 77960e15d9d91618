import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readdir } from "node:fs/promises";
import type { ServerResponse } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync, zstdCompressSync } from "node:zlib";
import type { ForkdError } from "../../src/errors.ts";
import { run } from "../../src/host/command.ts";
import { pullImage } from "../../src/image/oci-registry.ts";
import { startFront } from "./helpers/front.ts";
import { blobOf, makeImage, makeIndex } from "./helpers/oci.ts";
import type { TestImage } from "./helpers/oci.ts";
import { PASSWORD, USER, hasRegistry, startRegistry } from "./helpers/registry.ts";
import { catSquashfs, listSquashfs } from "./helpers/squashfs.ts";
import { tarOf } from "./helpers/tar.ts";
import type { Item } from "./helpers/tar.ts";
import { leftovers, tempDir, tempHome } from "./helpers/temp-home.ts";

const skip = (await hasRegistry()) ? false : "docker-registry is not installed";
const ZSTD = "application/vnd.oci.image.layer.v1.tar+zstd";
const LONG = `deep/${"d".repeat(120)}/${"e".repeat(120)}/${"f".repeat(200)}`;

function gzipLayer(items: readonly Item[]): { tar: Buffer; packed: Buffer } {
  const tar = tarOf(items);
  return { tar, packed: gzipSync(tar) };
}

function simpleImage(items: readonly Item[] = [{ path: "hello", content: "hi" }]): TestImage {
  return makeImage([gzipLayer(items)], { docker: true });
}

test("layers are flattened: whiteouts, opaque folders, replaced entries, hard links, long names, attributes", { skip }, async (t) => {
  const home = await tempHome(t);
  const registry = await startRegistry(t);
  const capability = Buffer.from([1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
  const bottom = gzipLayer([
    { path: "./", mode: 0o751 },
    { path: "bin/", mode: 0o755 },
    { path: "bin/tool", content: "old tool", mode: 0o4755, uid: 0, gid: 50 },
    { path: "bin/alias", type: "hardlink", link: "bin/tool" },
    { path: "etc/", mode: 0o711 },
    { path: "etc/gone", content: "x" },
    { path: "etc/kept", content: "kept" },
    { path: "cache/", mode: 0o755 },
    { path: "cache/old", content: "x" },
    { path: "cache/sub/deep", content: "x" },
    { path: "lib", type: "symlink", link: "usr/lib" },
    { path: "usr/lib/", mode: 0o755 },
    { path: "swap/inner", content: "x" },
    { path: LONG, content: "long" },
    { path: "home/user", content: "mine", uid: 3_000_000, gid: 1000 },
    {
      path: "bin/ping",
      content: "ping",
      mode: 0o755,
      xattrs: new Map([
        ["security.capability", capability],
        ["user.note", Buffer.from("n\n=\xff", "latin1")],
        ["trusted.overlay.opaque", Buffer.from("y")],
      ]),
    },
    { path: "dev/null", type: "char", major: 1, minor: 3 },
    { path: "caf\xc3\xa9", content: "utf8 name" },
  ]);
  const topTar = tarOf([
    { path: "bin/tool", content: "new tool", mode: 0o755 },
    { path: "etc/.wh.gone" },
    { path: "cache/new", content: "fresh" },
    { path: "cache/.wh..wh..opq" },
    { path: "lib/added", content: "through the link" },
    { path: "swap", content: "now a file" },
    { path: "etc/link2", type: "hardlink", link: "etc/kept" },
    { path: "etc/.wh.kept" },
    { path: "pipe", type: "fifo", mode: 0o600 },
  ]);
  const image = makeImage([bottom, { tar: topTar, packed: zstdCompressSync(topTar), media: ZSTD }], {
    config: { Env: ["PATH=/bin", "A=b=c"], WorkingDir: "/srv", User: "1000:1000", Entrypoint: ["/bin/tool"], Cmd: null },
  });
  const foreign = makeImage([gzipLayer([{ path: "arm", content: "x" }])], { architecture: "arm64" });
  const index = makeIndex([
    { image: foreign, architecture: "arm64" },
    { image, architecture: "amd64" },
  ]);
  await registry.push("team/app", "1.0", { index, images: [foreign, image] });

  const stored = await pullImage(home, `${registry.host}/team/app:1.0`, { name: "app" });
  assert.deepEqual(stored.manifest.config, {
    env: { PATH: "/bin", A: "b=c" },
    cwd: "/srv",
    user: "1000:1000",
    entrypoint: ["/bin/tool"],
    cmd: [],
  });
  assert.deepEqual(stored.manifest.source, { kind: "oci", reference: `${registry.host}/team/app:1.0`, digest: image.manifest.digest });

  const listing = await listSquashfs(stored.rootfsPath);
  assert.deepEqual(Object.fromEntries([...listing].filter(([path]) => !path.startsWith("/deep"))), {
    "/": "drwxr-x--x 0/0",
    "/bin": "drwxr-xr-x 0/0",
    "/bin/alias": "-rwsr-xr-x 0/50",
    "/bin/ping": "-rwxr-xr-x 0/0",
    "/bin/tool": "-rwxr-xr-x 0/0",
    "/cache": "drwxr-xr-x 0/0",
    "/cache/new": "-rw-r--r-- 0/0",
    "/café": "-rw-r--r-- 0/0",
    "/etc": "drwx--x--x 0/0",
    "/etc/link2": "-rw-r--r-- 0/0",
    "/home": "drwxr-xr-x 0/0",
    "/home/user": "-rw-r--r-- 3000000/1000",
    "/lib": "lrwxrwxrwx 0/0 -> usr/lib",
    "/pipe": "prw------- 0/0",
    "/swap": "-rw-r--r-- 0/0",
    "/usr": "drwxr-xr-x 0/0",
    "/usr/lib": "drwxr-xr-x 0/0",
    "/usr/lib/added": "-rw-r--r-- 0/0",
  });
  assert.equal(listing.has(`/${LONG}`), true);
  for (const [path, content] of [
    ["bin/tool", "new tool"],
    ["bin/alias", "old tool"],
    ["etc/link2", "kept"],
    ["usr/lib/added", "through the link"],
    ["swap", "now a file"],
    [LONG, "long"],
  ] as const) {
    assert.equal(await catSquashfs(stored.rootfsPath, path), content, path);
  }
  if (process.getuid?.() === 0) {
    const out = join(await tempDir(t), "out");
    await run(["unsquashfs", "-q", "-no-progress", "-d", out, stored.rootfsPath, "bin/ping"]);
    const dump = (
      await run([
        "python3",
        "-c",
        "import os,sys; print({k: os.getxattr(sys.argv[1], k).hex() for k in sorted(os.listxattr(sys.argv[1]))})",
        join(out, "bin/ping"),
      ])
    ).stdout;
    assert.equal(dump.trim(), `{'security.capability': '${capability.toString("hex")}', 'user.note': '6e0a3dff'}`);
  }
  assert.deepEqual(await readdir(join(home.cache, "blobs")), []);
  assert.deepEqual(await readdir(home.staging), []);
});

test("the same image pulled twice is one image", { skip }, async (t) => {
  const home = await tempHome(t);
  const registry = await startRegistry(t);
  await registry.push("app", "latest", simpleImage());
  const one = await pullImage(home, `${registry.host}/app`, { name: "one" });
  const two = await pullImage(home, `${registry.host}/app@${simpleImage().manifest.digest}`, { name: "two" });
  assert.equal(one.id, two.id);
});

test("a registry with basic authentication wants the right password", { skip }, async (t) => {
  const home = await tempHome(t);
  const registry = await startRegistry(t, { auth: "htpasswd" });
  await registry.push("private", "v1", simpleImage());
  const ref = `${registry.host}/private:v1`;
  await assert.rejects(pullImage(home, ref, { name: "p" }), { code: "REGISTRY_AUTH" });
  await assert.rejects(
    pullImage(home, ref, { name: "p", username: USER, password: "wrong-one" }),
    (error: ForkdError) => error.code === "REGISTRY_AUTH" && !`${error.message} ${error.hint} ${error.stack}`.includes("wrong-one"),
  );
  const image = await pullImage(home, ref, { name: "p", username: USER, password: PASSWORD });
  assert.equal(await catSquashfs(image.rootfsPath, "hello"), "hi");
});

test("the token server gets a request for read access only, and secrets go to no other host", { skip }, async (t) => {
  const home = await tempHome(t);
  const registry = await startRegistry(t);
  await registry.push("app", "v1", simpleImage());
  const store = await startFront(t, registry.host, () => false);
  const tokens = await startFront(t, undefined, (_seen, res) => {
    res.end(JSON.stringify({ token: "t0ken" }));
    return true;
  });
  const front = await startFront(t, registry.host, (seen, res) => {
    if (seen.authorization !== "Bearer t0ken") {
      res
        .writeHead(401, {
          "www-authenticate": `Bearer realm="http://${tokens.host}/token",service="reg",scope="repository:app:pull,push,delete"`,
        })
        .end();
      return true;
    }
    if (!seen.url.includes("/blobs/")) return false;
    res.writeHead(307, { location: `http://${store.host}${seen.url}` }).end();
    return true;
  });
  const image = await pullImage(home, `${front.host}/app:v1`, { name: "app", username: USER, password: PASSWORD });
  assert.equal(await catSquashfs(image.rootfsPath, "hello"), "hi");
  assert.equal(tokens.seen[0]?.url, "/token?service=reg&scope=repository%3Aapp%3Apull");
  assert.equal(tokens.seen[0]?.authorization, `Basic ${Buffer.from(`${USER}:${PASSWORD}`).toString("base64")}`);
  assert.equal(store.seen.length > 0, true);
  assert.deepEqual(
    store.seen.filter((seen) => seen.authorization !== undefined),
    [],
  );
});

test("an interrupted download is resumed where it stopped", { skip }, async (t) => {
  const home = await tempHome(t);
  const registry = await startRegistry(t);
  const content = randomBytes(3_000_000);
  const tar = tarOf([{ path: "big", content }]);
  const image = makeImage([{ tar, packed: tar, media: "application/vnd.oci.image.layer.v1.tar" }]);
  const layer = image.blobs[1]?.digest ?? "";
  await registry.push("big", "v1", image);
  let drops = 0;
  const front = await startFront(t, registry.host, () => false, {
    dropAfter: (seen) => (seen.url.endsWith(layer) && drops++ < 3 ? 700_000 : undefined),
  });
  const stored = await pullImage(home, `${front.host}/big:v1`, { name: "big" });
  const ranges = front.seen.filter((seen) => seen.url.endsWith(layer)).map((seen) => seen.range);
  assert.equal(ranges.length, 4);
  const offsets = ranges.map((range) => (range === undefined ? 0 : Number(/^bytes=(\d+)-$/.exec(range)?.[1])));
  // Received bytes that were not yet delivered when the connection broke may be requested again.
  for (const [i, offset] of offsets.entries()) assert.ok(offset <= i * 700_000 && offset >= i * 500_000, offsets.join(" "));
  const out = join(await tempDir(t), "out");
  await run(["unsquashfs", "-q", "-no-progress", "-d", out, stored.rootfsPath]);
  assert.equal((await run(["sha256sum", join(out, "big")])).stdout.split(" ")[0], blobOf(content).digest.slice(7));
});

test("a cancelled pull keeps its downloads, and the next one resumes them", { skip }, async (t) => {
  const home = await tempHome(t);
  const registry = await startRegistry(t);
  const tar = tarOf([{ path: "big", content: randomBytes(2_000_000) }]);
  const image = makeImage([{ tar, packed: tar, media: "application/vnd.oci.image.layer.v1.tar" }]);
  const layer = image.blobs[1]?.digest ?? "";
  await registry.push("big", "v1", image);
  const stop = new AbortController();
  const cut = await startFront(t, registry.host, () => false, { dropAfter: (seen) => (seen.url.endsWith(layer) ? 500_000 : undefined) });
  const progress = (event: { step: string; done?: number }): void => {
    if (event.step === "Downloading" && (event.done ?? 0) > 400_000) stop.abort();
  };
  await assert.rejects(pullImage(home, `${cut.host}/big:v1`, { name: "big", signal: stop.signal, progress }), { code: "CANCELLED" });
  assert.deepEqual(await readdir(home.staging), []);
  // the configuration is downloaded at the same time, and may be partial too
  const begun = (await readdir(join(home.cache, "blobs"))).filter((name) => name.startsWith(layer.slice(7)) && name.endsWith(".partial"));
  assert.equal(begun.length, 1);
  const front = await startFront(t, registry.host, () => false);
  await pullImage(home, `${front.host}/big:v1`, { name: "big" });
  assert.match(front.seen.find((seen) => seen.url.endsWith(layer))?.range ?? "", /^bytes=\d{5,}-$/);
});

/** A registry that serves exactly the given answers, valid or not */
function liar(image: TestImage, lies: Record<string, Buffer>) {
  return (seen: { url: string }, res: ServerResponse): boolean => {
    const name = seen.url.split("/").at(-1) ?? "";
    const data = lies[name] ?? (name === "v1" ? image.manifest.data : image.blobs.find((blob) => blob.digest === name)?.data);
    if (data === undefined) res.writeHead(404).end();
    else res.writeHead(200, { "content-type": image.mediaType }).end(data);
    return true;
  };
}

const image = simpleImage();
const [configBlob, layerBlob] = image.blobs;
assert.ok(configBlob && layerBlob);
const sameSize = Buffer.from(layerBlob.data);
sameSize[sameSize.length - 9] = (sameSize[sameSize.length - 9] ?? 0) ^ 1;
const wrongDiff = makeImage([{ tar: tarOf([{ path: "other" }]), packed: gzipSync(tarOf([{ path: "hello" }])) }], { docker: true });
const arm = makeImage([gzipLayer([{ path: "x" }])], { architecture: "arm64", docker: true });

const LIES: [string, TestImage, Record<string, Buffer>, string][] = [
  ["a layer with other content", image, { [layerBlob.digest]: sameSize }, "DIGEST_MISMATCH"],
  [
    "a layer longer than its descriptor",
    image,
    { [layerBlob.digest]: Buffer.concat([layerBlob.data, Buffer.alloc(64)]) },
    "DIGEST_MISMATCH",
  ],
  ["a configuration with other content", image, { [configBlob.digest]: Buffer.alloc(configBlob.data.length, 0x20) }, "DIGEST_MISMATCH"],
  ["a layer that unpacks to something else", wrongDiff, {}, "DIGEST_MISMATCH"],
  ["an image for another machine", arm, {}, "IMAGE_INVALID"],
  ["a manifest that is no JSON", image, { v1: Buffer.from("<html>") }, "IMAGE_INVALID"],
  [
    "a manifest without layers",
    image,
    { v1: Buffer.from(JSON.stringify({ schemaVersion: 2, config: { digest: configBlob.digest, size: 1 }, layers: [] })) },
    "IMAGE_INVALID",
  ],
  [
    "a digest that is a path",
    image,
    {
      v1: Buffer.from(
        JSON.stringify({
          schemaVersion: 2,
          config: { digest: "sha256:../../x", size: 1 },
          layers: [{ digest: "sha256:/etc/passwd", size: 1 }],
        }),
      ),
    },
    "IMAGE_INVALID",
  ],
  ["an endless manifest", image, { v1: Buffer.alloc(5 * 1024 * 1024, 0x20) }, "IMAGE_INVALID"],
];
for (const [what, served, lies, code] of LIES) {
  test(`refuses ${what} and leaves nothing`, async (t) => {
    const home = await tempHome(t);
    const front = await startFront(t, undefined, liar(served, lies));
    await assert.rejects(pullImage(home, `${front.host}/app:v1`, { name: "app" }), { code });
    assert.deepEqual(await leftovers(home), []);
  });
}

test("refuses a registry that redirects to plain http elsewhere", async (t) => {
  const home = await tempHome(t);
  const front = await startFront(t, undefined, (_seen, res) => {
    res.writeHead(302, { location: "http://registry.example/v2/" }).end();
    return true;
  });
  await assert.rejects(pullImage(home, `${front.host}/app:v1`, { name: "app" }), { code: "REGISTRY_FAILED" });
});

test("a server that the registry redirects to gets no credentials, and cannot name a token server", async (t) => {
  const home = await tempHome(t);
  const asked: (string | undefined)[] = [];
  const thief = await startFront(t, undefined, ({ url, authorization }, res) => {
    asked.push(authorization);
    if (url.startsWith("/token")) res.writeHead(200, { "content-type": "application/json" }).end('{"token":"x"}');
    else res.writeHead(401, { "www-authenticate": `Bearer realm="http://${thief.host}/token"` }).end();
    return true;
  });
  const front = await startFront(t, undefined, ({ url }, res) => {
    res.writeHead(307, { location: `http://${thief.host}${url}` }).end();
    return true;
  });
  const login = { username: "ann", password: "secret" };
  await assert.rejects(pullImage(home, `${front.host}/app:v1`, { name: "app", ...login }), { code: "REGISTRY_AUTH" });
  assert.deepEqual(asked, [undefined]);
});

test("an absent image is not found", { skip }, async (t) => {
  const home = await tempHome(t);
  const registry = await startRegistry(t);
  await assert.rejects(pullImage(home, `${registry.host}/none:v1`, { name: "app" }), { code: "NOT_FOUND" });
});
