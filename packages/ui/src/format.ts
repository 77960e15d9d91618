// Numbers and foreign text for people.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
const STEPS: [secs: number, unit: string][] = [
  [86_400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];
/** Control characters, and characters that hide, reverse or join others */
// oxlint-disable-next-line no-control-regex -- these characters are what it shows
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu;
/** Sequences of terminals: CSI, OSC and single escapes */
// oxlint-disable-next-line no-control-regex -- these characters are what it removes
const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[ -/]*[0-~])/g;
const PICTURES = 0x2400;

export function bytes(count: number): string {
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${value >= 10 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

export function mib(count: number): string {
  return bytes(count * 1024 * 1024);
}

/** The largest unit only, such as `3 h` */
export function duration(secs: number): string {
  const [size, unit] = STEPS.find(([size]) => secs >= size) ?? [1, "s"];
  return `${Math.max(0, Math.floor(secs / size))} ${unit}`;
}

export function ms(value: number): string {
  return value < 10 ? `${value.toFixed(1)} ms` : value < 10_000 ? `${Math.round(value)} ms` : duration(value / 1000);
}

export function time(unix: number): string {
  return new Date(unix * 1000).toLocaleString();
}

export function count(number: number, one: string, many = `${one}s`): string {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

/** Text of a guest as one line in which nothing is hidden: a newline in a file name is shown as its picture */
export function visible(text: string): string {
  return text.replace(UNSEEN, (character) => {
    const code = character.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(PICTURES + code) : code === 0x7f ? "\u2421" : "\ufffd";
  });
}

/** Output of a guest as text of several lines, without sequences of terminals */
export function plain(text: string): string {
  return text
    .replace(ESCAPES, "")
    .replaceAll("\r\n", "\n")
    .split(/([\n\t])/)
    .map((part) => (part === "\n" || part === "\t" ? part : visible(part)))
    .join("");
}

/** A word of a command line, quoted where a shell needs it */
function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** A command line that does the same */
export function commandLine(...words: (string | number | undefined)[]): string {
  return ["forkd", ...words.flatMap((word) => (word === undefined ? [] : [String(word)])).map(shellWord)].join(" ");
}
