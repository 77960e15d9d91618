// An image with common network clients, which the default test image lacks.

import { buildImage, type Home } from "@forkd/runtime";
import { shareImage } from "./shared-stores.ts";

export const CLIENTS_IMAGE = "test-net-clients";
const PACKAGES = ["python3", "python3-pip", "git", "curl"];

/** Fast when the image exists */
export async function ensureClientsImage(home: Home): Promise<void> {
  await shareImage(home, CLIENTS_IMAGE, async (store) => buildImage(store, { name: CLIENTS_IMAGE, packages: PACKAGES }));
}
