// What passes between client and guest, and what does not.

import assert from "node:assert/strict";
import { test } from "node:test";
import { confined, previewCookie, previewCookies, takePreview, withoutOurs } from "../../../src/http/proxy/cookie.ts";
import { requestHeaders, responseHeaders } from "../../../src/http/proxy/headers.ts";
import type { Address } from "../../../src/http/proxy/address.ts";

const PREFIX = "/v1/sandboxes/sb-1/proxy/8000";
const BY_PATH: Address = { by: "path", id: "sb-1", port: "8000", prefix: PREFIX, path: "/app/page?x" };
const BY_HOST: Address = { by: "host", id: "sb-1", port: "8000", prefix: "", path: "/app/page?x" };
const HOST = "8000-sb-1.localhost:8889";

type About = Parameters<typeof requestHeaders>[1];

function sent(raw: string[], about: Partial<About> = {}): string[] {
  const given = { address: BY_PATH, host: "api:8889", requestId: "r1", remote: "10.0.0.7", isTls: false, passesAuthorization: true };
  return lines(requestHeaders(raw, { ...given, ...about }));
}

function got(raw: string[], address = BY_PATH, byToken = true): string[] {
  return lines(responseHeaders(raw, { address, host: HOST, byToken }));
}

function lines(raw: string[]): string[] {
  return raw.flatMap((name, at) => (at % 2 === 0 ? [`${name}: ${raw[at + 1]}`] : []));
}

test("a request keeps its headers in order, with their case and their repetitions", () => {
  const own = ["X-A: 1", "accept: */*", "X-A: 2"];
  const said = sent(["X-A", "1", "accept", "*/*", "X-A", "2"]);
  assert.deepEqual(said.slice(1, 4), own);
});

test("what belongs to a connection does not pass", () => {
  const raw = ["Connection", "close, X-Hop", "X-Hop", "1", "Keep-Alive", "timeout=5", "TE", "trailers", "Upgrade", "h2c", "Trailer", "X"];
  const rest = ["Proxy-Authorization", "Basic x", "Proxy-Connection", "close", "Expect", "100-continue"];
  const said = sent([...raw, ...rest, "X-Stays", "1"]).join("\n");
  assert.doesNotMatch(said, /hop|keep-alive|^te:|upgrade|trailer|proxy-|expect|connection/im);
  assert.match(said, /^X-Stays: 1$/m);
  assert.deepEqual(got(["Connection", "X-Hop", "X-Hop", "1", "Transfer-Encoding", "chunked", "Upgrade", "h2c", "X-Stays", "1"], BY_HOST), [
    "X-Stays: 1",
  ]);
});

test("how long a body is nobody takes away", () => {
  assert.ok(sent(["Connection", "content-length", "Content-Length", "5"]).includes("Content-Length: 5"));
  assert.ok(sent(["Transfer-Encoding", "chunked"]).includes("Transfer-Encoding: chunked"));
});

test("who forwards what for whom is said by the proxy alone", () => {
  const lies = [
    "Host",
    "evil",
    "X-Forwarded-For",
    "1.1.1.1",
    "x-forwarded-proto",
    "https",
    "X-Forwarded-Host",
    "evil",
    "X-Forwarded-Prefix",
    "/x",
  ];
  const more = ["X-Forwarded-Port", "1", "Forwarded", "for=1.1.1.1", "X-Real-IP", "1.1.1.1", "X-Request-Id", "r0"];
  assert.deepEqual(sent([...lies, ...more]), [
    "Host: localhost:8000",
    "X-Request-Id: r1",
    "X-Forwarded-Host: api:8889",
    "X-Forwarded-Proto: http",
    "X-Forwarded-For: 10.0.0.7",
    `X-Forwarded-Prefix: ${PREFIX}`,
  ]);
  assert.deepEqual(sent([...lies, ...more], { address: BY_HOST, host: HOST, isTls: true, remote: null }), [
    `Host: ${HOST}`,
    "X-Request-Id: r1",
    `X-Forwarded-Host: ${HOST}`,
    "X-Forwarded-Proto: https",
  ]);
});

test("credentials of ours do not reach the guest", () => {
  const raw = ["X-Forkd-Token", "fkd_secret", "Authorization", "Bearer fkd_secret", "Cookie", "a=1; forkd_preview=fkp_x; b=2"];
  const said = sent([...raw, "cookie", "__Host-forkd_preview=fkp_y"], { passesAuthorization: false }).join("\n");
  assert.doesNotMatch(said, /secret|fk[dp]_|forkd_preview/);
  assert.match(said, /^Cookie: a=1; b=2$/m);
  assert.match(sent(["Authorization", "Basic app"]).join("\n"), /^Authorization: Basic app$/m);
});

