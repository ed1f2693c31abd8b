// What a reader has chosen, kept in the page's address so that a link shows the same: zoom=loss:10:200, hide=loss:0

/** A list of `key:...` entries of one query parameter. */
export function chosen(name: string): Map<string, string> {
  const found = new Map<string, string>();
  for (const entry of new URLSearchParams(location.search).get(name)?.split(",") ?? []) {
    const at = entry.indexOf(":");
    if (at > 0) found.set(entry.slice(0, at), entry.slice(at + 1));
  }
  return found;
}

/** Put one entry into the address, or take it out. */
export function choose(name: string, key: string, value: string | null): void {
  const entries = chosen(name);
  if (value === null) entries.delete(key);
  else entries.set(key, value);
  setParameter(name, entries.size ? [[...entries].map(([key, value]) => `${key}:${value}`).join(",")] : []);
}

/** Set a query parameter to any number of values. */
export function setParameter(name: string, values: string[]): void {
  const query = new URLSearchParams(location.search);
  query.delete(name);
  for (const value of values) query.append(name, value);
  const text = query.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : "") + location.hash);
}
