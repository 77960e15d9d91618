// Signatures of packs, and their compatibility with this host.

import assert from "node:assert/strict";
import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { checkFit } from "../../src/pack/fit.ts";
import { KeyStore } from "../../src/pack/keys.ts";
import { preparePack } from "../../src/pack/prepare.ts";
import { packBytes } from "../../src/pack/container.ts";
import { canonicalJson, parsePackManifest, type PackManifest } from "../../src/pack/manifest.ts";
import type { TrustPolicy } from "../../src/pack/signature.ts";
import { FakeHome, HOST } from "./fake.ts";

async function signed(home: FakeHome): Promise<{ bytes: Buffer; plain: Buffer; keys: KeyStore }> {
  const keys = new KeyStore(home.stores.home);
  await keys.create("me");
  await home.base("warm");
  return { keys, bytes: await home.pack("warm", { sign: await keys.signer("me") }), plain: await home.pack("warm") };
}

test("the requirements of each policy", async () => {
  await using home = await FakeHome.make();
  const { bytes, plain, keys } = await signed(home);
  const me = await keys.get("me");
  const outcome = async (pack: Buffer, policy: TrustPolicy, known: boolean): Promise<string | null> => {
    await using to = await FakeHome.make();
    const empty = await to.left();
    try {
      return (await to.unpack(pack, { trust: { policy, keys: new Set(known ? [me.id] : []) } })).signedBy;
    } catch (error) {
      assert.deepEqual(await to.left(), empty);
      return (error as { code: string }).code;
    }
  };
  assert.equal(await outcome(plain, "any", false), null);
  assert.equal(await outcome(bytes, "any", false), null);
  assert.equal(await outcome(bytes, "any", true), me.id);
  assert.equal(await outcome(plain, "known", false), null);
  assert.equal(await outcome(bytes, "known", false), "PACK_UNTRUSTED");
  assert.equal(await outcome(bytes, "known", true), me.id);
  assert.equal(await outcome(plain, "required", true), "PACK_UNTRUSTED");
  assert.equal(await outcome(bytes, "required", false), "PACK_UNTRUSTED");
  assert.equal(await outcome(bytes, "required", true), me.id);
});

test("an existing signature must be valid, under any policy", async () => {
  await using home = await FakeHome.make();
  const { keys } = await signed(home);
  await using to = await FakeHome.make();
  await using pack = await preparePack(home.stores, "warm", { sign: await keys.signer("me") });
  const [signature] = pack.signatures;
  assert.ok(signature);
  await keys.create("other");
  const foreign = (await keys.signer("other"))(pack.manifestBytes);
  const changed = canonicalJson({ ...pack.manifest, name: "changed" });
  const wrong = [
    { ...pack, manifestBytes: changed },
    { ...pack, signatures: [{ ...signature, signature: foreign.signature }] },
    { ...pack, signatures: [{ ...signature, keyId: foreign.keyId }] },
    { ...pack, signatures: [signature, { ...foreign, signature: signature.signature }] },
  ];
  for (const one of wrong) {
    const bytes = Buffer.concat(await Array.fromAsync(packBytes(one)));
    await assert.rejects(to.unpack(bytes), { code: "PACK_UNTRUSTED", message: /is wrong/ });
  }
});

test("twenty signatures with one byte changed each", async () => {
  await using home = await FakeHome.make();
  const { bytes } = await signed(home);
  await using to = await FakeHome.make();
  const at = bytes.indexOf('{"signatures"');
  const end = bytes.indexOf("\0", at);
  for (let i = 0; i < 20; i++) {
    const bad = Buffer.from(bytes);
    const place = at + Math.floor(((i + 0.5) / 20) * (end - at));
    bad[place] = bad[place]! ^ 1;
    await assert.rejects(to.unpack(bad), { code: /^PACK_/ });
  }
});

test("private keys are readable only by their owner, and never shown", async () => {
  await using home = await FakeHome.make();
  const keys = new KeyStore(home.stores.home);
  const me = await keys.create("me");
  const dir = join(home.stores.home.root, "keys");
  assert.deepEqual(await readdir(dir), ["me.pem"]);
  assert.equal((await stat(join(dir, "me.pem"))).mode & 0o777, 0o600);
  const secret = (await readFile(join(dir, "me.pem"), "utf8")).split("\n")[1] ?? "";
  assert.ok(secret.length > 40 && !JSON.stringify([me, await keys.list()]).includes(secret));
  await assert.rejects(keys.create("me"), { code: "EXISTS" });
  await assert.rejects(keys.create("../up"), { code: "BAD_NAME" });
  await assert.rejects(keys.trust("me2", me.publicKey), { code: "EXISTS" });
  await assert.rejects(keys.trust("bad", "forkd-ed25519:AAAA"), { code: "BAD_REQUEST" });
  await using other = await FakeHome.make();
  const theirs = new KeyStore(other.stores.home);
  assert.equal((await theirs.trust("friend", me.publicKey)).id, me.id);
  await assert.rejects(theirs.signer("friend"), { code: "BAD_REQUEST", message: /public key of another signer/ });
  assert.equal((await theirs.get(me.id.slice(0, 12))).name, "friend");
  await theirs.remove("friend");
  await assert.rejects(theirs.get("friend"), { code: "NOT_FOUND" });
});

test("an incompatible pack is refused, with the reason and a hint", async () => {
  await using home = await FakeHome.make();
  await home.base("warm");
  await using pack = await preparePack(home.stores, "warm");
  const manifest = parsePackManifest(pack.manifestBytes);
  const asks = (requires: Partial<PackManifest["requires"]>): Promise<void> =>
    checkFit({ ...manifest, requires: { ...manifest.requires, ...requires } }, HOST);
  await asks({});
  const refusals: [Promise<void>, RegExp, RegExp][] = [
    [asks({ architecture: "aarch64" }), /for aarch64/, /machine with aarch64/],
    [asks({ engine: "other" }), /made with the engine other, and this host uses fake/, /Make the snapshot again/],
    [asks({ engineVersion: "2.0" }), /made with Fake 2\.0 and this is the older 1\.0/, /Install a newer Fake/],
    [asks({ agentProtocol: 3 }), /protocol 3/, /newer forkd here/],
    [asks({ agentProtocol: 1 }), /protocol 1/, /Make the snapshot again/],
  ];
  for (const [refusal, message, hint] of refusals) await assert.rejects(refusal, { code: "SNAPSHOT_INCOMPATIBLE", message, hint });
});
