// A server's refusal: the status, and the error code of the OCI distribution protocol, if any.

const MAX_BYTES = 16 * 1024;

export async function refusalOf(response: Response): Promise<string> {
  const code = /"code"\s*:\s*"([A-Z_]{1,40})"/.exec(await beginning(response))?.[1];
  return code === undefined ? String(response.status) : `${response.status} ${code}`;
}

/** Reads a bounded part of the answer */
async function beginning(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    chunks.push(chunk);
    size += chunk.length;
    if (size >= MAX_BYTES) break;
  }
  return Buffer.concat(chunks).toString("utf8");
}
