// Images: root file systems, and new ones from packages or a registry.

import { useState } from "preact/hooks";
import { forkd } from "../api.ts";
import { bytes, commandLine, visible } from "../format.ts";
import { Ask, Card, Command, complain, Empty, Field, Problem, say, Table, useLoaded } from "../parts.tsx";
import { may } from "../session.ts";
import { Steps, useWork } from "./work.tsx";
import type { JSX } from "preact";

export function ImagesPage(): JSX.Element {
  const { value: images, error, reload } = useLoaded(async (signal) => forkd.listImages({ signal }), []);
  const remove = async (name: string): Promise<void> => {
    await forkd.deleteImage(name);
    say(`The image ${name} is removed.`);
    reload();
  };
  return (
    <main class="page">
      <h1>Images</h1>
      <Problem text={error} />
      {images?.length === 0 && (
        <Empty title="There is no image yet">
          <p>An image is an immutable root file system. Snapshots are booted from one.</p>
        </Empty>
      )}
      {images && images.length > 0 && (
        <Card title="Stored images">
          <Table columns={["Names", "From", { number: "Size" }, "Made", ""]}>
            {images.map((image) => (
              <tr key={image.id}>
                <td>{visible(image.names.join(", "))}</td>
                <td>{image.source.kind}</td>
                <td class="number">{bytes(image.bytes)}</td>
                <td>{new Date(image.created_at).toLocaleDateString()}</td>
                <td class="buttons-cell">
                  {may("admin") &&
                    image.names.map((name) => (
                      <button key={name} type="button" class="danger quiet" onClick={() => void remove(name).catch(complain)}>
                        Remove {visible(name)}
                      </button>
                    ))}
                </td>
              </tr>
            ))}
          </Table>
          <Command line="forkd image ls" />
        </Card>
      )}
      {may("admin") && <NewImage onMade={reload} />}
    </main>
  );
}

function NewImage({ onMade }: { onMade: () => void }): JSX.Element {
  const [source, setSource] = useState<"packages" | "reference">("packages");
  const [name, setName] = useState("");
  const [text, setText] = useState("");
  const work = useWork();
  const words = text.split(/[\s,]+/).filter(Boolean);
  const run = async (): Promise<void> => {
    await work.run(async (onProgress) =>
      source === "packages"
        ? forkd.createImage({ name, packages: words }, { onProgress, timeoutMs: 0 })
        : forkd.createImage({ reference: text, ...(name === "" ? {} : { name }) }, { onProgress, timeoutMs: 0 }),
    );
    say("The image is ready.");
    onMade();
  };
  const line =
    source === "packages"
      ? commandLine("image", "build", name || "NAME", "--packages", words.join(",") || "PACKAGES")
      : commandLine("image", "pull", text || "REFERENCE");
  return (
    <Card title="New image">
      <Ask label="Make it" onSubmit={run}>
        <Field label="From">
          <select value={source} onChange={(event) => setSource(event.currentTarget.value as "packages" | "reference")}>
            <option value="packages">Debian packages</option>
            <option value="reference">an OCI registry</option>
          </select>
        </Field>
        <Field label={source === "packages" ? "Packages" : "Reference"}>
          <input
            required
            value={text}
            placeholder={source === "packages" ? "python3 git" : "debian:13-slim"}
            onInput={(event) => setText(event.currentTarget.value)}
          />
        </Field>
        <Field label="Name">
          <input required={source === "packages"} value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </Field>
        <Steps work={work} />
        <Command line={line} />
      </Ask>
    </Card>
  );
}
