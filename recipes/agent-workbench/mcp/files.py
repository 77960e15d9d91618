"""Files of this machine."""

import base64
from pathlib import Path

from tool import text, tool

PATH = {"type": "string", "description": "absolute, or from the home folder"}


async def read_file(path: str) -> "list[dict]":
    data = where(path).read_bytes()
    try:
        return text(data.decode())
    except UnicodeDecodeError:
        blob = base64.b64encode(data).decode()
        return [{"type": "resource", "resource": {"uri": where(path).as_uri(), "mimeType": "application/octet-stream", "blob": blob}}]


async def write_file(path: str, content: str) -> "list[dict]":
    file = where(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    return text(f"{file}: {file.write_text(content)} characters written.")


async def list_files(path: str) -> "list[dict]":
    names = (f"{entry.name}/" if entry.is_dir() else entry.name for entry in where(path).iterdir())
    return text("\n".join(sorted(names)))


def where(path: str) -> Path:
    return Path.home() / path


TOOLS = [
    tool(read_file, "Reads a file.", path=PATH),
    tool(write_file, "Writes a text file; folders on the way are made.", path=PATH, content={"type": "string"}),
    tool(list_files, "Lists a folder; names of folders end with a slash.", path=PATH),
]
