// Comparison of QEMU versions. Patch releases change neither the device state nor the options.

/** Negative, zero or positive, by major and minor version */
export function compareVersions(a: string, b: string): number {
  const [aMajor = 0, aMinor = 0] = a.split(".").map(Number);
  const [bMajor = 0, bMinor = 0] = b.split(".").map(Number);
  return aMajor - bMajor || aMinor - bMinor;
}
