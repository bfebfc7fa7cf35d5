import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { clockWith } from '../../../lib/clock.ts';
import { type Config, parseConfig } from '../../../lib/config/config.ts';
import { createLogger } from '../../../lib/observe/log.ts';
import { type RunningProxy, startProxy } from '../../../lib/proxy.ts';
import { TIMES, type Times } from '../../../lib/times.ts';
import { type Simulator, type SimulatorOptions, startSimulator } from '../../../simulator/simulator.ts';
import { sharedHardware } from '../evidence/hardware.ts';
import { temporaryDirectory } from '../processes/temporary-directory.ts';
import { QUICK_PAUSES } from '../quick-pauses.ts';
import { deploymentFlags } from '../remote/remote.ts';
import { CANARY_KEY, searchLog } from './canaries.ts';
import { clientOptions, DOOR, openLibraryDoor } from './library-door.ts';

export { sharedHardware } from '../evidence/hardware.ts';

export interface Stack {
  readonly simulator: Simulator;
  /** Behind the library's door there is none, and whoever asks for it is told so. */
  readonly proxy: RunningProxy;
  /** http://127.0.0.1:PORT; behind the library's door a URL that only the global fetch knows. */
  readonly url: string;
  readonly directory: string;
  /** Everything that was logged, at level debug. */
  readonly logLines: readonly string[];
  close(): Promise<void>;
}

/**
 * A simulated deployment and a proxy in front of it, in this process, on ports of their own; or the door that
 * TEST_DOOR names.
 */
export async function startStack(
  options: {
    readonly simulator?: SimulatorOptions;
    readonly flags?: readonly string[];
    readonly apiKey?: string | null;
    /** The manifest comes from the simulator's CDN, not from a file. */
    readonly managedManifest?: boolean;
    /** Rows of lib/times.ts that are other ones here, beside QUICK_PAUSES. */
    readonly times?: Partial<Times>;
    readonly workspace?: string;
    /** Serves what stands in front of the simulator, under a certificate of an authority of its own. */
    readonly inFront?: (
      simulator: Simulator,
    ) => Promise<{ readonly port: number; readonly caPem: string; close(): Promise<void> }>;
  } = {},
): Promise<Stack> {
  const directory = temporaryDirectory('privatemode-test-');
  const simulator = await startSimulator({
    directory,
    hardware: await sharedHardware(),
    ...options.simulator,
  });
  const front = await options.inFront?.(simulator);
  const at = { port: front?.port ?? simulator.port, ca: `${simulator.caPem}\n${front?.caPem ?? ''}` };
  const caFile = join(directory, 'authorities.pem');
  writeFileSync(caFile, at.ca);
  const closeService = async (): Promise<void> => {
    await front?.close();
    await simulator.close();
  };
  const logLines: string[] = [];
  const apiKey = options.apiKey === undefined ? CANARY_KEY : options.apiKey;
  const configured = () =>
    parseConfig(
      [
        ...deploymentFlags(at.port, directory).filter(
          (flag) => options.managedManifest !== true || !flag.startsWith('--manifest-path'),
        ),
        ...(options.managedManifest === true ? [`--cdn-base-url=${simulator.url}`] : []),
        ...(options.workspace === undefined ? [] : [`--workspace=${options.workspace}`]),
        '--port=0',
        ...(apiKey === null ? [] : [`--api-key=${apiKey}`]),
        ...(options.flags ?? []),
      ],
      {},
    ).config;
  let config: Config;
  try {
    config = configured();
  } catch (refused) {
    await closeService();
    throw refused;
  }
  if (DOOR === 'library') {
    const door = openedDoor(clientOptions(simulator, at), directory, config, options);
    return {
      simulator,
      get proxy(): RunningProxy {
        throw new Error('no proxy runs behind the door of the library');
      },
      url: door.url,
      directory,
      logLines,
      async close() {
        await door.close();
        await closeService();
      },
    };
  }
  const proxy = await startProxy(config, {
    env: { SSL_CERT_FILE: caFile },
    log: createLogger({ format: 'json', level: 20, output: { write: (line) => logLines.push(line) } }),
    clock: clockWith({ ...TIMES, ...QUICK_PAUSES, ...options.times }),
    warmConnections: 0, // what is opened ahead would be counted as left behind
  }).catch(async (refused: unknown) => {
    await closeService();
    throw refused;
  });
  return {
    simulator,
    proxy,
    url: proxy.url,
    directory,
    logLines,
    async close() {
      await proxy.close();
      await closeService();
      searchLog(logLines.join(''), 'the proxy');
    },
  };
}

/** The client library in place of the proxy: what flags say of requests, its options say. */
const openedDoor = (
  deployment: ReturnType<typeof clientOptions>,
  directory: string,
  config: Config,
  { apiKey, managedManifest, times }: Parameters<typeof startStack>[0] & object,
) =>
  openLibraryDoor(
    {
      ...deployment,
      ...(apiKey === null ? {} : { apiKey: apiKey ?? CANARY_KEY }),
      ...(managedManifest === true ? {} : { manifest: readFileSync(join(directory, 'manifest.json')) }),
      gpuPolicy: {
        allowUnknown: config.gpuOcspAllowUnknown,
        gracePeriodHours: config.gpuOcspRevokedGracePeriod,
      },
      responsesApi: config.responsesApi,
      firstByteTimeout: config.firstByteTimeout,
      streamIdleTimeout: config.streamIdleTimeout,
    },
    times,
  );
