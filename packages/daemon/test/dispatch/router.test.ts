// The router of REST and E2B.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Router } from "../../src/dispatch/router.ts";

function router(...routes: string[]): Router<string> {
  const made = new Router<string>();
  for (const route of routes) {
    const [method = "", path = ""] = route.split(" ");
    made.add(method, path, route);
  }
  return made;
}

test("a route is found by its method and its segments", () => {
  const made = router("GET /a", "POST /a", "GET /a/:x/b", "GET /a/:x/:y");
  assert.deepEqual(made.find("GET", "/a"), { route: "GET /a", params: {} });
  assert.deepEqual(made.find("POST", "/a/")?.route, "POST /a");
  assert.deepEqual(made.find("GET", "/a/1/b"), { route: "GET /a/:x/b", params: { x: "1" } });
  assert.deepEqual(made.find("GET", "/a/1/c"), { route: "GET /a/:x/:y", params: { x: "1", y: "c" } });
  for (const path of ["", "/", "a", "/A", "//a", "/a//b", "/a/1/", "/a/1/b/c", "http://a/a"])
    assert.equal(made.find("GET", path), null, path);
  assert.equal(made.find("HEAD", "/a"), null);
});

test("a fixed segment is preferred, unless only a parameter has the method", () => {
  const made = router("GET /a/:x", "DELETE /a/:x", "POST /a/pull", "GET /a/:x/c");
  assert.deepEqual(made.find("POST", "/a/pull")?.route, "POST /a/pull");
  assert.deepEqual(made.find("GET", "/a/pull"), { route: "GET /a/:x", params: { x: "pull" } });
  assert.deepEqual(made.find("GET", "/a/pull/c")?.params, { x: "pull" });
  assert.deepEqual(made.methods("/a/pull"), ["GET", "HEAD", "DELETE", "POST"]);
  assert.deepEqual(made.methods("/b"), []);
});

test("segments are decoded after they are separated", () => {
  const made = router("GET /a/:x", "GET /a/:x/b");
  assert.deepEqual(made.find("GET", "/%61/x%2Fb")?.params, { x: "x/b" });
  assert.deepEqual(made.find("GET", "/a/%E2%82%AC")?.params, { x: "\u20ac" });
  assert.throws(() => made.find("GET", "/a/%zz"), { code: "BAD_REQUEST" });
});

test("a parameter has a bounded length", () => {
  const made = router("GET /a/:x");
  assert.ok(made.find("GET", `/a/${"x".repeat(512)}`));
  assert.equal(made.find("GET", `/a/${"x".repeat(513)}`), null);
});
