// Files of a sandbox: browse, view, edit small text, upload, download.

import { useEffect, useState } from "preact/hooks";
import { download, explain, forkd, upload } from "../api.ts";
import { bytes, commandLine, visible } from "../format.ts";
import { Card, Command, complain, Empty, Problem, say, Table, useLoaded } from "../parts.tsx";
import type { JSX } from "preact";
import type { ListedFile, SandboxInfo } from "forkd";

const MAX_TEXT_BYTES = 256 * 1024;
const MAX_IMAGE_BYTES = 8 * 1024 * 1024;
const PAGE = 500;
const IMAGES: Record<string, string> = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp" };

export function Files({ sandbox }: { sandbox: SandboxInfo }): JSX.Element {
  const [folder, setFolder] = useState("/");
  const [file, setFile] = useState<ListedFile | null>(null);
  const [isOver, setOver] = useState(false);
  const [busy, setBusy] = useState<string | null>(null);
  const {
    value: files,
    error,
    reload,
  } = useLoaded(async (signal) => forkd.listFiles(sandbox.id, folder, { limit: PAGE, signal }), [sandbox.id, folder]);
  const send = async (given: readonly File[]): Promise<void> => {
    try {
      for (const each of given) {
        setBusy(`Uploading ${visible(each.name)}…`);
        await upload(sandbox.id, join(folder, each.name), each);
      }
      say(`Uploaded ${given.map(({ name }) => visible(name)).join(", ")}.`);
    } catch (thrown) {
      complain(thrown);
    } finally {
      setBusy(null);
      reload();
    }
  };
  const go = (path: string): void => {
    setFile(null);
    setFolder(path);
  };
  const sorted = files?.toSorted((a, b) => Number(b.kind === "directory") - Number(a.kind === "directory") || (a.path < b.path ? -1 : 1));
  return (
    <div class="cards">
      <div
        class={`drop ${isOver ? "is-over" : ""}`}
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={(event) => {
          event.preventDefault();
          setOver(false);
          void send([...(event.dataTransfer?.files ?? [])]);
        }}
      >
        <Card
          title="Files"
          actions={
            <div class="actions">
              <label class="button">
                Upload
                <input
                  type="file"
                  multiple
                  class="sr-only"
                  aria-label="Files to upload"
                  onChange={(event) => void send([...(event.currentTarget.files ?? [])])}
                />
              </label>
              <button type="button" onClick={() => void makeFolder(sandbox.id, folder).then(reload, complain)}>
                New folder
              </button>
              <button type="button" class="quiet" onClick={reload}>
                Refresh
              </button>
            </div>
          }
        >
          <Crumbs folder={folder} go={go} />
          {busy !== null && <p role="status">{busy}</p>}
          <Problem text={error} />
          <Table columns={["Name", { number: "Size" }, "Mode", "Owner"]}>
            {sorted?.map((each) => (
              <tr key={each.path}>
                <td>
                  <button type="button" class="file-name" onClick={() => (each.kind === "directory" ? go(each.path) : setFile(each))}>
                    {nameIn(each.path)}
                    {each.kind === "directory" ? "/" : each.kind === "symlink" ? " →" : ""}
                  </button>
                </td>
                <td class="number">{each.kind === "file" ? bytes(each.size) : ""}</td>
                <td class="mono">{each.mode}</td>
                <td>{visible(each.owner ?? String(each.uid))}</td>
              </tr>
            ))}
          </Table>
          {files?.length === 0 && <p class="dim">The folder is empty. Drop files here to upload them.</p>}
          {files?.nextCursor && <p class="dim">Only the first {PAGE} entries are shown.</p>}
          <Command line={commandLine("files", "ls", `${sandbox.name ?? sandbox.id}:${folder}`)} />
        </Card>
      </div>
      {file && (
        <FileView
          key={file.path}
          sandbox={sandbox}
          file={file}
          onRemoved={() => {
            setFile(null);
            reload();
          }}
          onSaved={reload}
        />
      )}
    </div>
  );
}

function Crumbs({ folder, go }: { folder: string; go: (path: string) => void }): JSX.Element {
  const parts = folder.split("/").filter(Boolean);
  return (
    <nav class="crumbs" aria-label="Folder">
      <button type="button" onClick={() => go("/")} aria-label="Root folder">
        /
      </button>
      {parts.map((part, at) => (
        <button key={at} type="button" onClick={() => go(`/${parts.slice(0, at + 1).join("/")}`)}>
          {visible(part)}/
        </button>
      ))}
    </nav>
  );
}

