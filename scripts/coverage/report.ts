// Text output of a coverage run.

export type FileCoverage = {
  /** relative to the repository root */
  path: string;
  /** lines of code, in order */
  lines: { line: number; covered: boolean }[];
  /** whether each branch arm (TypeScript) or region (LLVM) was executed */
  branches: boolean[];
};

export type Gap = { path: string; from: number; to: number; lines: number };

/** One line for all files and one for each part; `partOf` maps a path to its part */
export function totalsText(name: string, files: readonly FileCoverage[], branches: string, partOf: (path: string) => string): string {
  const parts = Map.groupBy(files, ({ path }) => partOf(path));
  const rows = [
    [name, files] as const,
    ...[...parts].sort(([a], [b]) => a.localeCompare(b)).map(([part, own]) => [`  ${part}`, own] as const),
  ];
  return rows
    .map(([title, own]) => {
      const lines = ratio(own.flatMap((file) => file.lines.map(({ covered }) => covered)));
      return `${title.padEnd(20)} lines ${lines}   ${branches} ${ratio(own.flatMap((file) => file.branches))}`;
    })
    .join("\n");
}

/** Consecutive lines of code that were not executed, longest first */
export function gapsOf(files: readonly FileCoverage[]): Gap[] {
  const gaps: Gap[] = [];
  for (const { path, lines } of files) {
    let gap: Gap | undefined;
    for (const { line, covered } of lines) {
      if (covered) gap = undefined;
      else if (gap) Object.assign(gap, { to: line, lines: gap.lines + 1 });
      else gaps.push((gap = { path, from: line, to: line, lines: 1 }));
    }
  }
  return gaps.sort((a, b) => b.lines - a.lines || a.path.localeCompare(b.path));
}

export function gapLine({ path, from, to, lines }: Gap): string {
  return `${String(lines).padStart(5)} lines  ${path}:${from === to ? from : `${from}-${to}`}`;
}

function ratio(all: readonly boolean[]): string {
  const covered = all.filter(Boolean).length;
  const percent = all.length === 0 ? "  -  " : ((100 * covered) / all.length).toFixed(1).padStart(5);
  return `${percent} % (${covered} of ${all.length})`;
}
