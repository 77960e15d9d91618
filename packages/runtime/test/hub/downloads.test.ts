import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { digestOf } from "../../src/util/digest.ts";
import { downloadBlob, sweepDownloads } from "../../src/oci/blob-download.ts";
import type { BlobSource } from "../../src/oci/blob-download.ts";
import { tempDir } from "../image/helpers/temp-home.ts";

test("partial files of interrupted downloads are swept, those of running ones are not", async (t) => {
  const dir = await tempDir(t);
  const cache = join(dir, "cache");
  assert.deepEqual(await sweepDownloads(cache, { dryRun: false }), []);
  await mkdir(cache);
  const left = [`${"a".repeat(64)}.999999999-1-x.partial`, "b".repeat(64)];
  for (const name of [...left, "not ours"]) await writeFile(join(cache, name), "left");

  const data = randomBytes(2000);
  const goOn = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<void>();
  const body = async function* (): AsyncGenerator<Uint8Array> {
    yield data.subarray(0, 1000);
    await goOn.promise;
    yield data.subarray(1000);
  };
  const source: BlobSource = {
    open: async () => ({ response: new Response(ReadableStream.from(body())), at: 0 }),
    pause: async () => assert.fail("it did not break off"),
    failure: () => assert.fail("it did not fail"),
  };
  const onBytes = (bytes: number): void => {
    if (bytes > 0) begun.resolve();
  };
  const download = downloadBlob(cache, source, { digest: digestOf(data), size: data.length }, join(dir, "out"), { onBytes });
  await begun.promise;
  for (const dryRun of [true, false])
    assert.deepEqual((await sweepDownloads(cache, { dryRun })).map(({ name }) => name).toSorted(), left.toSorted());
  assert.equal((await readdir(cache)).length, 2, "running downloads and foreign files");
  goOn.resolve();
  await download;
  assert.deepEqual((await readdir(cache)).toSorted(), [digestOf(data).slice("sha256:".length), "not ours"].toSorted());
});
