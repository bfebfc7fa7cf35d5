/**
 * A whole remote deployment in one process: CDN, attestation, secret service, inference, and the collateral
 * of AMD and Intel.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { isIP } from 'node:net';
import { resolve } from 'node:path';
import { amdKdsRoutes } from './collateral/amd-kds.ts';
import { intelPcsRoutes } from './collateral/intel-pcs.ts';
import type { ModelOptions } from './context.ts';
import { controlRoutes } from './control.ts';
import { createDeployment, type Tee } from './deployment.ts';
import { hardwareIn, revisionIn, writeManifest, writeService, writeTrustAnchors } from './directory.ts';
import { createFaults, type Faults } from './faults.ts';
import { createHardware, type Hardware } from './hardware.ts';
import type { ExchangeLog } from './inference/exchanges.ts';
import { checkFaults } from './inference/faults.ts';
import { createInferenceHandler } from './inference/handler.ts';
import { toPem } from './pki/certificate.ts';
import { issueServerCertificate } from './pki/tls.ts';
import { createRecorder, RECORDER_LIMITS, type Recorder, type RecorderLimits } from './recorder.ts';
import { createSecretStore, type MutableSecretStore } from './secrets.ts';
import { createConnectionTable, startServer } from './server.ts';
import { trustRoutes } from './trust-api.ts';

export interface SimulatorOptions {
  /** Default: 127.0.0.1. */
  readonly host?: string;
  /** Default: 0, which takes any free port. */
  readonly port?: number;
  /** Further names for the TLS certificate, beside localhost, 127.0.0.1, ::1 and the host. */
  readonly hostNames?: readonly string[];
  /**
   * Directory for the certificates, the manifest, the options of the client library and the hardware. Without
   * it, nothing is written.
   */
  readonly directory?: string;
  /**
   * Hardware to run on. Default: the hardware kept in the directory, or else new hardware (about a second).
   */
  readonly hardware?: Hardware;
  /** Hardware kind that the coordinator runs on. Default: snp. */
  readonly tee?: Tee;
  /** The only key to accept. Default: accept any key. */
  readonly apiKey?: string;
  /** Milliseconds. Default: one hour. */
  readonly secretLifetime?: number;
  /** Names and values for `Faults.parse`. */
  readonly faults?: Readonly<Record<string, unknown>>;
  /** Whether web pages of every origin may read the responses. Default: false. */
  readonly cors?: boolean;
  readonly backend?: string;
  readonly transcripts?: string;
  /** Whether models of any name are served. Default: true. */
  readonly anyName?: boolean;
  /** As `ModelOptions.edits`; for the demo, not an option of the command line. */
  readonly edits?: string;
  readonly recorderLimits?: Partial<RecorderLimits>;
  /** Gets one line per finished request, never its content. */
  readonly log?: (line: string) => void;
}

export interface Simulator {
  readonly port: number;
  /**
   * https://localhost:PORT, or with the host where localhost does not reach it: base URL of the manifest, the
   * API and the vendors' collateral.
   */
  readonly url: string;
  readonly directory: string | undefined;
  /** The TLS CA. */
  readonly caPem: string;
  /** The active manifest and its SHA-256 in lower-case hex. */
  readonly manifest: Uint8Array;
  readonly manifestSha256: string;
  /** The hardware roots, PEM. */
  readonly roots: { readonly ark: string; readonly ask: string; readonly intel: string };
  readonly hardware: Hardware;
  readonly recorder: Recorder;
  /** How the inference side handled each request, and which rules of the wire the request broke. */
  readonly exchanges: ExchangeLog;
  readonly faults: Faults;
  readonly secrets: MutableSecretStore;
  /** Requests per service since the start. */
  readonly counts: Readonly<Record<string, number>>;
  /** A new deployment takes over: new manifest (also in the directory), new mesh. */
  rotateManifest(): Promise<void>;
  /** The coordinator restarts: same manifest, new mesh. */
  rotateMesh(): void;
  /** Sets how far the deployment's clock is ahead of the real one, in ms. */
  setClockSkew(milliseconds: number): void;
  /** undefined: accept any key. */
  setApiKeys(keys: readonly string[] | undefined): void;
  /** Ends idle connections, which wait for a next request. */
  closeIdleConnections(): void;
  /** Ends every connection and resolves when all are closed; the directory stays. */
  close(): Promise<void>;
}

const HOUR = 3_600_000;

