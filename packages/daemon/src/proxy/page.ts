// HTML error page for browsers.

import type { IncomingMessage } from "node:http";
import type { Problem } from "../api/common.ts";

/** Reload interval of the page: the server may still be starting */
const RETRY_SECS = 3;

export function wantsPage({ method, headers }: Pick<IncomingMessage, "method" | "headers">): boolean {
  return (method === "GET" || method === "HEAD") && headers.accept?.includes("text/html") === true;
}

export const PAGE_HEADERS = {
  "content-type": "text/html; charset=utf-8",
  "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
  "referrer-policy": "no-referrer",
};

export function pageOf(problem: Problem, title: string = problem.code): string {
  const retry = problem.code === "PORT_CLOSED" ? `<meta http-equiv="refresh" content="${RETRY_SECS}">` : "";
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">${retry}<title>${title}</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:15vh auto;padding:0 1rem}small{color:#777}</style></head>
<body><h1>${escaped(problem.error)}</h1><p>${escaped(problem.hint)}</p><p><small>${problem.code} · ${escaped(problem.request_id)}</small></p></body></html>
`;
}

function escaped(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
