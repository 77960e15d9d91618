// The completion scripts: the commander tree as a flat list of nodes, then one rendering per shell.

import type { Command } from "commander";

type Word = { text: string; about: string };
type Node = { path: string; words: Word[] };

export function completionScript(shell: "bash" | "zsh" | "fish", program: Command): string {
  const nodes = collect(program, "");
  return { bash, zsh, fish }[shell](nodes);
}

function collect(command: Command, path: string): Node[] {
  const help = command.createHelp();
  const children = help.visibleCommands(command).filter((child) => child.name() !== "help");
  const words: Word[] = [
    ...children.map((child) => ({ text: child.name(), about: child.description() })),
    ...command.registeredArguments.flatMap((arg) => (arg.argChoices ?? []).map((text) => ({ text, about: arg.description }))),
    ...help.visibleOptions(command).flatMap((option) => (option.long ? [{ text: option.long, about: option.description }] : [])),
  ];
  return [{ path, words }, ...children.flatMap((child) => collect(child, `${path} ${child.name()}`.trim()))];
}

/** The command path typed so far, found the same way in bash and in zsh */
function findPath(nodes: Node[], array: string, limit: string): string {
  const known = nodes.filter((node) => node.path).map((node) => `"${node.path}"`);
  return `  local verb="" word candidate
  for word in "\${${array}[@]:${limit}}"; do
    candidate="\${verb:+$verb }$word"
    case "$candidate" in
      ${known.join("|")}) verb="$candidate" ;;
    esac
  done`;
}

function bash(nodes: Node[]): string {
  const cases = nodes.map((node) => `    "${node.path}") words="${node.words.map((word) => word.text).join(" ")}" ;;`);
  return `# bash completion of forkd:  source <(forkd completion bash)
_forkd() {
  local current="\${COMP_WORDS[COMP_CWORD]}" words=""
${findPath(nodes, "COMP_WORDS", "1:COMP_CWORD-1")}
  case "$verb" in
${cases.join("\n")}
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _forkd forkd ./forkd`;
}

function zsh(nodes: Node[]): string {
  const quote = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
  const cases = nodes.map((node) => {
    const items = node.words.map((word) => quote(`${word.text.replaceAll(":", "\\:")}:${word.about}`));
    return `    "${node.path}") items=(${items.join(" ")}) ;;`;
  });
  return `#compdef forkd
# zsh completion of forkd:  source <(forkd completion zsh)
_forkd() {
  local -a items
${findPath(nodes, "words", "1:CURRENT-2")}
  case "$verb" in
${cases.join("\n")}
  esac
  _describe 'forkd' items || _files
}
compdef _forkd forkd`;
}

function fish(nodes: Node[]): string {
  const quote = (text: string): string => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
  const lines = nodes.flatMap((node) => {
    const condition = quote(`__forkd_at ${node.path}`.trim());
    return node.words.map((word) =>
      word.text.startsWith("--")
        ? `complete -c forkd -n ${condition} -l ${word.text.slice(2)} -d ${quote(word.about)}`
        : `complete -c forkd -n ${condition} -f -a ${word.text} -d ${quote(word.about)}`,
    );
  });
  return `# fish completion of forkd:  forkd completion fish | source
function __forkd_at
  set -l typed (commandline -opc)
  set -l path
  for word in $typed[2..-1]
    contains -- (string join ' ' $path $word) ${nodes
      .filter((node) => node.path)
      .map((node) => quote(node.path))
      .join(" ")}
    and set -a path $word
  end
  test "$path" = "$argv"
end
${lines.join("\n")}`;
}
