// Facts of a sandbox, and the certificate of its fork.

import { bytes, duration, mib, ms, time } from "../format.ts";
import { findSandbox, usage } from "../live.ts";
import { Card, Command, Facts } from "../parts.tsx";
import { commandLine } from "../format.ts";
import { isCluster } from "../session.ts";
import type { JSX } from "preact";
import type { SandboxInfo } from "forkd";

export function Overview({ sandbox }: { sandbox: SandboxInfo }): JSX.Element {
  const used = usage.value.get(sandbox.id);
  const now = Date.now() / 1000;
  const { certificate } = sandbox;
  const total = sandbox.memory_mib * 1024 * 1024;
  const pairs = Object.entries(sandbox.metadata);
  return (
    <div class="cards">
      <Card title="Machine">
        <Facts
          facts={[
            ...(isCluster() ? [["Node", findSandbox(sandbox.id)?.sandbox.node ?? "–"] as const] : []),
            ["Own memory", used ? `${bytes(used.privateBytes)} of ${mib(sandbox.memory_mib)}` : mib(sandbox.memory_mib)],
            ["Shared or unused", used ? bytes(Math.max(0, total - used.privateBytes)) : "–"],
            ["CPU", `${sandbox.vcpus}${used?.cpu === undefined ? "" : `, ${Math.round(used.cpu)} % of one in use`}`],
            ["Disk", sandbox.disk_mib === null ? "in memory" : mib(sandbox.disk_mib)],
            ["Interpreters", sandbox.kernels.join(", ") || "none"],
            ["Isolation", sandbox.isolation === "kvm" ? "KVM" : "emulated: not a security boundary"],
            ["Confinement", sandbox.confinement],
            ["Network", sandbox.network.mode],
          ]}
        />
      </Card>
      <Card title="Life">
        <Facts
          facts={[
            ["Forked", `${time(sandbox.created_at_unix)}, ${duration(now - sandbox.created_at_unix)} ago`],
            ["Fork took", `${ms(sandbox.fork_ms)}${sandbox.started_by === "clone" ? ", as a clone of a waiting machine" : ""}`],
            ["By", sandbox.created_by],
            ["Last used", `${duration(now - sandbox.last_active_unix)} ago`],
            ["Ends", sandbox.expires_at_unix === null ? "when it is ended" : time(sandbox.expires_at_unix)],
            ["Idle time-out", sandbox.idle_timeout_secs === null ? "none" : duration(sandbox.idle_timeout_secs)],
            ["Branches taken", String(sandbox.branch_count)],
            ["Metadata", pairs.length === 0 ? "none" : pairs.map(([key, value]) => `${key}=${value}`).join(", ")],
            ...(sandbox.reason === null ? [] : [["Reason", sandbox.reason] as const]),
          ]}
        />
      </Card>
      <Card title="Certificate of the fork">
        <p class="dim">What was done and checked so that this fork is a machine of its own.</p>
        <Facts
          facts={[
            ["Clock", `at most ${ms(certificate.clock_skew_ms)} from the host's`],
            ["Randomness", certificate.guest_rng],
            [
              "Interpreters",
              Object.entries(certificate.kernels)
                .map(([name, { state }]) => `${name} ${state}`)
                .join(", ") || "none",
            ],
            ["Not reseeded", certificate.not_reseeded.join(", ") || "nothing"],
            [
              "Ran before that",
              certificate.ran_before_ms === null
                ? "not known"
                : certificate.ran_before_ms === 0
                  ? "nothing: processes were frozen"
                  : `at most ${ms(certificate.ran_before_ms)}`,
            ],
            ["Host name", certificate.identity.hostname],
            ["Machine id", <code key="id">{certificate.identity.machine_id}</code>],
            ["Boot id", <code key="boot">{certificate.identity.boot_id}</code>],
            ["Disk", certificate.disk.replace("-", " ")],
            ["Memory", certificate.memory.replaceAll("-", " ")],
          ]}
        />
      </Card>
      <Card title="On the command line">
        <Command line={commandLine("sh", sandbox.name ?? sandbox.id)} />
        <Command line={commandLine("exec", sandbox.name ?? sandbox.id, "--", "uname", "-a")} />
        <Command line={commandLine("inspect", sandbox.name ?? sandbox.id)} />
      </Card>
    </div>
  );
}
