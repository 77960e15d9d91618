// Network policy of forks of an unpacked snapshot.

import assert from "node:assert/strict";
import { test } from "node:test";
import { droppedWarning, withoutInward } from "../../src/service/network-policy.ts";
import { Network } from "@forkd/runtime/egress/network";
import { NO_NETWORK, type NetworkPolicy } from "@forkd/runtime/egress/policy";
import { PackCache } from "@forkd/runtime/pack/cache";
import { KeyStore } from "@forkd/runtime/pack/keys";
import { FakeHome } from "../../../runtime/test/pack/fake.ts";

const OFFERED: NetworkPolicy = { mode: "open", allow: ["example.org", "169.254.169.254"], egressLimitBytes: 5 };

test("an unpacked snapshot has no network, and its pack can be unpacked again", async () => {
  await using from = await FakeHome.make();
  await using to = await FakeHome.make();
  const base = await from.base("warm", { network: OFFERED });
  await from.branch("later", base, { network: OFFERED });
  const bytes = await from.pack("warm");
  const first = await to.unpack(bytes);
  assert.deepEqual([first.head.manifest.network, first.offered], [NO_NETWORK, OFFERED]);
  assert.deepEqual((await to.unpack(bytes)).snapshots, [], "it is still the same snapshot");
  const later = await to.unpack(await from.pack("later", { without: new Set([base.manifest.id]) }));
  assert.deepEqual(later.snapshots, [later.head.manifest.id]);
  assert.deepEqual(later.head.manifest.network, NO_NETWORK);
  for (const { id } of [first.head.manifest, later.head.manifest])
    assert.deepEqual((await new PackCache(to.stores.home).link(id))?.network, NO_NETWORK, "a pack made here has the policy of this store");
});

test("the receiver decides by the signature, once for each new snapshot", async () => {
  await using from = await FakeHome.make();
  const keys = new KeyStore(from.stores.home);
  const { id } = await keys.create("me");
  await from.branch("later", await from.base("warm", { network: OFFERED }));
  const bytes = await from.pack("later", { sign: await keys.signer("me") });
  for (const known of [true, false]) {
    await using to = await FakeHome.make();
    const asked: unknown[] = [];
    const trust = { policy: "any", keys: new Set(known ? [id] : []) } as const;
    const kept: NetworkPolicy = { mode: "allow", allow: ["example.org"], egressLimitBytes: null };
    const networkOf = (offered: NetworkPolicy, signedBy: string | null): NetworkPolicy => {
      asked.push([offered.mode, signedBy]);
      return kept;
    };
    const { head } = await to.unpack(bytes, { trust, networkOf });
    assert.deepEqual(head.manifest.network, kept);
    const signer = known ? id : null;
    assert.deepEqual(asked, [
      ["open", signer],
      ["none", signer],
    ]);
  }
});

test("rules for private networks and for the host are never kept", () => {
  const network = new Network();
  const policy: NetworkPolicy = {
    mode: "allow",
    allow: ["example.org:443", "10.0.0.0/8", "169.254.169.254", "127.0.0.1:5432", "[fd00::1]:80", "1.2.3.4"],
    egressLimitBytes: null,
  };
  assert.deepEqual(withoutInward(policy, network).allow, ["example.org:443", "1.2.3.4"]);
  assert.deepEqual(withoutInward({ ...policy, allow: ["10.0.0.0/8"] }, network), NO_NETWORK, "no rule is left");
  assert.equal(withoutInward({ ...policy, mode: "open", allow: ["10.0.0.0/8"] }, network).mode, "open");
});

test("a warning lists the removed rules, truncated and without control characters", () => {
  assert.equal(droppedWarning(NO_NETWORK, NO_NETWORK), undefined);
  assert.equal(droppedWarning(OFFERED, OFFERED), undefined);
  assert.match(droppedWarning(OFFERED, NO_NETWORK) ?? "", /: any public address, example\.org, 169\.254\.169\.254\./);
  assert.match(droppedWarning(OFFERED, { ...OFFERED, allow: ["example.org"] }) ?? "", /pack: 169\.254\.169\.254\./);
  const odd = ["\u001b[2Jx", "a b", "x".repeat(5000), ...Array.from({ length: 1000 }, (_, at) => `h${at}.example`)];
  const warning = droppedWarning({ ...OFFERED, allow: odd }, NO_NETWORK) ?? "";
  assert.ok(warning.length < 400, warning);
  assert.match(warning, /h7\.example, 995 more\./);
  assert.match(warning, /^[ -~]+$/);
  assert.doesNotMatch(warning, /xx/);
});
