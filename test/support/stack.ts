import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseConfig } from '../../lib/config/config.ts';
import { createLogger } from '../../lib/observe/log.ts';
import { type RunningProxy, startProxy } from '../../lib/proxy.ts';
import type { Lifetimes } from '../../lib/session/epoch.ts';
import { createHardware, type Hardware } from '../../simulator/hardware.ts';
import { type Simulator, type SimulatorOptions, startSimulator } from '../../simulator/simulator.ts';
import { CANARY_KEY, searchLog } from './canaries.ts';

let hardware: Promise<Hardware> | undefined;

/** Hardware keys are slow to make: one machine serves all the tests of a process. */
export const sharedHardware = (): Promise<Hardware> => {
  hardware ??= createHardware();
  return hardware;
};

export interface Stack {
  readonly simulator: Simulator;
  readonly proxy: RunningProxy;
  /** http://127.0.0.1:PORT */
  readonly url: string;
  readonly directory: string;
  /** Everything that was logged, at level debug. */
  readonly logLines: readonly string[];
  close(): Promise<void>;
}

/** A simulated deployment and a proxy in front of it, in this process, on ports of their own. */
export async function startStack(
  options: {
    readonly simulator?: SimulatorOptions;
    readonly flags?: readonly string[];
    readonly apiKey?: string | null;
    /** The manifest comes from the simulator's CDN, not from a file. */
    readonly managedManifest?: boolean;
    readonly lifetimes?: Lifetimes;
    readonly epochTimeout?: number;
    readonly workspace?: string;
  } = {},
): Promise<Stack> {
  const directory = mkdtempSync(join(tmpdir(), 'privatemode-test-'));
  const simulator = await startSimulator({
    directory,
    hardware: await sharedHardware(),
    ...options.simulator,
  });
  const logLines: string[] = [];
  const apiKey = options.apiKey === undefined ? CANARY_KEY : options.apiKey;
  const { config } = parseConfig(
    [
      `--api-endpoint=localhost:${simulator.port}`,
      options.managedManifest === true
        ? `--cdn-base-url=${simulator.url}`
        : `--manifest-path=${join(directory, 'manifest.json')}`,
      `--unsafe-trust-roots=${join(directory, 'roots')}`,
      `--workspace=${options.workspace ?? join(directory, 'workspace')}`,
      '--listen-address=127.0.0.1',
      '--port=0',
      ...(apiKey === null ? [] : [`--api-key=${apiKey}`]),
      ...(options.flags ?? []),
    ],
    {},
  );
  const proxy = await startProxy(config, {
    env: { SSL_CERT_FILE: join(directory, 'ca.pem') },
    log: createLogger({ format: 'json', level: 20, output: { write: (line) => logLines.push(line) } }),
    ...(options.lifetimes === undefined ? {} : { lifetimes: options.lifetimes }),
    ...(options.epochTimeout === undefined ? {} : { epochTimeout: options.epochTimeout }),
  }).catch(async (refused: unknown) => {
    await simulator.close();
    rmSync(directory, { recursive: true, force: true });
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
      await simulator.close();
      rmSync(directory, { recursive: true, force: true });
      searchLog(logLines.join(''), 'the proxy');
    },
  };
}
