import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Journal, type Change } from "../../src/agents/journal.ts";
import { keptIn, withKept } from "../../src/agents/kept.ts";
import { objectOf, type KubernetesObject } from "../../src/agents/objects.ts";
import { patched } from "../../src/agents/patch.ts";
import { labelSelector, selectorOf } from "../../src/agents/selectors.ts";
import { ageOf } from "../../src/agents/table.ts";
import { typeFor } from "../../src/agents/watch.ts";

function object(name: string, labels: Record<string, string> = {}, uid: string = name): KubernetesObject {
  return objectOf("sandboxes", { name, namespace: "default", uid, creationTimestamp: "2026-01-01T00:00:00Z", labels }, { spec: {} });
}

const key = (name: string): { namespace: string; name: string } => ({ namespace: "default", name });

describe("journal", () => {
  it("has each change after a version, and none twice", () => {
    const journal = new Journal();
    const before = journal.tick();
    journal.note("sandboxes", key("a"), object("a"));
    const between = journal.tick();
    journal.note("sandboxes", key("a"), object("a"));
    journal.note("sandboxes", key("a"), object("a", { x: "1" }));
    journal.note("sandboxes", key("a"), null);
    assert.deepEqual(types(journal.since(String(before))), ["ADDED", "MODIFIED", "DELETED"]);
    assert.deepEqual(types(journal.since(String(between))), ["MODIFIED", "DELETED"]);
    assert.deepEqual(journal.since(String(journal.tick())), []);
  });

  it("keeps a newer state when an older answer comes later", () => {
    const journal = new Journal();
    const asOf = journal.tick();
    journal.note("sandboxes", key("a"), object("a", { is: "new" }), journal.tick());
    journal.note("sandboxes", key("a"), object("a", { is: "old" }), asOf);
    assert.equal(journal.all("sandboxes")[0]?.metadata.labels?.["is"], "new");
    journal.note("sandboxes", key("a"), null);
    journal.note("sandboxes", key("a"), object("a"), asOf);
    assert.deepEqual(journal.all("sandboxes"), [], "an object that is gone does not come back");
  });

  it("reports an object that replaces another of the same name", () => {
    const journal = new Journal();
    const before = journal.tick();
    journal.note("sandboxes", key("a"), object("a", {}, "first"));
    journal.note("sandboxes", key("a"), object("a", {}, "second"));
    assert.deepEqual(types(journal.since(String(before))), ["ADDED", "DELETED", "ADDED"]);
  });

  it("takes the versions of another gateway, without losing a change", () => {
    let now = Date.now();
    const nowMs = (): number => now;
    const [one, two] = [new Journal({ nowMs }), new Journal({ nowMs })];
    now += 60_000;
    one.note("sandboxes", key("gone"), object("gone"));
    two.note("sandboxes", key("gone"), object("gone"));
    const version = String(one.tick());
    two.note("sandboxes", key("gone"), null);
    two.note("sandboxes", key("a"), object("a"));
    assert.deepEqual(
      two
        .since(version)
        .map(({ type, object: { metadata } }) => `${type} ${metadata.name}`)
        .sort(),
      ["DELETED gone", "MODIFIED a"],
    );
    // of a time before this gateway ran
    const late = new Journal({ nowMs: () => now + 60_000 });
    assert.throws(() => late.since(version), /too old/);
  });

  it("forgets old changes and says so", () => {
    const journal = new Journal();
    const before = String(journal.tick());
    for (let at = 0; at < 20_001; at++) journal.note("sandboxes", key("a"), object("a", { at: String(at) }));
    assert.throws(() => journal.since(before), /too old/);
    assert.throws(() => journal.since("x"), /not one of this API/);
  });
});

describe("watches", () => {
  it("see objects come and go as their selector does", () => {
    const matches = selectorOf(new URLSearchParams({ labelSelector: "x=1" }));
    const change = (type: Change["type"], now: KubernetesObject, previous?: KubernetesObject): Change => ({
      type,
      resource: "sandboxes",
      object: now,
      version: 1n,
      previous,
    });
    const [inside, outside] = [object("a", { x: "1" }), object("a", { x: "2" })];
    assert.equal(typeFor(change("ADDED", outside), "sandboxes", matches), null);
    assert.equal(typeFor(change("MODIFIED", inside, outside), "sandboxes", matches), "ADDED");
    assert.equal(typeFor(change("MODIFIED", outside, inside), "sandboxes", matches), "DELETED");
    assert.equal(typeFor(change("MODIFIED", inside, inside), "sandboxes", matches), "MODIFIED");
    assert.equal(typeFor(change("MODIFIED", outside, outside), "sandboxes", matches), null);
    assert.equal(typeFor(change("DELETED", inside), "sandboxclaims", matches), null);
  });
});

