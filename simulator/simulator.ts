/**
 * A whole remote deployment in one process: CDN, attestation, secret service, inference and vendors'
 * collateral.
 */
import { resolve } from 'node:path';
import { amdKdsRoutes } from './collateral/amd-kds.ts';
import { intelPcsRoutes } from './collateral/intel-pcs.ts';
import type { ModelOptions } from './context.ts';
import { controlRoutes } from './control.ts';
import { createDeployment, type Tee } from './deployment.ts';
import { hardwareIn, writeManifest, writeTrustAnchors } from './directory.ts';
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
  /** 127.0.0.1 unless given. */
  readonly host?: string;
  /** 0, the default, takes any free port. */
  readonly port?: number;
  /** Further names for the TLS certificate, beside localhost, 127.0.0.1 and ::1. */
  readonly hostNames?: readonly string[];
  /** Where certificates and the manifest are written, and hardware is kept; nothing is written without it. */
  readonly directory?: string;
  /** Hardware to run on; otherwise that of the directory, otherwise new (about a second). */
  readonly hardware?: Hardware;
  /** What the coordinator runs on; snp unless given. */
  readonly tee?: Tee;
  /** The one key that is accepted; any, unless given. */
  readonly apiKey?: string;
  /** Milliseconds; one hour unless given. */
  readonly secretLifetime?: number;
  /** Names and values for `Faults.parse`. */
  readonly faults?: Readonly<Record<string, unknown>>;
  /** Answers web pages of every origin; false unless given. */
  readonly cors?: boolean;
  readonly backend?: string;
  readonly transcripts?: string;
  /** Answers requests for models of any name; true unless given. */
  readonly anyName?: boolean;
  readonly recorderLimits?: Partial<RecorderLimits>;
  /** Gets one line per answered request; never contents. */
  readonly log?: (line: string) => void;
}

export interface Simulator {
  readonly port: number;
  /** https://localhost:PORT; the manifest, the API and the vendors' collateral are all below it. */
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
  /** What the inference side made of each request, and the rules of the wire that were broken. */
  readonly exchanges: ExchangeLog;
  readonly faults: Faults;
  readonly secrets: MutableSecretStore;
  /** Answered requests per service since the start. */
  readonly counts: Readonly<Record<string, number>>;
  /** A new deployment takes over: new manifest (also in the directory), new mesh. */
  rotateManifest(): Promise<void>;
  /** The coordinator restarts: same manifest, new mesh. */
  rotateMesh(): void;
  /** How far the deployment's clock is ahead of ours, in ms. */
  setClockSkew(milliseconds: number): void;
  /** undefined: any key is accepted. */
  setApiKeys(keys: readonly string[] | undefined): void;
  /** Ends the connections that wait for a next request. */
  closeIdleConnections(): void;
  /** Ends every connection and resolves when nothing is left; the directory stays. */
  close(): Promise<void>;
}

const HOUR = 3_600_000;

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
  const deployment = createDeployment({ hardware, tee: options.tee ?? 'snp', faults, now });
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

  const saveManifest = async (): Promise<void> => {
    if (directory !== undefined) await writeManifest(directory, deployment.manifest().bytes);
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
  const server = await startServer({
    host: options.host ?? '127.0.0.1',
    port: options.port ?? 0,
    tls: issueServerCertificate(hardware.keys, [
      'localhost',
      '127.0.0.1',
      '::1',
      ...(options.hostNames ?? []),
    ]),
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
    inference,
    faults,
    cors: options.cors ?? false,
    connections,
    onRequest(request, response, service) {
      counts[service] += 1;
      tap(request);
      response.once('close', () => {
        options.log?.(
          `${request.method} ${request.url?.split('?')[0]} ${response.headersSent ? response.statusCode : 'no answer'}`,
        );
      });
    },
  });

  return {
    ...controls,
    port: server.port,
    url: `https://localhost:${server.port}`,
    directory,
    caPem: toPem(hardware.roots.tlsCa),
    get manifest() {
      return deployment.manifest().bytes;
    },
    get manifestSha256() {
      return deployment.manifest().sha256;
    },
    roots: {
      ark: toPem(hardware.roots.ark),
      ask: toPem(hardware.roots.ask),
      intel: toPem(hardware.roots.intelRoot),
    },
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

function modelOptions({ backend, transcripts, anyName = true }: SimulatorOptions): ModelOptions {
  return {
    anyName,
    ...(backend === undefined ? {} : { backend }),
    ...(transcripts === undefined ? {} : { transcripts }),
  };
}
