/**
 * The second door to the same tests: with TEST_DOOR=library a stack has no proxy. Its URL leads into the
 * client library instead, through the global fetch, which official clients and tests use.
 */
import { Agent, fetch as undiciFetch } from 'undici';
import { runtimeClock } from '../../../lib/client-library/clock.ts';
import { openFetch, type PrivatemodeFetch } from '../../../lib/client-library/fetch.ts';
import type { PrivatemodeOptions } from '../../../lib/client-library/options.ts';
import { ownOptions, readOptions } from '../../../lib/client-library/read-options.ts';
import { TIMES, type Times } from '../../../lib/times.ts';
import type { Simulator } from '../../../simulator/simulator.ts';
import { PROXY_ALONE } from '../../suites.ts';
import { QUICK_PAUSES } from '../quick-pauses.ts';

export const DOOR = process.env['TEST_DOOR'] === 'library' ? 'library' : 'proxy';

/** Behind the library's door the reason to step over this, for `skip` or a condition; else false. */
export const proxyAlone = (part: keyof typeof PROXY_ALONE): string | false =>
  DOOR === 'library' && PROXY_ALONE[part];

/** How request ids begin behind this door. */
export const CLIENT = DOOR === 'library' ? 'sdk' : 'proxy';

/** A fetch that goes through this dispatcher. */
export const fetchThrough = (dispatcher: Agent): typeof fetch =>
  ((input, init) => undiciFetch(input as string, { ...(init as object), dispatcher })) as typeof fetch;

/** The options of a client for this deployment; `port` and `ca` where something stands in front of it. */
export function clientOptions(
  simulator: Simulator,
  { port = simulator.port, ca = simulator.caPem }: { readonly port?: number; readonly ca?: string } = {},
): PrivatemodeOptions & { readonly network: Agent } {
  const network = new Agent({ connect: { ca } });
  const { ark, ask, intel } = simulator.roots;
  return {
    network,
    apiKey: 'library-key',
    apiEndpoint: `https://localhost:${port}`,
    cdnBaseUrl: simulator.url,
    collateralUrls: { amd: simulator.url, intel: simulator.url },
    unsafeTrustRoots: { snp: { Genoa: { ark, ask } }, tdx: { root: intel } },
    fetch: fetchThrough(network),
  };
}

/** The fetch of a client that waits for QUICK_PAUSES, and for `times`. */
export const fetchWith = (options: PrivatemodeOptions, times: Partial<Times> = {}): PrivatemodeFetch =>
  openFetch(
    readOptions(ownOptions(options), { ...runtimeClock, times: { ...TIMES, ...QUICK_PAUSES, ...times } }),
  );

const doors = new Map<string, typeof fetch>();
let installed = false;

/** Lets the global fetch take the URLs of doors to them. */
function install(): void {
  if (installed) return;
  installed = true;
  const network = globalThis.fetch;
  globalThis.fetch = (input, init) => {
    const url = String(input instanceof Request ? input.url : input);
    const door = [...doors].find(([origin]) => url.startsWith(origin))?.[1];
    return (door ?? network)(input, init);
  };
}

/** Opens a door for a client of these options. */
export function openLibraryDoor(
  { network, ...options }: ReturnType<typeof clientOptions>,
  times?: Partial<Times>,
) {
  install();
  const url = `http://library-${doors.size + 1}.invalid`;
  const door = fetchWith(options, times);
  doors.set(url, door);
  return {
    /** http://library-N.invalid: the global fetch takes it to the library. */
    url,
    fetch: door,
    async close(): Promise<void> {
      door.close();
      await network.destroy();
    },
  };
}
