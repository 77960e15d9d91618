// Command-line arguments generated from the fields of a request.

export function place(params: Record<string, string>, path: unknown): string {
  return `${params["id"]}:${text(path)}`;
}

export function as(fields: Record<string, unknown>): string[] {
  return options(fields, { user: "--user" });
}

export function fromTo(params: Record<string, string>, body: Record<string, unknown>): string[] {
  return [place(params, body["from"]), text(body["to"]), ...when(body["overwrite"], "-f"), ...as(body)];
}

export function ownerOf({ owner, group }: Record<string, unknown>): string {
  return `${owner === undefined ? "" : text(owner)}${group === undefined ? "" : `:${text(group)}`}`;
}

export function options(fields: Record<string, unknown>, names: Record<string, string>): string[] {
  return Object.entries(names).flatMap(([field, option]) => (fields[field] === undefined ? [] : [option, text(fields[field])]));
}

/** Options named like the fields, for all fields except those listed */
export function flags(fields: Record<string, unknown>, except: readonly string[]): string[] {
  const names = Object.keys(fields).filter((field) => !except.includes(field));
  return options(fields, Object.fromEntries(names.map((field) => [field, `--${field.replaceAll("_", "-")}`])));
}

export function sharesOf({ shares }: Record<string, unknown>): string[] {
  if (!Array.isArray(shares)) return [];
  const all = shares as { source: string; target: string }[];
  return all.length === 0 ? ["--no-shares"] : all.flatMap(({ source, target }) => ["--share", `${source}:${target}`]);
}

export function pairs(option: string, values: unknown): string[] {
  return Object.entries((values ?? {}) as Record<string, string>).flatMap(([key, value]) => [option, `${key}=${value}`]);
}

export function repeated(option: string, values: unknown): string[] {
  return values === undefined ? [] : [values].flat().flatMap((value) => [option, text(value)]);
}

export function when(flag: unknown, ...words: string[]): string[] {
  return flag === undefined || flag === false ? [] : words;
}

export function text(value: unknown): string {
  return String(value);
}

export function orNever(body: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(body).map(([key, value]) => [key, value === null ? "never" : value]));
}

export function network(given: unknown, mode: string): string[] {
  if (given === undefined) return [];
  const fields = given as Record<string, unknown>;
  return [
    ...options(fields, { mode, egress_limit_bytes: "--egress-limit" }),
    ...repeated("--allow", fields["allow"]),
    ...repeated("--deny", fields["deny"]),
  ];
}
