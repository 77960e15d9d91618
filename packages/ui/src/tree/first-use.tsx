// A fresh daemon: one click makes an image if there is none, a warm snapshot, and the first sandbox.

import { useState } from "preact/hooks";
import { explain, forkd } from "../api.ts";
import { Command, Problem } from "../parts.tsx";
import { go, sandboxPath } from "../router.ts";
import { may } from "../session.ts";
import type { JSX } from "preact";
import type { Progress } from "forkd";

/** As `forkd quickstart` */
const TAG = "quickstart";
const IMAGE = "python-numpy";
const PACKAGES = ["python3", "python3-numpy"];
const WARM_UP = { kernels: [{ language: "python" as const, code: "import numpy" }] };

export function FirstUse(): JSX.Element {
  const [step, setStep] = useState<string | null>(null);
  const [error, setError] = useState<string | null>(null);
  const begin = async (): Promise<void> => {
    setError(null);
    try {
      const id = await makeFirst(setStep);
      go(sandboxPath(id, "terminal"));
    } catch (thrown) {
      setError(explain(thrown));
      setStep(null);
    }
  };
  return (
    <main class="page first-use">
      <svg class="hero" viewBox="0 0 220 120" aria-hidden="true">
        <path class="rail-0" d="M20 20V60C20 85 60 85 100 85H200" />
        <path class="rail-1" d="M20 50C20 60 60 55 100 55H200" />
        <path class="rail-2" d="M20 30C20 30 60 25 100 25H200" />
        <rect class="dot rail-0" x="14" y="12" width="12" height="12" rx="3" />
        <circle class="dot rail-2 is-running" cx="200" cy="25" r="6" />
        <circle class="dot rail-1 is-running" cx="200" cy="55" r="6" />
        <circle class="dot rail-0 is-running" cx="200" cy="85" r="6" />
      </svg>
      <h1>fork() for virtual machines</h1>
      <p>
        A <b>snapshot</b> is a warm machine, frozen. Forking it gives you <b>sandboxes</b>: running machines that share its memory and are
        otherwise independent. A running sandbox can be <b>branched</b>, and its branch forked again.
      </p>
      {may("admin") ? (
        <>
          <p>Make the snapshot “{TAG}” with Python and numpy, and fork it once:</p>
          <button type="button" class="primary large" disabled={step !== null} onClick={() => void begin()}>
            {step ?? "Make the first sandbox"}
          </button>
          {step !== null && <progress aria-label="The first sandbox is being made" />}
          <Problem text={error} />
        </>
      ) : (
        <p class="problem">This session may look, but not make snapshots: that takes the scope admin.</p>
      )}
      <p class="dim">The same on the command line:</p>
      <Command line="forkd quickstart -n 1" />
    </main>
  );
}

async function makeFirst(say: (step: string) => void): Promise<string> {
  const onProgress = ({ step, done, total }: Progress): void => {
    const share = done !== undefined && total ? ` ${Math.round((done / total) * 100)} %` : "";
    say(`${step}${share}…`);
  };
  say("Looking for an image…");
  const images = await forkd.listImages();
  const names = images.flatMap((image) => image.names);
  if (!names.includes(IMAGE)) {
    say("Building the image…");
    await forkd.createImage({ name: IMAGE, packages: PACKAGES }, { onProgress, timeoutMs: 0 });
  }
  say("Warming a machine…");
  await forkd.createSnapshot(TAG, { image: IMAGE, warmUp: WARM_UP, onProgress });
  say("Forking…");
  const [made] = await forkd.spawnSandboxes(TAG, { name: "first" });
  return made?.id ?? "";
}
