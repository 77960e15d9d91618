// Words refused in docs and code: each stands for a component or an action that has a name.

/** Pattern of the word, and the suggested wording */
const WORDS: readonly [word: RegExp, instead: string][] = [
  [/\b(?:whoever|whomever|nobody|somebody|anybody|everybody)(?:'s)?\b/gi, "the name of the user, client or component"],
  [/\bmend(?:s|ed|ing)?\b/gi, '"fix"'],
  [/\b(?:is|are|was|were) no more\b(?! than)/gi, '"has ended" or "was removed"'],
  [/\bhalf-made\b/gi, '"incomplete"'],
  [/\bin vain\b/gi, '"without success"'],
  [/\bfor ever\b/gi, "a time limit or its absence"],
  [/\b(?:is|are|was|were|be|been|it) told\b(?! apart)/gi, '"is sent", "is notified" or "gets"'],
  [/\b(?:tells?|hears?|heard) (?:of|about|the|them|it|who|what|which|how|why)\b/gi, '"reports", "shows" or "receives"'],
  [/\b(?:goes|go|went|gone|going) on\b/gi, '"continues"'],
  [/\b(?:is|are|was|were|be) left with\b/gi, '"has only"'],
  [/\blets? go of\b/gi, '"releases"'],
  [/\bthat (?:is|are) none\b(?! of)/gi, '"invalid"'],
  [/\b(?:what|which) is no\b/gi, '"an invalid" or "other than"'],
  [/\bwithout a word\b/gi, '"silently"'],
  [/\b(?:falls? asleep|asleep|wakes? up|woken up|woke up)\b/gi, '"is suspended" or "resumes"'],
  [/\b(?:went|goes|go|gone|going) away\b/gi, '"disconnects" or "ends"'],
  [/\b(?:its|their) own ways?\b/gi, '"independently"'],
];

/** Extensions of languages with `//` and block comments; the others use `#` */
const SLASHES = /\.(?:rs|tsx?|mjs|c)$/;
export const CODE = /\.(?:rs|tsx?|mjs|c|py|sh|ya?ml)$/;

/** A string of three words or more counts as prose; a shorter one is data, such as the name of a user */
const STRING = /"((?:[^"\\]|\\.)*)"|`((?:[^`\\]|\\.)*)`/g;
const PROSE = /[a-z][,;:]? [a-z]+[,;:]? [a-z]/i;
/** The user of that name in a command */
const USER = /(?:--user|chown) nobody\b/g;
const TEST_NAME = /\b(?:fn|def) (\w+_\w+)\(/g;

/** One line per refused word in the comments, prose and test names of a source file */
export function codeProblems(path: string, source: string): string[] {
  return [...commentsOf(path, source), ...proseOf(source)]
    .flatMap(({ line, text }) => found(line, text).map((problem) => ({ line, problem })))
    .sort((one, other) => one.line - other.line)
    .map(({ problem }) => problem)
    .filter((problem, at, all) => !all.slice(0, at).includes(problem));
}

/** Strings of several words, and names of functions in Rust and Python as words. Does not parse: reads line by line */
function proseOf(source: string): { line: number; text: string }[] {
  return source.split("\n").flatMap((text, at) => [
    ...[...text.matchAll(STRING)]
      .map(([, quoted, template]) => (quoted ?? template ?? "").replace(USER, ""))
      .filter((string) => PROSE.test(string))
      .map((string) => ({ line: at + 1, text: string })),
    ...[...text.matchAll(TEST_NAME)].map(([, name = ""]) => ({ line: at + 1, text: name.replaceAll("_", " ") })),
  ]);
}

/**
 * Comments and Python docstrings, line by line. Does not parse strings: a comment mark after a space inside a string
 * counts as a comment
 */
function commentsOf(path: string, source: string): { line: number; text: string }[] {
  const comments: { line: number; text: string }[] = [];
  // a glob such as /srv/* is no comment
  const [begin, end] = SLASHES.test(path) ? [/(?:^|\s)\/\*/, "*/"] : [/"""/, '"""'];
  const mark = SLASHES.test(path) ? /(?:^|\s)\/\/[/!]?(?:\s|$)(.*)/ : /(?:^|\s)#(?:\s|$)(.*)/;
  let isBlock = false;
  for (const [at, text] of source.split("\n").entries()) {
    const wasBlock = isBlock;
    const opens = isBlock ? -1 : text.search(begin);
    const closes = text.indexOf(end, opens < 0 ? 0 : opens + end.length);
    if (isBlock || opens >= 0) isBlock = closes < 0;
    if (wasBlock || opens >= 0) comments.push({ line: at + 1, text: text.slice(Math.max(opens, 0), closes < 0 ? undefined : closes) });
    else {
      const comment = mark.exec(text)?.[1];
      if (comment !== undefined) comments.push({ line: at + 1, text: comment });
    }
  }
  return comments;
}

/** One line per refused word in a Markdown file. Skips code and released sections of a changelog, which do not change */
export function wordProblems(markdown: string): string[] {
  const problems: string[] = [];
  let isCode = false;
  let isReleased = false;
  for (const [at, line] of markdown.split("\n").entries()) {
    if (/^ *(?:```|~~~)/.test(line)) isCode = !isCode;
    if (isCode) continue;
    const version = /^## \[(.+?)\]/.exec(line)?.[1];
    if (version !== undefined) isReleased = version !== "Unreleased";
    if (isReleased) continue;
    problems.push(...found(at + 1, line));
  }
  return problems;
}

function found(line: number, text: string): string[] {
  const prose = text.replace(/`[^`]*`/g, "");
  return WORDS.flatMap(([word, instead]) =>
    [...prose.matchAll(word)].map(([used]) => `line ${line}: use ${instead} in place of "${used}"`),
  );
}
