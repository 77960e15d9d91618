// Which methods a path takes, for those who used another one.

import { routes } from "../api/routes.ts";
import type { Route } from "../api/route.ts";

const KNOWN = Object.values<Route>(routes)
  // what takes every method was found
  .filter(({ method }) => method !== "ALL")
  .map(({ path, method }) => ({ pattern: patternOf(path), methods: method === "GET" ? ["GET", "HEAD"] : [method] }));

export function allowedMethods(path: string): string[] {
  return [...new Set(KNOWN.filter(({ pattern }) => pattern.test(path)).flatMap(({ methods }) => methods))];
}

export function patternOf(path: string): RegExp {
  return new RegExp(`^${path.replaceAll(".", "\\.").replaceAll(/:[a-z]+/g, "[^/]+")}/?$`);
}
