/**
 * The values of the chart's table (deploy/chart/README.md), what each setting does to the pod, and
 * combinations of them.
 */
import assert from 'node:assert/strict';

export interface Container {
  readonly image: string;
  readonly args: readonly string[];
  readonly env?: readonly { readonly name: string; readonly value?: string }[];
  readonly ports: readonly { readonly name: string; readonly containerPort: number }[];
  readonly volumeMounts: readonly {
    readonly name: string;
    readonly mountPath: string;
    readonly subPath?: string;
    readonly readOnly?: boolean;
  }[];
  readonly readinessProbe: { readonly httpGet: { readonly path: string; readonly scheme: string } };
  readonly livenessProbe: { readonly httpGet: { readonly path: string; readonly scheme: string } };
  readonly startupProbe?: { readonly httpGet: { readonly path: string } };
  readonly lifecycle?: unknown;
  readonly securityContext: Readonly<Record<string, unknown>>;
}

export interface PodSpec {
  readonly containers: readonly [Container];
  readonly volumes: readonly Readonly<Record<string, unknown>>[];
  readonly securityContext: Readonly<Record<string, unknown>>;
  readonly automountServiceAccountToken: boolean;
  readonly terminationGracePeriodSeconds: number;
  readonly topologySpreadConstraints?: readonly Readonly<Record<string, unknown>>[];
}

/** A volume of the pod: how it is mounted, and what it comes from. */
type Mounted = readonly [mount: object, source: object];

/**
 * One setting of one value of the table: what is put under `config`, and what the pod has of it; undefined:
 * it has none.
 */
export interface Level {
  readonly config: Readonly<Record<string, unknown>>;
  readonly flags?: Readonly<Record<string, string | undefined>>;
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly volumes?: Readonly<Record<string, Mounted | undefined>>;
  /** Of the probes. */
  readonly scheme?: 'HTTP' | 'HTTPS';
}

/** The pod has what the level says. */
export function assertShown({ flags = {}, env = {}, volumes = {}, scheme }: Level, pod: PodSpec): void {
  const [{ args, env: variables = [], volumeMounts, readinessProbe, livenessProbe }] = pod.containers;
  for (const [name, value] of Object.entries(flags)) {
    const found = args.find((arg) => arg.startsWith(`--${name}=`));
    assert.equal(found, value === undefined ? undefined : `--${name}=${value}`);
  }
  for (const [name, value] of Object.entries(env))
    assert.equal(variables.find((entry) => entry.name === name)?.value, value, name);
  for (const [name, expected] of Object.entries(volumes)) {
    const mount = volumeMounts.find((entry) => entry.name === name);
    const volume = pod.volumes.find((entry) => entry['name'] === name);
    assert.deepEqual([mount, volume], expected?.map((each) => ({ name, ...each })) ?? [undefined, undefined]);
  }
  if (scheme !== undefined)
    for (const { httpGet } of [readinessProbe, livenessProbe]) assert.equal(httpGet.scheme, scheme);
}

const FILES = '/etc/privatemode-proxy';
const mountedAt = (mountPath: string, source: object): Mounted => [{ mountPath, readOnly: true }, source];
const secret = (secretName: string, more: object = {}) => ({
  secret: { secretName, defaultMode: 0o440, ...more },
});

const fallback = (value: string): Level => ({
  config: { apiKey: { fallback: value } },
  flags: { 'api-key-fallback': value || undefined },
});

const cors = (corsAllowedOrigins: readonly string[], value: string | undefined): Level => ({
  config: { corsAllowedOrigins },
  flags: { 'cors-allowed-origins': value },
});

const customCA = (secretName: string, configMapName: string, source: object): Level => ({
  config: { customCA: { enabled: true, secretName, configMapName, fileName: 'bundle.pem' } },
  env: { SSL_CERT_FILE: `${FILES}/custom-ca/bundle.pem` },
  volumes: { 'custom-ca': mountedAt(`${FILES}/custom-ca`, source) },
});