test("on a path a guest does not speak for the API's origin", () => {
  const site = ["Service-Worker-Allowed", "/", "Clear-Site-Data", '"*"', "Strict-Transport-Security", "max-age=1", "Alt-Svc", 'h3=":1"'];
  const cors = ["Access-Control-Allow-Origin", "*", "Access-Control-Allow-Credentials", "true", "NEL", "{}", "Report-To", "{}"];
  const raw = [...site, ...cors, "X-Forkd-Error", "NOT_FOUND", "X-Request-Id", "theirs", "Content-Type", "text/html"];
  assert.deepEqual(got(raw), ["Content-Type: text/html", "Content-Security-Policy: sandbox", "X-Content-Type-Options: nosniff"]);
  const byHost = got(raw, BY_HOST, false);
  assert.ok(byHost.includes("Access-Control-Allow-Origin: *") && byHost.includes("Service-Worker-Allowed: /"));
  assert.doesNotMatch(byHost.join("\n"), /x-forkd|x-request-id|sandbox/i);
});

test("cookies of a guest stay with it", () => {
  assert.deepEqual(got(["Set-Cookie", "a=1; Path=/; Domain=localhost; HttpOnly", "Set-Cookie", "b=2"]).slice(0, 2), [
    `Set-Cookie: a=1; HttpOnly; Path=${PREFIX}`,
    `Set-Cookie: b=2; Path=${PREFIX}`,
  ]);
  assert.deepEqual(got(["Set-Cookie", "a=1; Path=/x; domain = .example.org; Secure", "Set-Cookie", "forkd_preview=x"], BY_HOST), [
    "Set-Cookie: a=1; Path=/x; Secure",
  ]);
  assert.equal(confined(" __Host-forkd_preview =x; Path=/", null), null);
});

test("on a path a redirect stays below it, or is not followed", () => {
  const location = (value: string): string | undefined => got(["Location", value])[0];
  for (const [value, path] of [
    ["/login", "/login"],
    ["next?a=1#b", "/app/next?a=1#b"],
    ["../../../../stop", "/stop"],
    ["/%2e%2e/%2e%2e/stop", "/stop"],
    ["http://localhost:8000/x", "/x"],
    ["http://127.0.0.1:8000", "/"],
  ])
    assert.equal(location(value ?? ""), `Location: ${PREFIX}${path}`, value);
  for (const value of [
    "http://api:8889/v1/stop",
    "//evil.example/x",
    "https://localhost:8000/",
    "http://localhost:8889/v1/stop",
    "http://[",
    "javascript:1",
  ])
    assert.equal(location(value), `X-Forkd-Location: ${value}`);
});

test("on a host a redirect away does not take a token along", () => {
  const location = (value: string, byToken: boolean): string | undefined => got(["Location", value], BY_HOST, byToken)[0];
  for (const value of ["/login", "next", `http://${HOST}/x`]) assert.equal(location(value, true), `Location: ${value}`);
  for (const value of ["//evil.example", "https://login.example.org/", "http://localhost:8889/v1/stop"]) {
    assert.equal(location(value, true), `X-Forkd-Location: ${value}`);
    assert.equal(location(value, false), `Location: ${value}`);
  }
});

test("our cookie is found among others, as often as it is there", () => {
  assert.deepEqual(previewCookies("a=1; forkd_preview=x; __Host-forkd_preview=y; xforkd_preview=z"), ["x", "y"]);
  assert.deepEqual(previewCookies(undefined), []);
  assert.equal(previewCookies("forkd_preview=x; ".repeat(100)).length, 8);
  assert.equal(withoutOurs("a=1"), "a=1");
  assert.equal(withoutOurs("forkd_preview=x"), undefined);
});

test("our cookie is for this host alone, and no script reads it", () => {
  assert.equal(previewCookie("t", { maxAgeSecs: 60, isSecure: false }), "forkd_preview=t; Path=/; HttpOnly; SameSite=Lax; Max-Age=60");
  assert.equal(
    previewCookie("t", { maxAgeSecs: 60, isSecure: true }),
    "__Host-forkd_preview=t; Path=/; HttpOnly; SameSite=Lax; Max-Age=60; Secure",
  );
});

test("the token of a link is taken out of the address, and the rest stays as it is", () => {
  assert.deepEqual(takePreview("/a?forkd_preview=t"), { token: "t", path: "/a" });
  assert.deepEqual(takePreview("/a?x=%zz&forkd_preview=t&&y#f"), { token: "t", path: "/a?x=%zz&&y#f" });
  assert.deepEqual(takePreview("/a?forkd_preview"), { token: "", path: "/a" });
  for (const path of ["/a", "/a?x=1", "/forkd_preview=t", "/a?xforkd_preview=t"])
    assert.deepEqual(takePreview(path), { token: undefined, path });
});
