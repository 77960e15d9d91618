// Calls about hubs, and the expected requests.

import type { Case } from "./pack-cases.ts";

export const hubCases: Case[] = [
  {
    route: "pushSnapshot",
    call: (c) => c.pushSnapshot("py", "oci://r.example/py:1", { level: 9, sign: "k", username: "u", password: "p", insecureHttp: true }),
    params: { tag: "py" },
    body: { to: "oci://r.example/py:1", level: 9, sign: "k", username: "u", password: "p", insecure_http: true },
  },
  {
    route: "pullSnapshot",
    call: (c) =>
      c.pullSnapshot("o/n@v1", {
        tag: "py",
        force: true,
        keepNetwork: true,
        hub: "https://h.example/r.json",
        username: "u",
        password: "p",
        loginHost: "r",
      }),
    body: {
      from: "o/n@v1",
      tag: "py",
      force: true,
      keep_network: true,
      hub: "https://h.example/r.json",
      username: "u",
      password: "p",
      login_host: "r",
    },
  },
  {
    route: "listHub",
    call: (c) => c.listHub({ hub: "https://h.example/r.json", insecureHttp: true }),
    query: { hub: "https://h.example/r.json", insecure_http: true },
  },
];
