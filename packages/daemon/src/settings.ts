// Settings as data: names, defaults and help texts, also used by docs/operations.md.
// No imports: `forkd up --help` loads only this file.

export type SettingText = {
  /** name in the file and the API; option and variable names derive from it */
  name: string;
  /** placeholder of the option's value in the help; absent: the option takes no value */
  value?: string;
  /** `null`: none */
  fallback: string | null;
  /** text for the help and the docs in Markdown; the help strips links and marks */
  about: string;
};

export const SETTINGS = {
  bind: { name: "bind", value: "host:port", fallback: "127.0.0.1:8889", about: "address to listen on beside the socket; `none`: no TCP" },
  tlsCert: { name: "tls_cert", value: "file", fallback: null, about: "certificate, for https; together with `tls_key`" },
  tlsKey: { name: "tls_key", value: "file", fallback: null, about: "its key" },
  insecure: { name: "insecure", fallback: "false", about: "allows plain HTTP on an address that others reach" },
  corsOrigins: {
    name: "cors_origins",
    value: "list",
    fallback: null,
    about: "origins of web pages that may ask over TCP, separated by commas; `*`: all",
  },
  allowedHosts: {
    name: "allowed_hosts",
    value: "list",
    fallback: null,
    about:
      "names beside `localhost`, `proxy_domain` and those below them under which it may be asked without TLS, separated by commas; `*`: all, see [binding](#binding-and-tls)",
  },
  proxyDomain: {
    name: "proxy_domain",
    value: "domain",
    fallback: "localhost",
    about: "every server in a sandbox has the host `PORT-ID.DOMAIN`, see [ports](ports.md); `none`: no such hosts",
  },
  shareRoots: {
    name: "share_roots",
    value: "list",
    fallback: null,
    about: "folders, separated by commas, in which a token of scope `operator` may [share](shares.md) others with guests",
  },
  tokenFile: { name: "token_file", value: "file", fallback: null, about: "file with one token of scope operator" },
  clusterKeyFile: {
    name: "cluster_key_file",
    value: "file",
    fallback: null,
    about: "file with the key of the [cluster](cluster.md): requests over TCP that a gateway signed with it need no token here",
  },
  auditLog: { name: "audit_log", value: "file", fallback: "FORKD_HOME/audit.log", about: "log of all requests; `none`: off" },
  branchConcurrency: { name: "branch_concurrency", value: "count", fallback: "4", about: "branches of a project at a time, at least 1" },
  maxSandboxes: { name: "max_sandboxes", value: "count", fallback: "1000", about: "limit of the sandboxes that live at once" },
  maxSuspended: {
    name: "max_suspended",
    value: "count",
    fallback: "1000",
    about: "limit of the suspended sandboxes; a token with a limit of its own may have ten times as many that are suspended",
  },
  maxSnapshots: { name: "max_snapshots", value: "count", fallback: "1000", about: "limit of the snapshots that one token has made" },
  maxMemoryMiB: { name: "max_memory_mib", value: "mib", fallback: null, about: "limit of the sum of guest memory" },
  maxDiskMiB: { name: "max_disk_mib", value: "mib", fallback: null, about: "limit of the sum of the disks of running sandboxes" },
  minFreeMiB: { name: "min_free_mib", value: "mib", fallback: "512", about: "memory that the host keeps free" },
  confinement: {
    name: "confinement",
    value: "policy",
    fallback: "preferred",
    about: "`required`: no VM starts where its VMM cannot be [confined](#confinement); `preferred`: it starts without",
  },
  isolation: {
    name: "isolation",
    value: "policy",
    fallback: "auto",
    about:
      "`auto`: where KVM works, no VM starts that the engine's translator would run, which is [no security boundary](#isolation); `kvm`: none starts anywhere; `any`: it starts, and says so",
  },
  accelerator: {
    name: "accelerator",
    value: "word",
    fallback: "auto",
    about:
      "`auto`: [KVM](#kvm) where a trial shows that it works, else `tcg`, the engine's translator; `kvm`, `tcg`: that one, without a trial",
  },
  hugepagesDir: {
    name: "hugepages_dir",
    value: "folder",
    fallback: "/dev/shm",
    about: "folder on a tmpfs with `huge=within_size`, for snapshots with [huge pages](#huge-pages)",
  },
  defaultImage: { name: "default_image", value: "name", fallback: "python-numpy", about: "image of snapshots that name none" },
  packTrust: {
    name: "pack_trust",
    value: "word",
    fallback: "any",
    about: "which signatures [packs](hub.md) need to be unpacked: `any`, `known` or `required`",
  },
  packCacheMiB: {
    name: "pack_cache_mib",
    value: "mib",
    fallback: "4096",
    about: "limit of the compressed data that is kept for the next pack",
  },
  drainSecs: { name: "drain_secs", value: "secs", fallback: "30", about: "how long a stop waits for requests" },
  leaveSecs: {
    name: "leave_secs",
    value: "secs",
    fallback: "0",
    about:
      "how long SIGTERM waits until gateways have [moved](cluster.md#sigterm) the running sandboxes to other nodes; what is left is suspended, and runs again with the next daemon. 0: nothing moves, and the VMs continue without the daemon",
  },
  exitWhenIdleSecs: {
    name: "exit_when_idle_secs",
    value: "secs",
    fallback: "0",
    about: "ends after so long without sandboxes, pools and requests; 0: never",
  },
  logLevel: {
    name: "log_level",
    value: "level",
    fallback: "info",
    about: "`trace`, `debug`, `info`, `warn`, `error`, `fatal`, `silent`",
  },
  parallelism: { name: "parallelism", value: "count", fallback: "cores + 1", about: "VMs that start at a time" },
  hubUrl: {
    name: "hub_url",
    value: "url",
    fallback: null,
    about: "the [index](hub.md#a-hub-names-for-snapshots) in which names of snapshots are looked up; without a login or a query",
  },
  dnsServers: {
    name: "dns_servers",
    value: "list",
    fallback: "those of the host",
    about: "name servers for sandboxes: `IP` or `IP:PORT`, separated by commas, see [network](network.md)",
  },
} as const satisfies Record<string, SettingText>;

/** Options of deeplethe/forkd that have no effect */
export const IGNORED_OPTIONS = ["state", "snapshot-root", "prewarm-scratch-dir"] as const;

export function optionOf(name: string): string {
  return name.replaceAll("_", "-");
}

export function variableOf(name: string): string {
  return `FORKD_${name.toUpperCase()}`;
}
