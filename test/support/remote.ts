/** A simulated deployment for programs in other processes: where it is, and what they must be told to trust it. */
import { join } from 'node:path';
import { type Simulator, startSimulator } from '../../simulator/simulator.ts';
import { CANARY_KEY } from './canaries.ts';
import { sharedHardware } from './stack.ts';
import { temporaryDirectory } from './temporary-directory.ts';

export interface Remote {
  readonly simulator: Simulator;
  readonly directory: string;
  /** For the proxy. */
  readonly flags: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  close(): Promise<void>;
}

export async function startRemote(): Promise<Remote> {
  const directory = temporaryDirectory('privatemode-remote-');
  const simulator = await startSimulator({ directory, hardware: await sharedHardware() });
  return {
    simulator,
    directory,
    flags: [
      `--api-endpoint=localhost:${simulator.port}`,
      `--manifest-path=${join(directory, 'manifest.json')}`,
      `--unsafe-trust-roots=${join(directory, 'roots')}`,
      `--workspace=${join(directory, 'workspace')}`,
      `--api-key=${CANARY_KEY}`,
      '--listen-address=127.0.0.1',
    ],
    env: { SSL_CERT_FILE: join(directory, 'ca.pem') },
    async close() {
      await simulator.close();
    },
  };
}
