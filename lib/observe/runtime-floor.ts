/** The first release of each major version of Node with all security fixes known so far (SECURITY.md). */
export const NODE_FLOORS: Readonly<Record<string, string>> = { 24: '24.22.3', 26: '26.13.1' };

/** Returns what is wrong with a release of Node, such as 24.9.0, or undefined if nothing is wrong. */
export function runtimeDefect(version: string): string | undefined {
  const floor = NODE_FLOORS[version.split('.', 1)[0] as string];
  if (floor === undefined) return `Node ${version} is of a line that this program is not tested with`;
  if (version.localeCompare(floor, 'en', { numeric: true }) >= 0) return undefined;
  return `Node ${version} is older than ${floor} and lacks security fixes: SECURITY.md says what to do`;
}