describe("selectors", () => {
  it("are Kubernetes' for labels", () => {
    const labels = { app: "a", tier: "x" };
    for (const text of ["", "app", "app=a", "app==a", "app!=b", "app in (a,b)", "app notin (b, c),tier=x", "!other", "other notin (a)"])
      assert.equal(labelSelector(text)(labels), true, text);
    for (const text of ["!app", "app=b", "app in (b)", "other", "app,tier=y"]) assert.equal(labelSelector(text)(labels), false, text);
    for (const text of ["app=a=b", "in (a)", "a b"]) assert.throws(() => labelSelector(text), /cannot be read/, text);
  });

  it("are name and namespace for fields", () => {
    assert.equal(selectorOf(new URLSearchParams({ fieldSelector: "metadata.name=a" }))(object("a")), true);
    assert.equal(selectorOf(new URLSearchParams({ fieldSelector: "metadata.name!=a,metadata.namespace=default" }))(object("a")), false);
    assert.throws(() => selectorOf(new URLSearchParams({ fieldSelector: "status.phase=x" })), /not supported/);
  });
});

describe("what clients gave a sandbox", () => {
  const kept = { labels: { a: "1" }, annotations: {}, spec: { podTemplate: { text: "é😀".repeat(1000) } } };

  it("is kept in its metadata, beside that of others", () => {
    const metadata = withKept({ mine: "yes", "k8s.7": "old" }, kept);
    assert.equal(metadata["mine"], "yes");
    assert.ok(Object.values(metadata).every((text) => text.length <= 1024));
    assert.ok(Object.values(metadata).every((text) => text === Buffer.from(text).toString()));
    assert.deepEqual(keptIn(metadata), kept);
    assert.equal(keptIn({ mine: "yes" }), null);
    assert.equal(keptIn({ "k8s.0": "{" }), null);
  });

  it("has a limit", () => {
    assert.throws(() => withKept({}, { ...kept, annotations: { a: "x".repeat(64 * 1024) } }), /larger than 60 KiB/);
  });
});

describe("patches", () => {
  it("merge, and remove with null", () => {
    const patch = { metadata: { labels: { a: null, b: "2" } } };
    assert.deepEqual(patched({ metadata: { labels: { a: "1" } }, spec: 1 }, "application/merge-patch+json", patch), {
      metadata: { labels: { b: "2" } },
      spec: 1,
    });
  });

  it("are lists of operations", () => {
    const patch = [
      { op: "test", path: "/a/0", value: 1 },
      { op: "add", path: "/a/-", value: 2 },
      { op: "replace", path: "/b~1c", value: "y" },
      { op: "remove", path: "/d" },
      { op: "copy", from: "/a/1", path: "/e" },
    ];
    assert.deepEqual(patched({ a: [1], "b/c": "x", d: 0 }, "application/json-patch+json", patch), { a: [1, 2], "b/c": "y", e: 2 });
    assert.throws(() => patched({}, "application/json-patch+json", [{ op: "test", path: "", value: 1 }]), /expects another value/);
    assert.throws(() => patched({}, "application/json-patch+json", [{ op: "remove", path: "/x" }]), /nothing at/);
    assert.throws(() => patched({}, "application/json-patch+json", { op: "remove" }), /list/);
  });

  it("of other types are refused, and never reach a prototype", () => {
    assert.throws(() => patched({}, "application/apply-patch+yaml", {}), /A patch must be/);
    patched({}, "application/merge-patch+json", JSON.parse('{"__proto__":{"polluted":1}}'));
    assert.throws(() => patched({}, "application/json-patch+json", [{ op: "add", path: "/__proto__/polluted", value: 1 }]), /No field/);
    assert.equal(({} as { polluted?: number }).polluted, undefined);
  });
});

it("shows an age as kubectl does", () => {
  const now = Date.parse("2026-01-03T00:00:00Z");
  assert.equal(ageOf("2026-01-02T23:59:18Z", now), "42s");
  assert.equal(ageOf("2026-01-02T23:30:00Z", now), "30m");
  assert.equal(ageOf("2026-01-02T12:00:00Z", now), "12h");
  assert.equal(ageOf("2025-12-30T00:00:00Z", now), "4d");
});

function types(changes: readonly Change[]): string[] {
  return changes.map(({ type }) => type);
}
