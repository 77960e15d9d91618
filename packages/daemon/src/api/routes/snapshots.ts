// Routes of what sandboxes are made from: images and snapshots.

import * as z from "zod";
import { name } from "../common.ts";
import * as image from "../image.ts";
import * as snapshot from "../snapshot.ts";
import type { Route } from "../route.ts";

const byTag = z.strictObject({ tag: name });
const byImage = z.strictObject({ name: z.string().min(1).max(128).meta({ description: "Name or id of an image" }) });

export const snapshotRoutes = {
  listImages: { method: "GET", path: "/v1/images", scope: "read", summary: "Images", responses: { 200: z.array(image.imageInfo) } },
  createImage: {
    method: "POST",
    path: "/v1/images",
    scope: "admin",
    summary: "Builds an image from packages, pulls one from a registry, or imports an archive",
    body: image.createImage,
    responses: { 201: image.createdImage },
    progress: true,
  },
  getImage: {
    method: "GET",
    path: "/v1/images/:name",
    scope: "read",
    summary: "One image",
    params: byImage,
    responses: { 200: image.imageInfo },
  },
  deleteImage: {
    method: "DELETE",
    path: "/v1/images/:name",
    scope: "admin",
    summary: "Removes a name of an image, and the data with the last one",
    params: byImage,
    responses: { 204: "empty" },
  },

  listSnapshots: {
    method: "GET",
    path: "/v1/snapshots",
    scope: "read",
    summary: "Snapshots",
    query: snapshot.listSnapshots,
    responses: { 200: z.array(snapshot.snapshotInfo) },
  },
  createSnapshot: {
    method: "POST",
    path: "/v1/snapshots",
    scope: "admin",
    summary: "Boots an image, warms it and freezes it",
    body: snapshot.createSnapshot,
    responses: { 201: snapshot.snapshotInfo },
    progress: true,
    statusOf: { EXISTS: 400 },
  },
  getSnapshot: {
    method: "GET",
    path: "/v1/snapshots/:tag",
    scope: "read",
    summary: "One snapshot",
    params: byTag,
    responses: { 200: snapshot.snapshotInfo },
  },
  updateSnapshot: {
    method: "PATCH",
    path: "/v1/snapshots/:tag",
    scope: "admin",
    summary: "Renames it, replaces its metadata, sets how many VMMs wait for it",
    params: byTag,
    body: snapshot.updateSnapshot,
    responses: { 200: snapshot.snapshotInfo },
  },
  deleteSnapshot: {
    method: "DELETE",
    path: "/v1/snapshots/:tag",
    scope: "admin",
    summary: "Removes a snapshot; 409 names what needs it",
    params: byTag,
    query: snapshot.deleteSnapshot,
    responses: { 204: "empty" },
  },
  getSnapshotDetails: {
    method: "GET",
    path: "/v1/snapshots/:tag/info",
    scope: "read",
    summary: "Sizes and lineage of a snapshot",
    params: byTag,
    responses: { 200: snapshot.snapshotDetails },
  },
  compactSnapshot: {
    method: "POST",
    path: "/v1/snapshots/:tag/compact",
    scope: "admin",
    summary: "A copy of a snapshot that builds on no other",
    params: byTag,
    body: snapshot.compactSnapshot,
    responses: { 200: snapshot.snapshotInfo },
  },
} as const satisfies Record<string, Route>;
