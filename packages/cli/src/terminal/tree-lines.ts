// The tree of snapshots and sandboxes, as lines.

import type { Tree, TreeNode } from "forkd";

type Marks = { fork: string; last: string; down: string; blank: string };

const BOX: Marks = { fork: "├── ", last: "└── ", down: "│   ", blank: "    " };
const ASCII: Marks = { fork: "|-- ", last: "`-- ", down: "|   ", blank: "    " };

export function treeLines(tree: Tree, opts: { utf8: boolean }): string[] {
  return tree.roots.flatMap((root) => [label(root), ...below(root, "", opts.utf8 ? BOX : ASCII)]);
}

/** Whether the terminal's character set has the box characters */
export function isUtf8(env: NodeJS.ProcessEnv = process.env): boolean {
  return /utf-?8/i.test(env["LC_ALL"] || env["LC_CTYPE"] || env["LANG"] || "");
}

function below(node: TreeNode, indent: string, marks: Marks): string[] {
  const children: { text: string; node?: TreeNode }[] = [
    ...node.sandboxes.map((sandbox) => ({ text: `${sandbox.id}${sandbox.name ? ` (${sandbox.name})` : ""}  ${sandbox.state}` })),
    ...node.snapshots.map((snapshot) => ({ text: label(snapshot), node: snapshot })),
  ];
  return children.flatMap((child, i) => {
    const isLast = i === children.length - 1;
    const lines = [`${indent}${isLast ? marks.last : marks.fork}${child.text}`];
    return child.node ? [...lines, ...below(child.node, indent + (isLast ? marks.blank : marks.down), marks)] : lines;
  });
}

function label(node: TreeNode): string {
  const name = node.tag === null ? `[removed ${node.id.slice(0, 12)}]` : `[${node.tag}]`;
  const facts = [...(node.branched_from ? [`from ${node.branched_from}`] : []), ...(node.status === "ready" ? [] : [node.status])];
  return facts.length > 0 ? `${name}  ${facts.join(", ")}` : name;
}
