/**
 * A simulated deployment for programs in other processes: where it is, and what they must be told to trust
 * it.
 */
import { join } from 'node:path';
import { type SimulatorOptions, startSimulator } from '../../../simulator/simulator.ts';
import { CANARY_KEY } from '../doors/canaries.ts';
import { sharedHardware } from '../evidence/hardware.ts';
import { temporaryDirectory } from '../processes/temporary-directory.ts';

/** Whom to ask at that port, what to trust, and where to write: all of it in the directory of a simulator. */
export const deploymentFlags = (port: number, directory: string, workspace = 'workspace'): string[] => [
  `--api-endpoint=localhost:${port}`,
  `--manifest-path=${join(directory, 'manifest.json')}`,
  `--unsafe-trust-roots=${join(directory, 'roots')}`,
  `--workspace=${join(directory, workspace)}`,
  '--listen-address=127.0.0.1',
];

/** `apiKey`: that of the proxy, null for none. Gives the flags and the environment for that proxy. */
export async function startRemote({
  apiKey = CANARY_KEY,
  ...options
}: Omit<SimulatorOptions, 'apiKey'> & { readonly apiKey?: string | null } = {}) {
  const directory = temporaryDirectory('privatemode-remote-');
  const simulator = await startSimulator({ directory, hardware: await sharedHardware(), ...options });
  return {
    simulator,
    directory,
    flags: [
      ...deploymentFlags(simulator.port, directory),
      ...(apiKey === null ? [] : [`--api-key=${apiKey}`]),
    ],
    env: { SSL_CERT_FILE: join(directory, 'ca.pem') },
    close: () => simulator.close(),
  };
}

export type Remote = Awaited<ReturnType<typeof startRemote>>;
