// Port settings of E2B's API, stored in reserved metadata keys of a sandbox and applied by the proxy.

const PREFIX = "e2b:";
/** The sandbox's ports need no token: its id is enough */
export const PUBLIC_KEY = `${PREFIX}public`;
/** Host header for the guest's servers, with a placeholder for the port: some servers refuse foreign hosts */
export const HOST_KEY = `${PREFIX}host`;

const PORT = "${PORT}";
const NAME = "[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?";
const HOST = new RegExp(`^(?:${NAME}|\\[[0-9a-f:.]{2,45}\\])(?::\\d{1,5})?$`, "i");

export function isReserved(key: string): boolean {
  return key.startsWith(PREFIX);
}

export function isHostMask(text: string): boolean {
  return HOST.test(text.replaceAll(PORT, "65535"));
}

/** undefined: the client's Host is kept */
export function maskedHost(metadata: Record<string, string>, port: number | string): string | undefined {
  const mask = metadata[HOST_KEY];
  // other APIs can set metadata too: validate again before it becomes a header
  return mask !== undefined && isHostMask(mask) ? mask.replaceAll(PORT, String(port)) : undefined;
}
