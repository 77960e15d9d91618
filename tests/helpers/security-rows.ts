// Rows of the tables in SECURITY.md and the tests that prove them. `make check` fails if a row differs from the
// document.

/** Rows of the table "A VMM that was broken into": attempts of tests/programs/broken-vmm.py, by name prefix */
export const BROKEN_VMM: { can: string; cannot: string; done: string[]; refused: string[] }[] = [
  {
    can: "do what it wants to its own guest, whose memory it holds",
    cannot: "see, signal or trace any other process",
    done: ["own: maps the image privately"],
    refused: [
      "sees processes",
      "signals everybody",
      "signals the victim's VMM",
      "signals the daemon",
      "opens the victim's VMM",
      "seizes the daemon",
    ],
  },
  {
    can: "read its snapshot's memory image, its root file system, its device state",
    cannot: "change them, also by a descriptor; read those of others",
    done: ["own: reads the memory image", "own: reads the root file system", "own: reads its device state"],
    refused: [
      ...["the memory image", "the root file system", "the device state"].flatMap((file) => [
        `opens ${file} for writing`,
        `appends to ${file}`,
        `changes the mode of ${file}`,
        `maps ${file} for writing`,
        `cuts ${file}`,
        `removes ${file}`,
        `links ${file}`,
      ]),
      "changes the mode of a descriptor's file",
      "reads the memory of another snapshot",
      "lists another snapshot",
    ],
  },
  {
    can: "read the programs and libraries in `/usr`",
    cannot: "read anything else: no `/etc` but the loader's cache, no `/proc`, no `/sys`, no home, no store, no tokens",
    done: ["own: reads a program"],
    refused: [
      "lists /etc",
      "reads /etc/passwd",
      "sees processes",
      "sees the host's devices",
      "lists the home",
      "lists the store",
      "reads the database",
    ],
  },
  {
    can: "write into folders of its own: device state, the console of a boot, the layer of its disk that takes the writes",
    cannot: "write anywhere else; run what it wrote; make a file longer than its disk and 256 MiB",
    done: ["own: writes its folder"],
    refused: [
      "writes in /",
      "writes in /tmp",
      "writes beside its folder",
      "runs code from its folder",
      "makes a file in memory",
      "makes an endless file",
    ],
  },
  {
    can: "talk to the daemon as its own sandbox: over the agent's channel and the control channel that it was given",
    cannot: "make a socket of any kind; reach the API, the warden, other agents, or a network",
    done: ["own: talks over its agent's channel", "own: talks over its control channel"],
    refused: [
      ...["unix", "inet", "inet6", "netlink", "packet", "vsock"].map((kind) => `makes a socket of ${kind}`),
      "makes a pair of sockets",
      "connects to the daemon",
      "connects to the warden",
      "connects to the victim's agent",
      "connects to a port of the host",
    ],
  },
  {
    can: "use `/dev/null`, `/dev/zero`, `/dev/urandom`, and `/dev/kvm` with KVM",
    cannot: "open any other device",
    done: ["own: uses /dev/null", "own: uses /dev/zero", "own: uses /dev/urandom"],
    refused: ["opens /dev/", "makes a device"],
  },
  {
    can: "make threads, and the system calls that QEMU needs: with QEMU 7.2 those of a list, with others all but dangerous ones",
    cannot:
      "start a process or another program, make a namespace, mount, gain a capability or another user; use `bpf`, `io_uring`, keys, `perf` and other rarely needed parts of the kernel",
    done: ["own: makes a thread"],
    refused: [
      "starts a process",
      "starts another program",
      "makes a user namespace",
      "mounts",
      "has capabilities",
      "can gain privileges",
      "becomes root",
      ...["bpf", "io_uring_setup", "add_key", "keyctl", "perf_event_open", "userfaultfd"].map((name) => `calls ${name}`),
    ],
  },
];

/** Rows of the table in "Threat model": the first column, the other two, and the test in tests/e2e/security.test.ts */
export const ISOLATION: { what: string; kvm: string; emulated: string; test: string }[] = [
  {
    what: "guest processor",
    kvm: "separated by hardware",
    emulated: "QEMU's translator: **not a security boundary**, as QEMU itself says",
    test: "each sandbox says what runs its processor",
  },
  {
    what: "guest memory",
    kvm: "separated by hardware",
    emulated: "same process as the translator",
    test: "guest memory is a mapping of the VMM",
  },
  { what: "devices", kvm: "emulated by QEMU, few of them", emulated: "the same", test: "a guest has few devices" },
  {
    what: "use for",
    kvm: "untrusted code, with the care any VMM needs",
    emulated: "development, CI, code you trust",
    test: "with isolation = kvm nothing emulated is started",
  },
];

/** Rows of all tables in a document, as lists of cells */
export function tableRows(markdown: string): string[][] {
  const lines = markdown.split("\n");
  return lines.flatMap((line, at) => {
    const isHead = /^\|[-|]+\|$/.test(lines[at + 1] ?? "");
    return line.startsWith("|") && !isHead && !/^\|[-|]+\|$/.test(line) ? [cellsOf(line)] : [];
  });
}

/** Differences between the tables of the document and the tested rows */
export function rowProblems(markdown: string): string[] {
  const tested = [
    ...BROKEN_VMM.map(({ can, cannot }) => [can, cannot]),
    ...ISOLATION.map(({ what, kvm, emulated }) => [what, kvm, emulated]),
  ];
  const told = tableRows(markdown).map((cells) => cells.join(" | "));
  const known = tested.map((cells) => cells.join(" | "));
  return [
    ...told.filter((row) => !known.includes(row)).map((row) => `no test in tests/helpers/security-rows.ts for the row: ${row}`),
    ...known.filter((row) => !told.includes(row)).map((row) => `tests/helpers/security-rows.ts tests a row that is not there: ${row}`),
  ];
}

function cellsOf(line: string): string[] {
  return line
    .slice(1, -1)
    .split("|")
    .map((cell) => cell.trim());
}
