// Text as cells of a terminal: without control characters, cut and padded to a width.

import { plain } from "../terminal/output.ts";

/** Formatting characters, such as those that reverse the direction of text; marks that join the previous character; line separators */
const INVISIBLE = /[\p{Cf}\p{Mn}\p{Me}\p{Zl}\p{Zp}\p{Cs}\p{Co}\p{Cn}]+/gu;
/** Characters that take two cells */
const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}/u;

/** Text that a guest or another user may have chosen, as one harmless line */
export function harmless(text: string): string {
  return plain(text).replace(INVISIBLE, " ");
}

export function cellsOf(text: string): number {
  let cells = 0;
  for (const character of text) cells += WIDE.test(character) ? 2 : 1;
  return cells;
}

/** Exactly `width` cells, or fewer for an unlimited width; `more` ends text that was cut */
export function fitted(text: string, width: number, opts: { more: string; align?: "left" | "right" }): string {
  const all = cellsOf(text);
  if (width === Infinity || all === width) return text;
  if (all < width) {
    const padding = " ".repeat(width - all);
    return opts.align === "right" ? padding + text : text + padding;
  }
  if (width < 1) return "";
  let cut = "";
  let cells = 0;
  for (const character of text) {
    const wide = cellsOf(character);
    if (cells + wide > width - 1) break;
    cut += character;
    cells += wide;
  }
  return cut + opts.more + " ".repeat(width - cells - 1);
}
