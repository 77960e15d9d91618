// What a terminal shows after the output of a full-screen program: text at positions, and the modes that were set.

// oxlint-disable-next-line no-control-regex -- matches control sequences
const PIECE = /\u001b\[(?<params>[?0-9;]*)(?<final>[A-Za-z])|(?<text>[^\u001b]+)|\u001b/gu;

export type Shown = {
  lines: string[];
  /** lines that are drawn inverse */
  selected: string[];
  isAlternate: boolean;
  hasCursor: boolean;
  wraps: boolean;
};

/** Knows the sequences that `forkd top` uses; any other one is an error */
export function screenOf(output: string): Shown {
  const shown: Shown = { lines: [], selected: [], isAlternate: false, hasCursor: true, wraps: true };
  let row = 0;
  let isInverse = false;
  const inverse = new Set<number>();
  for (const { groups } of output.matchAll(PIECE)) {
    const { params = "", final, text } = groups ?? {};
    if (text !== undefined) {
      shown.lines[row] = text;
      if (isInverse) inverse.add(row);
      else inverse.delete(row);
      continue;
    }
    switch (`${params.startsWith("?") ? params : ""}${final ?? "ESC"}`) {
      case "H":
        row = Number(params.split(";")[0] || 1) - 1;
        break;
      case "J":
        shown.lines = [];
        inverse.clear();
        break;
      case "m":
        if (params === "7") isInverse = true;
        if (params === "0") isInverse = false;
        break;
      case "?1049h":
      case "?1049l":
        shown.isAlternate = final === "h";
        break;
      case "?25h":
      case "?25l":
        shown.hasCursor = final === "h";
        break;
      case "?7h":
      case "?7l":
        shown.wraps = final === "h";
        break;
      default:
        throw new Error(`an unexpected control sequence: ${JSON.stringify(params + (final ?? ""))}`);
    }
  }
  shown.selected = [...inverse].map((at) => shown.lines[at] ?? "");
  return shown;
}
