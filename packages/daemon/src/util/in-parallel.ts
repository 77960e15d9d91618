// The same work for many things, some at a time; the first failure ends the rest and is what the caller gets.

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
