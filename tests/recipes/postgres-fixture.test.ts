// The recipe postgres-fixture: twenty concurrent tests, each with its own database VM, through npm's pg.
// Builds images: the image of a recipe is part of what is tested.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, it } from "node:test";
import { Sandbox } from "forkd";
import { Client } from "pg";
import { connect } from "../../recipes/postgres-fixture/connect.ts";
import { TestDaemon } from "../helpers/daemon.ts";
import { buildRecipe } from "../helpers/recipe.ts";

const FORKD = resolve(import.meta.dirname, "..", "..", "forkd");
const TESTS = 20;
const SEED = { customers: 200, orders: 1000 };

describe("recipe postgres-fixture", () => {
  let daemon: TestDaemon;
  let tag: string;

  before(async () => {
    daemon = await TestDaemon.start();
    tag = await buildRecipe(daemon, "postgres-fixture", {
      set: { customers: String(SEED.customers), orders: String(SEED.orders) },
      test: true,
    });
  });

  after(async () => daemon[Symbol.asyncDispose]());

  /** Runs a test as an application would: forks a VM, connects a client and removes both at the end */
  async function withDatabase(use: (client: Client, sandbox: Sandbox) => Promise<void>): Promise<void> {
    await using sandbox = await Sandbox.create(tag, { controller: daemon.controller });
    const client = await connect(sandbox);
    try {
      await use(client, sandbox);
    } finally {
      await client.end();
    }
  }

  describe("twenty tests at once", { concurrency: TESTS }, () => {
    for (let own = 1; own <= TESTS; own++) {
      it(`number ${own} sees the seed and its own changes only`, async () => {
        await withDatabase(async (client) => {
          assert.deepEqual(await contents(client), { ...SEED, changed: [] });
          await client.query("begin");
          await client.query("update customers set name = $1 where id <= $2", [`changed by ${own}`, own]);
          await client.query("delete from orders where customer = $1", [own]);
          await client.query("commit");
          await client.query(`create table only_in_${own} ()`);

          const left = SEED.orders - SEED.orders / SEED.customers;
          assert.deepEqual(await contents(client), { customers: SEED.customers, orders: left, changed: [`changed by ${own}: ${own}`] });
          const { rows } = await client.query<{ name: string }>("select tablename as name from pg_tables where tablename like 'only_in_%'");
          assert.deepEqual(rows, [{ name: `only_in_${own}` }]);
        });
      });
    }
  });

  it("has the unchanged seed in the next fork", async () => {
    await withDatabase(async (client) => assert.deepEqual(await contents(client), { ...SEED, changed: [] }));
  });

  it("has the changes of a sandbox in its forks only", async () => {
    await withDatabase(async (client, sandbox) => {
      await client.query("delete from orders");
      const [child] = await sandbox.fork(1);
      assert.ok(child);
      await using fork = child;
      const inFork = await connect(fork);
      await inFork.query("delete from customers");
      assert.deepEqual(await contents(inFork), { customers: 0, orders: 0, changed: [] });
      await inFork.end();
      assert.deepEqual(await contents(client), { customers: SEED.customers, orders: 0, changed: [] });
    });
  });

  it("accepts any client through forkd port", async () => {
    await using sandbox = await Sandbox.create(tag, { controller: daemon.controller });
    const forward = spawn(FORKD, ["port", sandbox.id, "0:5432"], {
      env: { ...daemon.env, FORKD_NO_AUTOSTART: "1" },
      stdio: ["ignore", "pipe", "inherit"],
    });
    const ended = once(forward, "exit");
    try {
      const [line] = (await once(createInterface(forward.stdout), "line")) as [string];
      const port = /^127\.0\.0\.1:(\d+)/.exec(line)?.[1] ?? assert.fail(line);
      const client = new Client(`postgres://app@127.0.0.1:${port}/app`);
      await client.connect();
      assert.deepEqual(await contents(client), { ...SEED, changed: [] });
      await client.end();
    } finally {
      forward.kill("SIGINT");
      await ended;
    }
  });
});

/** Row counts, and the customers that were changed */
async function contents(client: Client): Promise<{ customers: number; orders: number; changed: string[] }> {
  const { rows } = await client.query<{ customers: number; orders: number; changed: string[] }>(`
    select (select count(*)::int from customers) as customers,
           (select count(*)::int from orders) as orders,
           (select coalesce(array_agg(format('%s: %s', name, n) order by name), '{}') from
             (select name, count(*) as n from customers where name like 'changed%' group by name) as c) as changed`);
  return rows[0] ?? assert.fail("no answer");
}
