/** Whether the Node that runs the program is recent enough. */

/** Line of Node → its oldest release that is recent enough: for 24 the security release of March 2026, for 26 the one that is tested. To be raised with each security release. */
const FLOORS: Readonly<Record<string, readonly [minor: number, patch: number]>> = {
  24: [14, 1],
  26: [10, 0],
};

/** What is wrong with a version of Node, as `process.versions.node` has it; undefined: nothing. */
export function runtimeDefect(version: string): string | undefined {
  const [line = '', minor = '', patch = ''] = version.split('.');
  const floor = FLOORS[line];
  if (floor === undefined) return `Node ${version} is of a line that this program is not tested with`;
  const [minorFloor, patchFloor] = floor;
  const isOlder = Number(minor) < minorFloor || (Number(minor) === minorFloor && Number(patch) < patchFloor);
  return isOlder ? `Node ${version} is older than ${line}.${minorFloor}.${patchFloor}` : undefined;
}
