// A parser with a defect that only an input with four specific letters reaches.

import type { Target } from "../../target.ts";

export const target: Target = {
  sources: ["scripts/fuzz/test/planted/nested.ts"],
  tokens: [],
  maxBytes: 16,
  run: (input) => {
    if (input[0] === 0x66) {
      if (input[1] === 0x6f) {
        if (input[2] === 0x72) {
          if (input[3] === 0x6b) throw new Error("all four");
        }
      }
    }
    return "";
  },
};
