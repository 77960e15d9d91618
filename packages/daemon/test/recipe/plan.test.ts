// Cache keys of a recipe's layers: the inputs that change them, and no others.

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { parseRecipe } from "../../src/recipe/parse.ts";
import { planOf } from "../../src/recipe/plan.ts";
import type { Base } from "../../src/recipe/plan.ts";

const TEXT = `name: x
description: A try.
image: { packages: [python3] }
env: { A: "1", B: "2" }
files:
  - { from: a, to: /a }
steps:
  - exec: [one]
  - name: The second
    exec: [two]
  - exec: [three]
ready:
  - port: 80
`;
const IMAGE: Base = { kind: "image" };

/** Keys of the layers, and last the key of the snapshot */
function keysOf(text: string, opts: { base?: Base; contents?: string[] } = {}): string[] {
  const { layers, key } = planOf(parseRecipe(text, "r.yaml").recipe, opts.base ?? IMAGE, opts.contents ?? ["a"]);
  return [...layers.map((layer) => layer.key), key];
}

/** Number of leading keys that are unchanged */
function sameUntil(text: string, opts: Parameters<typeof keysOf>[1] = {}): number {
  const [before, now] = [keysOf(TEXT), keysOf(text, opts)];
  const index = before.findIndex((key, at) => key !== now[at]);
  if (index === -1) return before.length;
  assert.ok(
    now.slice(index).every((key) => !before.includes(key)),
    "keys after a change differ",
  );
  return index;
}

describe("the layer keys of a recipe", () => {
  const all = keysOf(TEXT).length;
  const cases: [what: string, text: string, same: number][] = [
    ["nothing", TEXT, all],
    ["the description", TEXT.replace("A try.", "Another."), all],
    ["the title of a step", TEXT.replace("The second", "The 2nd"), all],
    ["the order of fields", TEXT.replace('{ A: "1", B: "2" }', '{ B: "2", A: "1" }'), all],
    ["a step marked once", TEXT.replace("- exec: [three]", "- exec: [three]\n    once: true"), all],
    ["a test", `${TEXT}tests:\n  - exec: "true"\n`, all],
    ["a check", TEXT.replace("80", "81"), all - 1],
    ["the health", `${TEXT}health:\n  - port: 80\n`, all - 1],
    ["the last step", TEXT.replace("three", "drei"), 4],
    ["the middle step", TEXT.replace("two", "zwei"), 3],
    ["two steps that change places", TEXT.replace("[one]", "[_]").replace("[two]", "[one]").replace("[_]", "[two]"), 2],
    ["the user of all steps", `${TEXT}user: me\n`, 2],
    ["where a file goes", TEXT.replace("/a }", "/b }"), 1],
    ["the packages", TEXT.replace("python3", "nodejs"), 0],
    ["the environment", TEXT.replace('"2"', '"3"'), 0],
    ["the machine", `${TEXT}machine: { vcpus: 2 }\n`, 0],
    ["the network", `${TEXT}network: open\n`, 0],
  ];
  for (const [what, text, same] of cases)
    it(`after a change of ${what} the first ${same} are the same`, () => assert.equal(sameUntil(text), same));

  it("depend on the content of copied files", () => assert.equal(sameUntil(TEXT, { contents: ["b"] }), 1));

  it("depend on the snapshot that a delta begins with", () => {
    const delta = TEXT.replace("{ packages: [python3] }", "{ snapshot: y }");
    const [one, two] = ["sn-1", "sn-2"].map((id) => keysOf(delta, { base: { kind: "snapshot", id } }));
    assert.equal(one?.length, all - 1, "nothing is booted");
    assert.notDeepEqual(one, two);
  });

  it("depend on the content of an image's archive", () => {
    const [one, two] = ["1", "2"].map((content) => keysOf(TEXT, { base: { kind: "image", content } }));
    assert.notEqual(one?.[0], two?.[0]);
  });
});
