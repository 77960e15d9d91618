// A function that is wrong for some inputs: find inputs that show it, then repair it in one of three ways.

import type { Script, Turn } from "../script.ts";

const LOOK = `
print(open("/srv/slug.py").read())
def load():
    space = {}
    exec(open("/srv/slug.py").read(), space)
    return space["slug"]
load()("Hello World")
`;

const FUZZ = `
import random, re
def broken():
    slug = load()
    return [title for title in titles if not re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", slug(title))]
titles = ["".join(random.choices("abcXYZ019 -_.!äéß", k=random.randint(1, 12))) for _ in range(300)]
found = broken()
open("/srv/notes.txt", "w").write(f"{len(found)} of {len(titles)} random titles give no slug\\n")
len(found)
`;

const REPLACE = `
def slug(title):
    return title.strip().lower().replace(" ", "-")
`;

const PATTERN = `
import re

def slug(title):
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
`;

const UNICODE = `
import re
import unicodedata

def slug(title):
    plain = unicodedata.normalize("NFKD", title.lower().replace("ß", "ss")).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or "untitled"
`;

export const repair: Script = {
  prepare: [
    python("I look at the function.", LOOK),
    python("I look for titles that break it.", FUZZ),
    {
      say: "Three ways are worth a try. I branch.",
      call: { tool: "branch", arguments: { ways: ["smallest change", "regular expression", "unicode"] } },
    },
    { say: "{result} random titles break it. They are in `found`." },
  ],
  ways: {
    "smallest change": way("the smallest change", REPLACE),
    "regular expression": way("a regular expression", PATTERN),
    unicode: way("Unicode's decomposition", UNICODE),
  },
};

function python(say: string, code: string): Turn {
  return { say, call: { tool: "run_python", arguments: { code: code.trim() } } };
}

function way(name: string, source: string): Turn[] {
  const code = `
open("/srv/slug.py", "w").write(${JSON.stringify(source.trimStart())})
left = broken()
open("/srv/notes.txt", "a").write(f"${name}: {len(left)} left\\n")
len(left)
`;
  return [python(`I repair it with ${name}.`, code), { say: `With ${name}, {result} of the titles are still broken.` }];
}