const LOCAL_NAMES = ['localhost', '127.0.0.1', '::1'];
/** Hosts to listen on that `localhost` reaches: loopback, and all addresses. */
const REACHED_LOCALLY = new Set([...LOCAL_NAMES, '0.0.0.0', '::']);

/**
 * Starts a simulator. Rejects with config_invalid for a fault it does not know, and where it cannot listen.
 */
export async function startSimulator(options: SimulatorOptions = {}): Promise<Simulator> {
  const directory = options.directory === undefined ? undefined : resolve(options.directory);
  const faults = createFaults(checkFaults);
  for (const [name, value] of Object.entries(options.faults ?? {})) faults.parse(name, value);
  const hardware =
    options.hardware ?? (directory === undefined ? await createHardware() : await hardwareIn(directory));

  let clockSkew = 0;
  let apiKeys = options.apiKey === undefined ? undefined : [options.apiKey];
  const now = (): number => Date.now() + clockSkew;
  const acceptsKey = (key: string | undefined): boolean =>
    key !== undefined && (apiKeys === undefined || apiKeys.includes(key));

  const secrets = createSecretStore(options.secretLifetime ?? HOUR, now);
  const { recorder, tap } = createRecorder({ ...RECORDER_LIMITS, ...options.recorderLimits });
  const revision = directory === undefined ? 0 : await revisionIn(directory);
  const deployment = createDeployment({ hardware, revision, tee: options.tee ?? 'snp', faults, now });
  const counts = { manifest: 0, attest: 0, secret: 0, collateral: 0, inference: 0 };
  const connections = createConnectionTable();
  const inference = createInferenceHandler({
    secrets,
    recorder,
    faults,
    now,
    apiKeys: acceptsKey,
    reset: connections.reset,
    model: modelOptions(options),
  });

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
  const controls = {
    rotateManifest() {
      deployment.rotateManifest();
      return saveManifest();
    },
    rotateMesh: () => deployment.rotateMesh(),
    setClockSkew(milliseconds: number) {
      clockSkew = milliseconds;
    },
    setApiKeys(keys: readonly string[] | undefined) {
      apiKeys = keys === undefined ? undefined : [...keys];
    },
  };

  if (directory !== undefined) await writeTrustAnchors(directory, hardware);
  await saveManifest();
  const { host = '127.0.0.1' } = options;
  const ownNames = REACHED_LOCALLY.has(host) ? [] : [host];
  const server = await startServer({
    host,
    port: options.port ?? 0,
    tls: issueServerCertificate(hardware.keys, [...LOCAL_NAMES, ...ownNames, ...(options.hostNames ?? [])]),
    routes: [
      ...trustRoutes({ faults, deployment, secrets, apiKeys: acceptsKey }),
      ...amdKdsRoutes(hardware, faults),
      ...intelPcsRoutes(hardware, faults),
      ...controlRoutes({
        ...controls,
        secrets,
        recorder,
        exchanges: inference.exchanges,
        faults,
        counts,
        manifestSha256: () => deployment.manifest().sha256,
        clockSkew: () => clockSkew,
      }),
    ],
    inference(request, response) {
      const exchange = inference(request, response);
      logEnd(request, response, () => exchange.failure);
    },
    faults,
    cors: options.cors ?? false,
    connections,
    onRequest(request, response, service) {
      counts[service] += 1;
      tap(request);
      if (service !== 'inference') logEnd(request, response);
    },
  });

  const [name = 'localhost'] = ownNames;
  const url = `https://${isIP(name) === 6 ? `[${name}]` : name}:${server.port}`;
  const roots = {
    ark: toPem(hardware.roots.ark),
    ask: toPem(hardware.roots.ask),
    intel: toPem(hardware.roots.intelRoot),
  };
  if (directory !== undefined) await writeService(directory, { url, roots });
  return {
    ...controls,
    port: server.port,
    url,
    directory,
    caPem: toPem(hardware.roots.tlsCa),
    get manifest() {
      return deployment.manifest().bytes;
    },
    get manifestSha256() {
      return deployment.manifest().sha256;
    },
    roots,
    hardware,
    recorder,
    exchanges: inference.exchanges,
    faults,
    secrets,
    counts,
    closeIdleConnections: () => server.closeIdleConnections(),
    close: () => server.close(),
  };
}

function modelOptions({ backend, transcripts, anyName = true, edits }: SimulatorOptions): ModelOptions {
  return {
    anyName,
    ...(edits === undefined ? {} : { edits }),
    ...(backend === undefined ? {} : { backend }),
    ...(transcripts === undefined ? {} : { transcripts }),
  };
}
