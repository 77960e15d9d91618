"""Builds of recipes: what of a folder is sent, and how errors name it."""

from __future__ import annotations

import base64
import io
import json
import os
import tarfile
import tempfile
from typing import Any, Dict, List, Optional

import forkd

from ..helpers.both import HalfCase, both, get
from ..helpers.fake_daemon import FakeDaemon, Reply, Seen

CHECKED: Dict[str, Any] = {"tag": "", "description": "", "variables": {}, "registry_reference": None}


def packed(data: bytes) -> Dict[str, str]:
    entries = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isfile() else None
            content = member.linkname if member.issym() else "/" if member.isdir() else file.read().decode() if file else ""
            entries[member.name] = f"{member.mode:o} {content}"
            assert (member.uid, member.gid, member.uname) == (0, 0, "")
    return entries


class Answers:
    """Answers checks from a table, and keeps what builds send."""

    def __init__(self, recipes: Dict[str, Any], problem: Optional[str] = None) -> None:
        self.sent: List[bytes] = []
        self.recipes = recipes
        self.problem = problem

    async def __call__(self, seen: Seen, reply: Reply, _: int) -> bool:
        if seen.route == self.problem:
            problem = {"error": "py/recipe.yaml:4:1: there is no field x", "code": "RECIPE_INVALID", "hint": "", "request_id": ""}
            return await reply.send(422, "application/json", json.dumps(problem).encode())
        if seen.route == "buildRecipe":
            self.sent.append(seen.body)
        if seen.route != "checkRecipe":
            return False
        name = seen.body.get("folder", "py")
        answer = {"name": name, "files": [], "base": None, **CHECKED, **self.recipes.get(name, {})}
        return await reply.send(200, "application/json", json.dumps(answer).encode())


@both(globals())
class Recipes(HalfCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.write("py/recipe.yaml", "name: py\n")
        self.write("py/secret", "not named by the recipe")
        self.write("py/run.sh", "#!/bin/sh\n", 0o755)
        self.write("py/data/sub/" + "ä" * 60, "deep")
        os.symlink("sub", self.path("py/data/link"))
        os.symlink("run.sh", self.path("py/named-link"))
        self.write("shared/b", "")
        self.write("lower/recipe.yaml", "name: lower\n")

    def path(self, path: str) -> str:
        return os.path.join(self.root, path)

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        os.makedirs(os.path.dirname(self.path(path)), exist_ok=True)
        with open(self.path(path), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(path), mode)

    async def test_of_a_folder_the_recipe_and_what_it_names_are_sent_and_nothing_else(self) -> None:
        files = ["./run.sh", "./data", "./named-link", "../shared/b", "./none"]
        answers = Answers({"py": {"files": files, "base": "lower"}})
        with FakeDaemon(answers) as daemon:
            controller = self.controller(socket=daemon.socket)
            await get(controller.build_recipe(self.path("py"), registry=("u", "p")))
            self.assertEqual(daemon.last.query, {"recipe": "py"})
            login = base64.b64decode(daemon.last.headers["x-registry-auth"])
        self.assertEqual(json.loads(login), {"username": "u", "password": "p"})
        sent = packed(answers.sent[0])
        for folder in ("py/data", "py/data/sub"):
            self.assertRegex(sent.pop(folder), "^7[0-9]+ /$")
        self.assertEqual(
            sent,
            {
                "py/recipe.yaml": "644 name: py\n",
                "py/run.sh": "755 #!/bin/sh\n",
                "py/data/link": "777 sub",
                "py/data/sub/" + "ä" * 60: "644 deep",
                "py/named-link": "755 #!/bin/sh\n",
                "shared/b": "644 ",
                "lower/recipe.yaml": "644 name: lower\n",
            },
        )

    async def test_a_recipe_without_a_folder_is_sent_with_the_files_that_are_given(self) -> None:
        answers = Answers({})
        with FakeDaemon(answers) as daemon:
            controller = self.controller(url=daemon.url)
            await get(controller.build_recipe(source="name: py\n", files={"a": "A", "sub/b": b"B"}))
            self.assertEqual(daemon.last.query, {})
            with self.assertRaises(ValueError):
                await get(controller.build_recipe("py", source="name: py\n"))
        self.assertEqual(packed(answers.sent[0]), {"recipe.yaml": "644 name: py\n", "a": "644 A", "sub/b": "644 B"})

    async def test_a_problem_is_reported_with_the_path_on_this_machine(self) -> None:
        for route in ("checkRecipe", "buildRecipe"):
            with FakeDaemon(Answers({}, route)) as daemon, self.assertRaises(forkd.InvalidRequestError) as caught:
                await get(self.controller(socket=daemon.socket).build_recipe(self.path("py")))
            self.assertEqual(caught.exception.message, f"{self.path('py/recipe.yaml')}:4:1: there is no field x")

    async def test_a_path_without_a_recipe_is_not_found_and_a_name_is_left_to_the_daemon(self) -> None:
        with FakeDaemon() as daemon:
            controller = self.controller(socket=daemon.socket)
            with self.assertRaises(forkd.NotFoundError):
                await get(controller.build_recipe("./no-such-folder"))
            await get(controller.build_recipe("no-such-recipe"))
            self.assertEqual(daemon.last.query, {"recipe": "no-such-recipe"})
