// Folder listings that are sent in parts, cached for the next part.

const KEEP_MS = 10_000;
/** For all shares together: guests must not fill the daemon's memory */
const MOST_NAMES = 400_000;
/** Overhead of a list, counted in names */
const LIST_COST = 100;

type List = { owner: object; path: string; names: Buffer[]; timer: NodeJS.Timeout };

/** in the order of insertion */
const lists = new Set<List>();

export function keepList(owner: object, path: string, names: Buffer[]): void {
  const list: List = { owner, path, names, timer: setTimeout(() => drop(list), KEEP_MS).unref() };
  lists.add(list);
  let count = 0;
  for (const one of [...lists].toReversed()) {
    count += LIST_COST + one.names.length;
    if (count > MOST_NAMES) drop(one);
  }
}

/** Removes and returns a cached list */
export function takeList(owner: object, path: string): Buffer[] | undefined {
  for (const list of lists) {
    if (list.owner !== owner || list.path !== path) continue;
    drop(list);
    return list.names;
  }
  return undefined;
}

export function dropLists(owner: object): void {
  for (const list of lists) if (list.owner === owner) drop(list);
}

function drop(list: List): void {
  clearTimeout(list.timer);
  lists.delete(list);
}
