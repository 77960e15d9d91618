// Runs one function over many items with bounded concurrency. The first failure cancels the rest and is rethrown.

export async function inParallel<T>(
  items: readonly T[],
  limit: number,
  work: (item: T, signal: AbortSignal) => Promise<void>,
  outer?: AbortSignal,
): Promise<void> {
  const failed = new AbortController();
  const signal = outer ? AbortSignal.any([outer, failed.signal]) : failed.signal;
  const queue = [...items];
  let failure: Error | undefined;
  const worker = async (): Promise<void> => {
    while (queue.length > 0 && !signal.aborted) {
      try {
        await work(queue.shift() as T, signal);
      } catch (error) {
        failure ??= error instanceof Error ? error : new Error(String(error));
        failed.abort();
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, worker));
  if (failure !== undefined) throw failure;
  outer?.throwIfAborted();
}