/** One list for each row of the table, or group of rows that belong together. */
export const FACTORS: Readonly<Record<string, readonly Level[]>> = {
  'config.apiKey.fallback': ['', 'never', 'always', 'if-placeholder'].map(fallback),
  'config.listenAddress': ['0.0.0.0', '::'].map((listenAddress) => ({
    config: { listenAddress },
    flags: { 'listen-address': listenAddress },
  })),
  'config.corsAllowedOrigins': [
    cors([], undefined),
    cors(
      ['https://chat.example.com', 'http://localhost:3000'],
      'https://chat.example.com,http://localhost:3000',
    ),
    cors(['*'], '*'),
  ],
  'config.sharedPromptCache': [
    {
      config: { sharedPromptCache: { enabled: false } },
      flags: { 'disable-prompt-cache': undefined, 'prompt-cache-salt': undefined },
    },
    {
      config: { sharedPromptCache: { enabled: true } },
      flags: { 'disable-prompt-cache': 'false', 'prompt-cache-salt': undefined },
    },
    {
      config: {
        sharedPromptCache: { enabled: true, promptCacheSalt: { enabled: true, secretName: 'my-salt' } },
      },
      flags: {
        'disable-prompt-cache': 'false',
        'prompt-cache-salt': `@${FILES}/prompt-cache-salt/promptCacheSalt`,
      },
      volumes: {
        'prompt-cache-salt': mountedAt(
          `${FILES}/prompt-cache-salt`,
          secret('my-salt', { items: [{ key: 'promptCacheSalt', path: 'promptCacheSalt' }] }),
        ),
      },
    },
  ],
  'config.workspace': [
    {
      config: { workspace: { enabled: false } },
      flags: { workspace: '/workspace' },
      volumes: { workspace: [{ mountPath: '/workspace' }, { emptyDir: {} }] },
    },
    {
      config: { workspace: { enabled: true, volumeClaimName: 'my-claim' } },
      flags: { workspace: '/workspace' },
      volumes: {
        workspace: [{ mountPath: '/workspace' }, { persistentVolumeClaim: { claimName: 'my-claim' } }],
      },
    },
  ],
  'config.receipts': [
    { config: { receipts: false }, flags: { receipts: undefined } },
    { config: { receipts: true }, flags: { receipts: 'true' } },
  ],
  'config.tls': [
    {
      config: { tls: { enabled: false } },
      flags: { 'tls-cert-path': undefined },
      scheme: 'HTTP',
    },
    {
      config: { tls: { enabled: true, secretName: 'my-tls' } },
      flags: { 'tls-cert-path': `${FILES}/tls/tls.crt`, 'tls-key-path': `${FILES}/tls/tls.key` },
      volumes: { tls: mountedAt(`${FILES}/tls`, secret('my-tls')) },
      scheme: 'HTTPS',
    },
  ],
  'config.customCA': [
    {
      config: { customCA: { enabled: false, secretName: 'unused' } },
      env: { SSL_CERT_FILE: undefined },
      volumes: { 'custom-ca': undefined },
    },
    customCA('my-ca', '', secret('my-ca')),
    customCA('', 'my-ca-map', { configMap: { name: 'my-ca-map' } }),
    customCA('my-ca', 'my-ca-map', { configMap: { name: 'my-ca-map' } }),
  ],
  'config.extraEnv': [
    { config: { extraEnv: [] }, env: { https_proxy: undefined } },
    {
      config: { extraEnv: [{ name: 'https_proxy', value: 'http://proxy.corp.example:3128' }] },
      env: { https_proxy: 'http://proxy.corp.example:3128' },
    },
  ],
  'config.manifest': [
    { config: { manifest: { enabled: false } }, flags: { 'manifest-path': undefined } },
    {
      config: {
        manifest: {
          enabled: true,
          configMapName: 'my-manifest',
          fileName: 'm.json',
          mountPath: '/etc/config/manifest.json',
        },
      },
      flags: { 'manifest-path': '/etc/config/manifest.json' },
      volumes: {
        manifest: [
          { mountPath: '/etc/config/manifest.json', subPath: 'm.json', readOnly: true },
          { configMap: { name: 'my-manifest' } },
        ],
      },
    },
  ],
};

/**
 * Combinations in which every pair of levels of two different factors occurs at least once. Greedy: each is
 * the one with the most pairs that are still missing.
 */
export function everyPair(factors: Readonly<Record<string, readonly Level[]>>): Level[][] {
  const lists = Object.values(factors);
  const combinations = lists.reduce<number[][]>(
    (rows, levels) => rows.flatMap((row) => [...levels.keys()].map((level) => [...row, level])),
    [[]],
  );
  const pairsOf = new Map(
    combinations.map((row) => [
      row,
      row.flatMap((a, f) => row.slice(f + 1).map((b, after) => `${f}.${a} ${f + 1 + after}.${b}`)),
    ]),
  );
  const missing = new Set([...pairsOf.values()].flat());
  const gain = (row: number[]): number => pairsOf.get(row)!.filter((pair) => missing.has(pair)).length;
  const chosen: number[][] = [];
  while (missing.size > 0) {
    const best = combinations.reduce((most, row) => (gain(row) > gain(most) ? row : most));
    for (const pair of pairsOf.get(best)!) missing.delete(pair);
    chosen.push(best);
  }
  return chosen.map((row) => row.map((level, f) => lists[f]![level]!));
}
