// Names of things that belong to a project, as they are stored: NAME in the project `default`, PROJECT/NAME in others.

export const DEFAULT_PROJECT = "default";
/** Stands for every project, in lists of an operator */
export const EVERY_PROJECT = "*";

/** The stored form of a name; a name that says its project keeps it */
export function storedName(name: string, project: string): string {
  const at = name.indexOf("/");
  const [owner, bare] = at < 0 ? [project, name] : [name.slice(0, at), name.slice(at + 1)];
  return owner === DEFAULT_PROJECT ? bare : `${owner}/${bare}`;
}

export function projectOf(stored: string): string {
  const at = stored.indexOf("/");
  return at < 0 ? DEFAULT_PROJECT : stored.slice(0, at);
}

/** The name as members of a project see it: without their own project, and with any other */
export function shownName(stored: string, project: string): string {
  const owner = projectOf(stored);
  if (owner !== project) return owner === DEFAULT_PROJECT ? `${owner}/${stored}` : stored;
  return stored.slice(stored.indexOf("/") + 1);
}

/** Whether something of this project belongs to a list of `wanted` */
export function isOf(project: string, wanted: string): boolean {
  return wanted === EVERY_PROJECT || project === wanted;
}
