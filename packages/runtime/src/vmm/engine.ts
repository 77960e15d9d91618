// The engine in use.

import type { EngineDriver } from "./driver.ts";
import { qemuDriver } from "./qemu/driver.ts";

export const ENGINE: EngineDriver = qemuDriver;