type Content = { is: "text"; text: string } | { is: "image"; url: string } | { is: "other"; why: string };

function FileView(props: { sandbox: SandboxInfo; file: ListedFile; onRemoved: () => void; onSaved: () => void }): JSX.Element {
  const { sandbox, file } = props;
  const [content, setContent] = useState<Content | null>(null);
  const [text, setText] = useState("");
  const [error, setError] = useState<string | null>(null);
  useEffect(() => {
    let url: string | undefined;
    const read = async (): Promise<void> => {
      const found = await contentOf(sandbox.id, file);
      if (found.is === "image") url = found.url;
      if (found.is === "text") setText(found.text);
      setContent(found);
    };
    read().catch((thrown: unknown) => setError(explain(thrown)));
    return () => {
      if (url !== undefined) URL.revokeObjectURL(url);
    };
  }, [sandbox.id, file.path]);
  const save = async (): Promise<void> => {
    await forkd.writeFile(sandbox.id, file.path, text, { mode: file.mode });
    setContent({ is: "text", text });
    say(`Saved ${nameIn(file.path)}.`);
    props.onSaved();
  };
  const remove = async (): Promise<void> => {
    if (!confirm(`Remove ${nameIn(file.path)}? There is no undo.`)) return;
    await forkd.removeFile(sandbox.id, file.path);
    props.onRemoved();
  };
  const isChanged = content?.is === "text" && content.text !== text;
  return (
    <Card
      title={nameIn(file.path)}
      actions={
        <div class="actions">
          {content?.is === "text" && (
            <button type="button" class="primary" disabled={!isChanged} onClick={() => void save().catch(complain)}>
              Save
            </button>
          )}
          <button type="button" onClick={() => void saveHere(sandbox.id, file.path).catch(complain)}>
            Download
          </button>
          <button type="button" class="danger" onClick={() => void remove().catch(complain)}>
            Remove
          </button>
        </div>
      }
    >
      <Problem text={error} />
      {content?.is === "text" && (
        <textarea
          rows={22}
          spellcheck={false}
          aria-label={`Content of ${nameIn(file.path)}`}
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      )}
      {content?.is === "image" && <img class="preview" src={content.url} alt={nameIn(file.path)} />}
      {content?.is === "other" && <Empty title={content.why} />}
      <Command line={commandLine("cp", `${sandbox.name ?? sandbox.id}:${file.path}`, ".")} />
    </Card>
  );
}

async function contentOf(sandbox: string, file: ListedFile): Promise<Content> {
  if (file.kind !== "file" && file.kind !== "symlink") return { is: "other", why: `This is a ${file.kind}.` };
  const type = IMAGES[file.path.split(".").at(-1)?.toLowerCase() ?? ""];
  if (type !== undefined && file.size <= MAX_IMAGE_BYTES) {
    const blob = await download(sandbox, file.path);
    return { is: "image", url: URL.createObjectURL(new Blob([blob], { type })) };
  }
  if (file.size > MAX_TEXT_BYTES) return { is: "other", why: `${bytes(file.size)} are too much to show. Download it.` };
  const raw = await forkd.readFile(sandbox, file.path, { length: MAX_TEXT_BYTES });
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(raw);
    // a text area would change other line ends, and cannot show a null character
    if (!/[\0\r]/.test(text)) return { is: "text", text };
  } catch {
    // not UTF-8
  }
  return { is: "other", why: "This is not text. Download it." };
}

async function saveHere(sandbox: string, path: string): Promise<void> {
  const url = URL.createObjectURL(await download(sandbox, path));
  const link = document.createElement("a");
  link.href = url;
  link.download = nameIn(path);
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

async function makeFolder(sandbox: string, folder: string): Promise<void> {
  const name = prompt("Name of the new folder");
  if (name) await forkd.makeDirectory(sandbox, join(folder, name));
}

function join(folder: string, name: string): string {
  return `${folder === "/" ? "" : folder}/${name}`;
}

/** The last part of a path; paths that are not UTF-8 are base64 */
function nameIn(path: string): string {
  const text = path.startsWith("base64:")
    ? new TextDecoder().decode(Uint8Array.from(atob(path.slice(7)), (char) => char.charCodeAt(0)))
    : path;
  return visible(text.slice(text.lastIndexOf("/") + 1));
}
