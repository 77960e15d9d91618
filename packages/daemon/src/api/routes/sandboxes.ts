// Routes of running sandboxes.

import * as z from "zod";
import { name } from "../common.ts";
import * as exec from "../exec.ts";
import * as network from "../network.ts";
import * as sandbox from "../sandbox.ts";
import { branchRequest, forkedSandboxes, snapshotInfo } from "../snapshot.ts";
import type { Route } from "../route.ts";

const byId = z.strictObject({ id: name.meta({ description: "Id or name of a sandbox" }) });

export const sandboxRoutes = {
  listSandboxes: {
    method: "GET",
    path: "/v1/sandboxes",
    scope: "read",
    summary: "Sandboxes",
    query: sandbox.listSandboxes,
    responses: { 200: z.array(sandbox.sandboxInfo) },
  },
  createSandboxes: {
    method: "POST",
    path: "/v1/sandboxes",
    scope: "exec",
    summary: "Forks a snapshot",
    body: sandbox.createSandboxes,
    responses: { 201: z.array(sandbox.sandboxInfo), 207: sandbox.forkOutcomes },
  },
  deleteSandboxes: {
    method: "DELETE",
    path: "/v1/sandboxes",
    scope: "exec",
    summary: "Ends all sandboxes, or all of one snapshot; answers with their ids when they are gone",
    query: sandbox.deleteSandboxes,
    responses: { 200: z.array(z.string()) },
  },
  getSandbox: {
    method: "GET",
    path: "/v1/sandboxes/:id",
    scope: "read",
    summary: "One sandbox",
    params: byId,
    responses: { 200: sandbox.sandboxInfo },
  },
  updateSandbox: {
    method: "PATCH",
    path: "/v1/sandboxes/:id",
    scope: "exec",
    summary: "Renames it, replaces its metadata, extends its life",
    params: byId,
    body: sandbox.updateSandbox,
    responses: { 200: sandbox.sandboxInfo },
  },
  deleteSandbox: {
    method: "DELETE",
    path: "/v1/sandboxes/:id",
    scope: "exec",
    summary: "Ends a sandbox; answers when process, sockets and files are gone",
    params: byId,
    responses: { 204: "empty" },
  },
  pingSandbox: {
    method: "POST",
    path: "/v1/sandboxes/:id/ping",
    scope: "exec",
    summary: "One round trip to the agent",
    params: byId,
    responses: { 200: exec.pingResult },
  },
  execCommand: {
    method: "POST",
    path: "/v1/sandboxes/:id/exec",
    scope: "exec",
    summary: "Runs a program to its end",
    params: byId,
    body: exec.execRequest,
    responses: { 200: exec.execResult },
  },
  evalCode: {
    method: "POST",
    path: "/v1/sandboxes/:id/eval",
    scope: "exec",
    summary: "Runs code in a warm interpreter, which keeps its state",
    params: byId,
    body: exec.evalRequest,
    responses: { 200: exec.evalResult },
  },
  branchSandbox: {
    method: "POST",
    path: "/v1/sandboxes/:id/branch",
    scope: "exec",
    summary: "Takes a snapshot of a running sandbox, which goes on",
    params: byId,
    body: branchRequest,
    responses: { 201: snapshotInfo, 202: snapshotInfo },
  },
  forkSandbox: {
    method: "POST",
    path: "/v1/sandboxes/:id/fork",
    scope: "exec",
    summary: "Branches a running sandbox and forks the branch, in one",
    params: byId,
    body: sandbox.forkSandbox,
    responses: { 201: forkedSandboxes },
  },
  pauseSandbox: {
    method: "POST",
    path: "/v1/sandboxes/:id/pause",
    scope: "exec",
    summary: "Stops its CPUs; its memory stays",
    params: byId,
    responses: { 200: sandbox.sandboxInfo },
  },
  resumeSandbox: {
    method: "POST",
    path: "/v1/sandboxes/:id/resume",
    scope: "exec",
    summary: "Lets it go on, with the clock set",
    params: byId,
    responses: { 200: sandbox.sandboxInfo },
  },
  getSandboxStats: {
    method: "GET",
    path: "/v1/sandboxes/:id/stats",
    scope: "read",
    summary: "What it uses",
    params: byId,
    responses: { 200: sandbox.sandboxStats },
  },
  getNetwork: {
    method: "GET",
    path: "/v1/sandboxes/:id/network",
    scope: "read",
    summary: "What it may connect to, and its last connections",
    params: byId,
    responses: { 200: network.networkInfo },
  },
  setNetwork: {
    method: "PUT",
    path: "/v1/sandboxes/:id/network",
    scope: "exec",
    summary: "Changes what it may connect to, at once; what is no longer allowed is cut off",
    params: byId,
    body: network.setNetwork,
    responses: { 200: network.networkInfo },
  },
  getSandboxLogs: {
    method: "GET",
    path: "/v1/sandboxes/:id/logs",
    scope: "read",
    summary: "What the guest's console, the agent or the VMM wrote",
    params: byId,
    query: sandbox.logsQuery,
    responses: { 200: "text" },
  },
} as const satisfies Record<string, Route>;
