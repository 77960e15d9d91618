// Hub requests that fail before any transfer. tests/e2e/hub.test.ts tests transfers.

import { fails, REST_AND_SDK, type Case } from "./case.ts";

const NOT_ENCRYPTED = () => /not encrypted/;

export const hubCases: Case[] = [
  {
    what: "a snapshot that does not exist goes nowhere",
    route: "pushSnapshot",
    args: () => ({ params: { tag: "nothing" }, body: { to: "oci://127.0.0.1:1/team/x:v1" } }),
    expect: fails("NOT_FOUND"),
  },
  {
    what: "a name of a hub is no place to push to",
    route: "pushSnapshot",
    args: () => ({ params: { tag: "python" }, body: { to: "acme/python" } }),
    expect: fails("BAD_REQUEST"),
    not: REST_AND_SDK("such a name is a file there"),
  },
  {
    what: "a push over plain http is refused",
    route: "pushSnapshot",
    args: () => ({ params: { tag: "python" }, body: { to: "http://store.example/x?s=s3cret" } }),
    expect: fails("HUB_FAILED", { message: NOT_ENCRYPTED }),
  },
  {
    what: "a registry has a host",
    route: "pullSnapshot",
    args: () => ({ body: { from: "oci://python" } }),
    expect: fails("BAD_REQUEST"),
  },
  {
    what: "a pull over plain http is refused",
    route: "pullSnapshot",
    args: () => ({ body: { from: "http://store.example/x?s=s3cret", tag: "x" } }),
    expect: fails("HUB_FAILED", { message: NOT_ENCRYPTED }),
  },
  {
    what: "names need a hub",
    route: "pullSnapshot",
    args: () => ({ body: { from: "acme/python@v1" } }),
    expect: fails("HUB_MISSING"),
  },
  {
    what: "an index is not read in the open",
    route: "pullSnapshot",
    args: () => ({ body: { from: "acme/python", hub: "http://hub.example/registry.json" } }),
    expect: fails("HUB_FAILED", { message: NOT_ENCRYPTED }),
  },
  { what: "without a configured hub the list fails", route: "listHub", expect: fails("HUB_MISSING") },
  {
    what: "an index has an address",
    route: "listHub",
    args: () => ({ query: { hub: "file:///etc/passwd" } }),
    expect: fails("BAD_REQUEST"),
  },
];
