// Everything that depends on the processor, in one table. x86_64 is tested. aarch64 is filled from the documentation of Linux, Debian
// and the engine, and was never run: doctor refuses it, and the agent and the warden are built for x86_64 only.

export type Platform = {
  /** as `uname -m` and packs call it */
  name: "x86_64" | "aarch64";
  /** as Node calls it */
  node: NodeJS.Architecture;
  /** as Debian packages and OCI images call it */
  packages: "amd64" | "arm64";
  isTested: boolean;
  /** AUDIT_ARCH_* of the Linux headers: the warden's filter refuses system calls of any other (`warden/src/filter.rs`) */
  seccomp: number;
  machine: {
    /** the oldest machine version that every supported release of the engine has, so that snapshots can move between releases */
    type: string;
    cpu: string;
    /** options of this machine type: for all machines, for the accelerator, and for machines with few devices */
    options: { all: readonly string[]; kvm: readonly string[]; tcg: readonly string[]; few: readonly string[] };
    /** the serial port on the character device `console` */
    serial: readonly string[];
    /** CPU options that disable nested virtualisation: it is a large part of the host kernel that a guest could attack */
    withoutNesting: readonly string[];
    /** device that notifies the guest kernel of a fork */
    generation: readonly string[];
  };
  /** CPU models to choose from with KVM, newest first; none: only the host's own model */
  models: { intel: readonly string[]; amd: readonly string[] };
  kernel: {
    console: string;
    /** prints kernel messages from before the console driver starts */
    early: string;
    /** arguments of the guest kernel */
    common: readonly string[];
    kvm: readonly string[];
    tcg: readonly string[];
    /** line that the guest kernel prints with the registers when its own code faults */
    fault: RegExp;
    /** file name of a kernel that is not an ELF file */
    image: "bzImage" | "Image";
  };
  /** flag in /proc/cpuinfo that KVM needs, and the kernel module that uses it */
  kvmModules: Readonly<Record<string, string>>;
};

/** Without TSX, which microcode updates remove from processors, and without AMX, which needs an extra permission for the VMM */
const INTEL = [
  "Icelake-Server-v6",
  "Icelake-Server-v4",
  "Cooperlake-v2",
  "Cascadelake-Server-v5",
  "Cascadelake-Server-v4",
  "Skylake-Server-v5",
  "Skylake-Server-v4",
  "Skylake-Client-v4",
  "Skylake-Client-v3",
  "Broadwell-v4",
  "Broadwell-v2",
  "Haswell-v4",
  "Haswell-v2",
  "IvyBridge-v2",
  "IvyBridge-v1",
  "SandyBridge-v2",
  "SandyBridge-v1",
  "Westmere-v2",
  "Westmere-v1",
  "Nehalem-v2",
  "Nehalem-v1",
];
const AMD = ["EPYC-Genoa-v1", "EPYC-Milan-v2", "EPYC-Milan-v1", "EPYC-Rome-v4", "EPYC-Rome-v2", "EPYC-v4", "EPYC-v3", "EPYC-v2", "EPYC-v1"];

/**
 * Clock on x86_64: under emulation the guest's TSC is the host's. Its frequency differs between hosts, and the guest kernel's first
 * calibration is wrong by any factor when the host is busy. The HPET runs on the VMM's own clock at a frequency that it states.
 * With KVM, kvm-clock gets its frequency from the host.
 *
 * no_timer_check: the guest kernel counts timer interrupts at boot and panics ("IO-APIC + timer doesn't work") when none arrive,
 * which happens when the host is too busy to run the VMM at that moment.
 */
const X86_64: Platform = {
  name: "x86_64",
  node: "x64",
  packages: "amd64",
  isTested: true,
  seccomp: 0xc000_003e,
  machine: {
    type: "pc-q35-7.2",
    cpu: "Nehalem-v1",
    options: {
      all: ["smm=off", "vmport=off", "graphics=off"],
      // clock of the guest, except with KVM; device state that was saved without it can be loaded with it
      kvm: ["hpet=off"],
      tcg: ["hpet=on"],
      // No guest uses them; each would be more VMM code that a guest can reach.
      few: ["sata=off", "smbus=off", "i8042=off"],
    },
    serial: ["-device", "isa-serial,chardev=console"],
    withoutNesting: ["vmx=off", "svm=off"],
    generation: ["-device", "vmgenid,guid=auto"],
  },
  models: { intel: INTEL, amd: AMD },
  kernel: {
    console: "ttyS0",
    early: "earlyprintk=serial,ttyS0",
    common: ["random.trust_cpu=on", "no_timer_check"],
    kvm: ["clocksource=kvm-clock"],
    tcg: ["tsc=unstable", "clocksource=hpet"],
    fault: /\bRIP: 0010:/,
    image: "bzImage",
  },
  kvmModules: { vmx: "kvm_intel", svm: "kvm_amd" },
};

/** Not tested. The architected timer is the only clock; KVM offers only the host's CPU model, and no nesting by default */
const AARCH64: Platform = {
  name: "aarch64",
  node: "arm64",
  packages: "arm64",
  isTested: false,
  seccomp: 0xc000_00b7,
  machine: {
    type: "virt-7.2",
    cpu: "cortex-a57",
    options: { all: ["gic-version=3", "its=off"], kvm: [], tcg: [], few: [] },
    serial: ["-serial", "chardev:console"],
    withoutNesting: [],
    generation: [],
  },
  models: { intel: [], amd: [] },
  kernel: {
    console: "ttyAMA0",
    early: "earlycon",
    common: ["random.trust_cpu=on"],
    kvm: [],
    tcg: [],
    fault: /\bpc : \w+\+0x/,
    image: "Image",
  },
  kvmModules: {},
};

export const PLATFORMS: readonly Platform[] = [X86_64, AARCH64];

/** The row of this process's processor; the first row on an unknown one, which doctor refuses */
export const PLATFORM: Platform = PLATFORMS.find(({ node }) => node === process.arch) ?? X86_64;
