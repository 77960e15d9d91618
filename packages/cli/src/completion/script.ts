// The completion scripts: the commander tree as a flat list of nodes, then one rendering per shell.

import { kindOfArgument, kindOfOption } from "./kinds.ts";

import type { Command } from "commander";
import type { Kind } from "./kinds.ts";

type Word = { text: string; about: string };
type Flag = Word & { /** whether a value follows */ takesValue: boolean; /** what that names */ kind: Kind | undefined };
/** `kind`: kind of its arguments */
type Node = { path: string; words: Word[]; flags: Flag[]; kind: Kind | undefined };

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
  ];
  const flags = help.visibleOptions(command).flatMap((option): Flag[] => {
    const { long, description: about, required: takesValue } = option;
    return long ? [{ text: long, about, takesValue, kind: kindOfOption(path, option) }] : [];
  });
  const kind = command.registeredArguments.map((argument) => kindOfArgument(path, argument)).find((each) => each !== undefined);
  return [{ path, words, flags, kind }, ...children.flatMap((child) => collect(child, `${path} ${child.name()}`.trim()))];
}

/** The command path typed so far, computed in the same way by bash and zsh */
function findPath(nodes: Node[], array: string, limit: string, afterDashes: string): string {
  const known = nodes.filter((node) => node.path).map((node) => `"${node.path}"`);
  return `  local verb="" word candidate
  for word in "\${${array}[@]:${limit}}"; do
    if [[ $word == -- ]]; then ${afterDashes}; return; fi
    candidate="\${verb:+$verb }$word"
    case "$candidate" in
      ${known.join("|")}) verb="$candidate" ;;
    esac
  done`;
}

/** Kind of an option's value, by verb and option */
function valueKinds(nodes: Node[]): string {
  return nodes
    .flatMap(({ path, flags }) => flags.flatMap(({ text, kind }) => (kind ? [`    "${path} ${text}") kind=${kind} isValue=yes ;;`] : [])))
    .join("\n");
}

function bash(nodes: Node[]): string {
  const cases = nodes.map(({ path, words, flags, kind }) => {
    const all = [...words, ...flags].map((word) => word.text).join(" ");
    return `    "${path}") words="${all}"${kind ? ` kind=${kind}` : ""} ;;`;
  });
  return `# bash completion of forkd:  source <(forkd completion bash)
_forkd() {
  local current="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" words="" kind="" isValue=""
${findPath(nodes, "COMP_WORDS", "1:$((COMP_CWORD-1))", "COMPREPLY=()")}
  case "$verb" in
${cases.join("\n")}
  esac
  case "$verb $previous" in
${valueKinds(nodes)}
  esac
  if [[ $current == -* && -z $isValue ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    return
  fi
  if [[ -n $kind ]]; then
    [[ -n $isValue ]] && words=""
    words+=" $("\${COMP_WORDS[0]}" completion candidates "$kind" 2>/dev/null)"
    # options only after a dash: the names would be lost among them
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current" | grep -v '^-')
    if [[ $kind == places ]]; then
      compopt -o nospace 2>/dev/null
      mapfile -t -O "\${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$current")
    fi
    return
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _forkd forkd ./forkd`;
}

function zsh(nodes: Node[]): string {
  const quote = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
  const cases = nodes.map(({ path, words, flags, kind }) => {
    const items = [...words, ...flags].map((word) => quote(`${word.text.replaceAll(":", "\\:")}:${word.about}`));
    return `    "${path}") items=(${items.join(" ")})${kind ? ` kind=${kind}` : ""} ;;`;
  });
  return `#compdef forkd
# zsh completion of forkd:  source <(forkd completion zsh)
_forkd() {
  local -a items names
  local kind="" isValue=""
${findPath(nodes, "words", "1:$((CURRENT-2))", "_files")}
  case "$verb" in
${cases.join("\n")}
  esac
  case "$verb \${words[CURRENT-1]}" in
${valueKinds(nodes)}
  esac
  if [[ -n $kind && ( -n $isValue || $words[CURRENT] != -* ) ]]; then
    names=(\${(f)"$($words[1] completion candidates $kind 2>/dev/null)"})
    if [[ $kind == places ]]; then
      compadd -S '' -a names
      _files
      return
    fi
    compadd -a names
    return
  fi
  _describe 'forkd' items || _files
}
compdef _forkd forkd`;
}

function fish(nodes: Node[]): string {
  const quote = (text: string): string => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
  const candidates = (kind: Kind): string => quote(`(__forkd_candidates ${kind})`);
  const lines = nodes.flatMap(({ path, words, flags, kind }) => {
    const at = `complete -c forkd -n ${quote(`__forkd_at ${path}`.trim())}`;
    // the argument may also be a local file
    const onlyNames = kind === "places" ? "" : " -f";
    return [
      ...words.map((word) => `${at} -f -a ${word.text} -d ${quote(word.about)}`),
      ...(kind ? [`${at}${onlyNames} -a ${candidates(kind)}`] : []),
      ...flags.map(({ text, about, takesValue, kind: value }) => {
        const follows = value ? ` -x -a ${candidates(value)}` : takesValue ? " -r" : "";
        return `${at} -l ${text.slice(2)}${follows} -d ${quote(about)}`;
      }),
    ];
  });
  return `# fish completion of forkd:  forkd completion fish | source
function __forkd_at
  set -l typed (commandline -opc)
  set -l path
  for word in $typed[2..-1]
    test "$word" = "--"
    and return 1
    contains -- (string join ' ' $path $word) ${nodes
      .filter((node) => node.path)
      .map((node) => quote(node.path))
      .join(" ")}
    and set -a path $word
  end
  test "$path" = "$argv"
end
function __forkd_candidates
  set -l typed (commandline -opc)
  $typed[1] completion candidates $argv[1] 2>/dev/null
end
${lines.join("\n")}`;
}
