"""Notebook commands that are not Python: ! and %. Loaded when code does not compile."""

import os
import re
import shlex
import subprocess
import sys

LINE = re.compile(r"^(?P<indent>\s*)(?:(?P<name>[A-Za-z_]\w*)\s*=\s*)?(?P<sign>[!%])(?P<rest>[^\n%!].*)$")
SHELL_CELL = re.compile(r"^\s*%%(?:bash|sh)\b[^\n]*\n")
SILENT = ("matplotlib", "load_ext", "autoreload", "config", "reload_ext")


def translate(code):
    """The same code with calls in place of such lines; None if there are none"""
    cell = SHELL_CELL.match(code)
    if cell:
        return "__import__('forkd_magics').shell(%r)" % code[cell.end() :]
    lines, translated, found = code.split("\n"), [], False
    while lines:
        line = lines.pop(0)
        match = LINE.match(line)
        if match is None:
            translated.append(line)
            continue
        found = True
        text, more = match.group("rest"), 0
        while text.endswith("\\") and lines:
            text += "\n" + lines.pop(0)
            more += 1
        translated.append(call_of(match, text))
        translated.extend([""] * more) # keeps line numbers
    return "\n".join(translated) if found else None


def call_of(match, text):
    name = match.group("name")
    kind = "shell" if match.group("sign") == "!" else "magic"
    call = "__import__('forkd_magics').%s(%r%s)" % (kind, text, ", True" if name else "")
    return match.group("indent") + ("%s = %s" % (name, call) if name else call)


def shell(command, wants_lines=False):
    """Runs a command and prints its output as it comes; in an assignment, returns the lines"""
    sys.stdout.flush()
    sys.stderr.flush()
    argv = ["/bin/bash", "-c", command] if os.path.exists("/bin/bash") else ["/bin/sh", "-c", command]
    if wants_lines:
        return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    subprocess.run(argv, stdin=subprocess.DEVNULL)
    return None


def magic(text, wants_lines=False):
    name, _, rest = text.partition(" ")
    if name == "pip":
        return shell("%s -m pip %s" % (shlex.quote(sys.executable), rest), wants_lines)
    if name == "cd":
        os.chdir(os.path.expanduser(rest.strip() or "~"))
        return print(os.getcwd())
    if name == "pwd":
        return os.getcwd()
    if name == "env":
        key, sign, value = rest.strip().partition("=")
        if sign:
            os.environ[key] = value
        return None if sign else os.environ.get(key) if key else dict(os.environ)
    if name in ("sx", "system"):
        return shell(rest, wants_lines)
    if name in SILENT:
        return None
    raise NameError("there is no magic %%%s here; ! and %%pip, %%cd, %%pwd, %%env, %%%%bash are" % name)
