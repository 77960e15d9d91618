// Start-up code of the daemon on an existing store, with a runtime that finds no VMs.

import { join } from "node:path";
import { ImageStore, Runtime } from "@forkd/runtime";
import { sweepStaging } from "@forkd/runtime/host/staging";
import { adoptAll } from "../../packages/daemon/src/service/adoption.ts";
import { Lineage } from "../../packages/daemon/src/service/lineage.ts";
import { Quotas } from "../../packages/daemon/src/service/quotas.ts";
import { Registry } from "../../packages/daemon/src/service/registry.ts";
import { SnapshotLocks } from "@forkd/runtime/snapshot/locks";
import { SnapshotStore } from "@forkd/runtime/snapshot/store";
import { Db } from "../../packages/daemon/src/store/db.ts";
import { Projects } from "../../packages/daemon/src/store/projects.ts";
import { EventLog } from "../../packages/daemon/src/store/events.ts";
import { tablesOf } from "../../packages/daemon/src/store/tables.ts";

import type { Home } from "@forkd/runtime";
import type { Core } from "../../packages/daemon/src/service/core.ts";

export type Restarted = Disposable & { core: Core; registry: Registry; lineage: Lineage; snapshots: SnapshotStore; images: ImageStore };

/** Opens a store as a daemon does, without changes. `more`: a runtime, or overrides for the one without VMs */
export function openStore(home: Home, more: object = {}): Restarted {
  const db = new Db(join(home.root, "state.db"));
  const [tables, events] = [tablesOf(db), new EventLog(db)];
  const runtime = more instanceof Runtime ? more : { ...withoutVms(home), ...more };
  const { snapshots, images } = runtime;
  const silent = (): void => undefined;
  const quotas = new Quotas(db, new Projects(db));
  const core = { home, db, tables, events, runtime, quotas, log: { info: silent, warn: silent, error: silent } } as unknown as Core;
  const registry = new Registry({ db, tables, events, quotas });
  const lineage = new Lineage(core, registry);
  let isOpen = true;
  const close = (): void => {
    if (isOpen) db.close();
    isOpen = false;
  };
  return { core, registry, lineage, snapshots, images, [Symbol.dispose]: close };
}

function withoutVms(home: Home): { snapshots: SnapshotStore; images: ImageStore } {
  const snapshots = new SnapshotStore(home);
  const rest = {
    home,
    removeSnapshot: async (name: string) => snapshots.remove(name),
    pool: { drop: async () => undefined },
    locks: new SnapshotLocks(),
    adopt: async () => "its process is gone",
    endOthers: async () => 0,
  };
  return { snapshots, images: new ImageStore(home), ...rest };
}

/**
 * Opens a store and recovers it: removes incomplete objects, marks sandboxes as lost and collects garbage. `isDurable:
 * false` is for a copy that is only inspected
 */
export async function restarted(home: Home, { isDurable = true } = {}): Promise<Restarted> {
  const store = openStore(home);
  try {
    if (!isDurable) store.core.db.exec("PRAGMA synchronous = OFF");
    await sweepStaging(home);
    await store.snapshots.sweep();
    await adoptAll(store.core, store.registry);
    await store.lineage.collect();
    return store;
  } catch (error) {
    store[Symbol.dispose]();
    throw error;
  }
}
