/** A whole remote deployment in one process: CDN, attestation, secrets, inference, collateral. */
import { writeFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { isIP } from 'node:net';
import { join, resolve } from 'node:path';
import { amdKdsRoutes, intelPcsRoutes } from './collateral.ts';
import { controlRoutes } from './control.ts';
import { createDeployment, type Tee } from './deployment.ts';
import { hardwareIn, revisionIn, serviceModule, writeManifest, writeTrustAnchors } from './directory.ts';
import { createFaults } from './faults.ts';
import { createHardware, type Hardware } from './hardware.ts';
import { checkFaults } from './inference/faults.ts';
import { createInferenceHandler } from './inference/handler.ts';
import type { ModelOptions } from './inference/model.ts';
import { toPem } from './pki/certificate.ts';
import { issueServerCertificate } from './pki/tls.ts';
import { createRecorder } from './recorder.ts';
import { createSecretStore } from './secrets.ts';
import { startServer } from './server.ts';
import { trustRoutes } from './trust-api.ts';

export interface SimulatorOptions extends ModelOptions {
  /** Default: 127.0.0.1. */
  readonly host?: string | undefined;
  /** Default: 0, which takes any free port. */
  readonly port?: number;
  /** Further names for the TLS certificate, beside localhost, 127.0.0.1, ::1 and the host. */
  readonly hostNames?: readonly string[] | undefined;
  /** Where certificates, manifest, client options and hardware are kept. Without it, nothing is written. */
  readonly directory?: string;
  /** Hardware to run on. Default: that kept in the directory, or else new hardware (about a second). */
  readonly hardware?: Hardware;
  /** Hardware kind that the coordinator runs on. Default: snp. */
  readonly tee?: Tee;
  /** The only key to accept. Default: accept any key. */
  readonly apiKey?: string | undefined;
  /** Milliseconds. Default: one hour. */
  readonly secretLifetime?: number;
  /** Names and values for `Faults.parse`. */
  readonly faults?: Readonly<Record<string, unknown>>;
  /** Whether web pages of every origin may read the responses. Default: false. */
  readonly cors?: boolean | undefined;
  /** How many requests it records at most. Default: 1000. */
  readonly recorded?: number;
  /** Gets one line per finished request, never its content. */
  readonly log?: ((line: string) => void) | undefined;
}

export type Simulator = Awaited<ReturnType<typeof startSimulator>>;

const HOUR = 3_600_000;

const LOCAL_NAMES = ['localhost', '127.0.0.1', '::1'];
/** Hosts to listen on that `localhost` reaches: loopback, and all addresses. */
const REACHED_LOCALLY = new Set([...LOCAL_NAMES, '0.0.0.0', '::']);

/**
 * Starts a simulator. Rejects with config_invalid for a fault it does not know, and where it cannot listen.
 */
export async function startSimulator(options: SimulatorOptions = {}) {
  const directory = options.directory === undefined ? undefined : resolve(options.directory);
  const faults = createFaults(checkFaults);
  for (const [name, value] of Object.entries(options.faults ?? {})) faults.parse(name, value);
  const hardware =
    options.hardware ?? (directory === undefined ? await createHardware() : await hardwareIn(directory));

  let clockSkew = 0;
  let keys: readonly string[] | undefined = options.apiKey === undefined ? undefined : [options.apiKey];
  const now = (): number => Date.now() + clockSkew;
  const apiKeys = (key: string | undefined): boolean => key !== undefined && (keys?.includes(key) ?? true);

  const secrets = createSecretStore(options.secretLifetime ?? HOUR, now);
  const { recorder, tap } = createRecorder(options.recorded);
  const revision = directory === undefined ? 0 : await revisionIn(directory);
  const deployment = createDeployment({ hardware, revision, tee: options.tee ?? 'snp', faults, now });
  const counts = { manifest: 0, attest: 0, secret: 0, collateral: 0, inference: 0 };
  const inference = createInferenceHandler({ secrets, faults, now, apiKeys, model: options });

  /** Says how a request ended; `failure`: why its response failed, empty if it did not. */
  const logEnd = (request: IncomingMessage, response: ServerResponse, failure = (): string => ''): void => {
    response.once('close', () => {
      const status = response.headersSent ? response.statusCode : 'no answer';
      const why = failure() === '' ? '' : ` (${failure()})`;
      options.log?.(`${request.method} ${request.url?.split('?')[0]} ${status}${why}`);
    });
  };

  const saveManifest = async (): Promise<void> => {
    if (directory !== undefined)
      await writeManifest(directory, deployment.manifest().bytes, deployment.revision());
  };
  const running = {
    ...{ directory, hardware, secrets, recorder, faults },
    /** Requests per service since the start. */
    counts: counts as Readonly<Record<string, number>>,
    /** How the inference side handled each request, and which rules of the wire the request broke. */
    exchanges: inference.exchanges,
    /** The TLS CA. */
    caPem: toPem(hardware.roots.tlsCa),
    /** The active manifest, and its SHA-256 in lower-case hex. */
    get manifest(): Uint8Array {
      return deployment.manifest().bytes;
    },
    get manifestSha256(): string {
      return deployment.manifest().sha256;
    },
    /** A new deployment takes over: new manifest (also in the directory), new mesh. */
    rotateManifest(): Promise<void> {
      deployment.rotateManifest();
      return saveManifest();
    },
    /** The coordinator restarts: same manifest, new mesh. */
    rotateMesh: () => deployment.rotateMesh(),
    /** Sets how far the deployment's clock is ahead of the real one, in ms. */
    setClockSkew(milliseconds: number) {
      clockSkew = milliseconds;
    },
    /** undefined: accept any key. */
    setApiKeys(accepted: readonly string[] | undefined) {
      keys = accepted;
    },
  };

  if (directory !== undefined) await writeTrustAnchors(directory, hardware);
  await saveManifest();
  const { host = '127.0.0.1', hostNames = [] } = options;
  const ownNames = REACHED_LOCALLY.has(host) ? [] : [host];
  const server = await startServer({
    host,
    port: options.port ?? 0,
    tls: issueServerCertificate(hardware.keys, [...LOCAL_NAMES, ...ownNames, ...hostNames]),
    routes: [
      ...trustRoutes({ faults, deployment, secrets, apiKeys }),
      ...amdKdsRoutes(hardware, faults),
      ...intelPcsRoutes(hardware, faults),
      ...controlRoutes(running),
    ],
    inference(request, response, reset) {
      const exchange = inference(request, response, reset);
      logEnd(request, response, () => exchange.failure);
    },
    faults,
    cors: options.cors ?? false,
    onRequest({ request, response }, service) {
      counts[service] += 1;
      tap(request);
      if (service !== 'inference') logEnd(request, response);
    },
  });

  const [name = 'localhost'] = ownNames;
  const url = `https://${isIP(name) === 6 ? `[${name}]` : name}:${server.port}`;
  const { ark, ask, intelRoot } = hardware.roots;
  const roots = { ark: toPem(ark), ask: toPem(ask), intel: toPem(intelRoot) };
  if (directory !== undefined) await writeFile(join(directory, 'service.mjs'), serviceModule({ url, roots }));
  return Object.assign(running, server, { url, roots });
}
