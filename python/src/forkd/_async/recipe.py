"""The archive of a recipe: the recipe, the files that it names, and the recipes beside it that it is built on.

The blocking twin is ``_sync/recipe.py``.
"""

from __future__ import annotations

import base64
import io
import json
import os
import posixpath
import re
import tarfile
from dataclasses import dataclass, field
from typing import IO, Awaitable, Callable, Dict, List, Mapping, Optional, Tuple, Union

from ..errors import ForkdError
from ..types import CheckedRecipe
from .upload import in_thread

_FILE = "recipe.yaml"

Check = Callable[..., Awaitable[CheckedRecipe]]
Login = Tuple[str, str]


@dataclass
class PackedRecipe:
    #: Folder of the recipe in the archive; None: ``recipe.yaml`` at its top
    recipe: Optional[str] = None
    #: Paths in the archive, with their content or their path on this machine
    entries: List[Tuple[str, Union[bytes, str]]] = field(default_factory=list)
    #: Paths in the archive that errors name, with their paths on this machine
    shown: Dict[str, str] = field(default_factory=dict)

    def write(self, file: IO[bytes]) -> None:
        """Writes a tar archive of the entries, and returns to its beginning."""
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path, content in self.entries:
                if isinstance(content, bytes):
                    info = tarfile.TarInfo(path)
                    info.size = len(content)
                    info.mode = 0o644
                    tar.addfile(info, io.BytesIO(content))
                elif os.path.exists(content):  # the daemon reports a file that is missing, with its place in the recipe
                    # a link that the recipe names stands for its target; one below a folder stays a link
                    tar.add(os.path.realpath(content), path, filter=_without_owner)
        file.seek(0)


def is_path(recipe: str) -> bool:
    return "/" in recipe or recipe in (".", "..")


def recipe_file(path: str) -> Optional[str]:
    """A recipe by its own file, or that of a folder."""
    full = os.path.abspath(path)
    file = full if full.endswith((".yaml", ".yml")) else os.path.join(full, _FILE)
    return file if os.path.isfile(file) else None


async def pack_folder(file: str, check: Check, variables: Optional[Mapping[str, str]]) -> PackedRecipe:
    """The recipe in a file, the files that it names, and the recipes beside it that it is built on."""
    packed = PackedRecipe()
    packed.recipe = await _add(file, check, variables, packed)
    return packed


async def _add(file: str, check: Check, variables: Optional[Mapping[str, str]], packed: PackedRecipe) -> str:
    source = await in_thread(_read, file)
    folder = os.path.dirname(file)
    own = os.path.basename(folder) if os.path.basename(file) == _FILE else None
    before = {f"{own}/{_FILE}" if own else _FILE: _shown(file)}
    try:
        checked = await check(source.decode(), folder=own, set=variables)
    except ForkdError as error:
        raise with_local_paths(error, before) from None
    name = checked["name"]
    if f"{name}/{_FILE}" in packed.shown:
        return name
    packed.shown[f"{name}/{_FILE}"] = _shown(file)
    packed.entries.append((f"{name}/{_FILE}", source))
    for path in checked["files"]:
        packed.entries.append((posixpath.normpath(posixpath.join(name, path)), os.path.join(folder, path)))
    beside = None if checked["base"] is None else recipe_file(os.path.join(folder, os.pardir, checked["base"]))
    if beside is not None:
        await _add(beside, check, None, packed)
    return name


def pack_source(source: str, files: Optional[Mapping[str, Union[str, bytes]]]) -> PackedRecipe:
    """A recipe without a folder, with the files that it names."""
    packed = PackedRecipe(entries=[(_FILE, source.encode())])
    for path, content in (files or {}).items():
        packed.entries.append((path, content.encode() if isinstance(content, str) else content))
    return packed


def with_local_paths(error: ForkdError, shown: Mapping[str, str]) -> ForkdError:
    """The daemon names files by their paths in the archive; the caller knows them by their paths here."""
    if error.code != "RECIPE_INVALID":
        return error

    def local(match: re.Match[str]) -> str:
        return shown.get(match[1], match[1]) + match[2]

    error.message = "\n".join(re.sub(r"^(.*?)(:\d+:\d+: .*)$", local, line) for line in error.message.split("\n"))
    return error


def auth_header(registry: Optional[Login]) -> Dict[str, str]:
    if registry is None:
        return {}
    username, password = registry
    text = json.dumps({"username": username, "password": password})
    return {"x-registry-auth": base64.b64encode(text.encode()).decode()}


def _read(file: str) -> bytes:
    with open(file, "rb") as opened:
        return opened.read()


def _shown(file: str) -> str:
    here = os.path.relpath(file)
    return file if here.startswith(os.pardir) else here


def _without_owner(info: tarfile.TarInfo) -> Optional[tarfile.TarInfo]:
    if not (info.isfile() or info.isdir() or info.issym() or info.islnk()):
        return None
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info
