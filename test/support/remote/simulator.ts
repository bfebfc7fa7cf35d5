/** Simulated deployments for tests, and a plain HTTPS client to talk to them. */
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { TrustRoots } from '../../../lib/attestation/verify-evidence.ts';
import { type Simulator, type SimulatorOptions, startSimulator } from '../../../simulator/simulator.ts';
import { sharedHardware } from '../evidence/hardware.ts';

export { sharedHardware } from '../evidence/hardware.ts';

/** A simulator on the shared hardware unless told otherwise. The caller closes it. */
export async function startTestSimulator(options: SimulatorOptions = {}): Promise<Simulator> {
  return startSimulator({ hardware: await sharedHardware(), ...options });
}

/** Runs `use` against a simulator and closes it, whatever happens. */
export async function withSimulator(
  options: SimulatorOptions,
  use: (simulator: Simulator) => Promise<void>,
): Promise<void> {
  const simulator = await startTestSimulator(options);
  try {
    await use(simulator);
  } finally {
    await simulator.close();
  }
}

/** The roots of a simulator's hardware, for the verifier. */
export function rootsOf({ roots }: Simulator): TrustRoots {
  return { snp: { Genoa: { ark: roots.ark, ask: roots.ask } }, tdx: { root: roots.intel } };
}

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  /** 1xx answers before the head. */
  readonly informational: number;
  /** The code of the error with which the body broke off; undefined if it is whole. */
  readonly broken: string | undefined;
  json(): unknown;
}

/**
 * One request on a connection of its own, with the certificate checked against the simulator's CA. Rejects
 * where no head comes.
 */
export function call(
  { port, caPem }: Pick<Simulator, 'port' | 'caPem'>,
  method: string,
  path: string,
  options: { readonly headers?: Record<string, string>; readonly body?: string | Uint8Array } = {},
): Promise<Answer> {
  const { headers = {}, body: sent } = options;
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let informational = 0;
    let response: IncomingMessage | undefined;
    const settle = (error?: NodeJS.ErrnoException): void => {
      if (response === undefined) return void reject(error);
      const { statusCode: status = 0, headers: got } = response;
      const body = Buffer.concat(chunks);
      const json = (): unknown => JSON.parse(body.toString('utf8'));
      resolve({ status, headers: got, body, informational, broken: error?.code, json });
    };
    const outgoing = httpsRequest(
      {
        ...{ host: '127.0.0.1', servername: 'localhost', port, method, path, ca: caPem },
        ...{ agent: false, timeout: 120_000, headers },
      },
      (incoming) => {
        response = incoming;
        incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
        incoming.on('error', settle);
        incoming.on('end', () => settle());
      },
    );
    outgoing.on('information', () => informational++);
    outgoing.on('timeout', () => outgoing.destroy(new Error('the simulator did not answer')));
    outgoing.on('error', settle);
    // As text it would be written with the head, and the head then be UTF-8 too.
    outgoing.end(sent === undefined ? undefined : Buffer.from(sent));
  });
}

/** A call with a bearer token and a JSON body. */
export function post(
  simulator: Pick<Simulator, 'port' | 'caPem'>,
  path: string,
  body: unknown,
  key = 'any-key',
): Promise<Answer> {
  return call(simulator, 'POST', path, {
    headers: { authorization: `Bearer ${key}` },
    body: JSON.stringify(body),
  });
}

/** The attestation document for a nonce of 32 bytes. */
export async function attestationDocument(
  simulator: Pick<Simulator, 'port' | 'caPem'>,
  nonce: Uint8Array,
): Promise<Buffer> {
  const answer = await post(simulator, '/privatemode/v1/attest', {
    Nonce: Buffer.from(nonce).toString('base64'),
  });
  const { AttestationDoc } = answer.json() as { AttestationDoc: string };
  return Buffer.from(AttestationDoc, 'base64');
}
