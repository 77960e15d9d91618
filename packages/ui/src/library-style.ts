// Styles of libraries that are loaded on demand.

const added = new Set<string>();

export function addStyle(css: string): void {
  if (added.has(css)) return;
  added.add(css);
  const style = document.createElement("style");
  style.textContent = css;
  document.head.append(style);
}
