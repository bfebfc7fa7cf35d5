/** The values of the chart's table (deploy/chart/README.md), what each setting does to the pod, and combinations of them. */
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

/** One setting of one value of the table: what is put under `config`, and what must come of it. */
export interface Level {
  readonly config: Readonly<Record<string, unknown>>;
  readonly check: (pod: PodSpec) => void;
}

const flag = (pod: PodSpec, name: string): string | undefined =>
  pod.containers[0].args.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3);
const volume = (pod: PodSpec, name: string) => pod.volumes.find((entry) => entry['name'] === name);
const mount = (pod: PodSpec, name: string) =>
  pod.containers[0].volumeMounts.find((entry) => entry.name === name);
const env = (pod: PodSpec, name: string): string | undefined =>
  pod.containers[0].env?.find((entry) => entry.name === name)?.value;

const fallback = (value: string, expected: string | undefined): Level => ({
  config: { apiKey: { fallback: value } },
  check: (pod) => assert.equal(flag(pod, 'api-key-fallback'), expected),
});

const cors = (origins: readonly string[], expected: string | undefined): Level => ({
  config: { corsAllowedOrigins: origins },
  check: (pod) => assert.equal(flag(pod, 'cors-allowed-origins'), expected),
});

const customCA = (secretName: string, configMapName: string, source: Record<string, unknown>): Level => ({
  config: { customCA: { enabled: true, secretName, configMapName, fileName: 'bundle.pem' } },
  check: (pod) => {
    const { name, ...from } = volume(pod, 'custom-ca') as Record<string, unknown>;
    assert.equal(name, 'custom-ca');
    assert.deepEqual(from, source);
    assert.equal(env(pod, 'SSL_CERT_FILE'), `${mount(pod, 'custom-ca')?.mountPath}/bundle.pem`);
  },
});

/** One list for each row of the table, or group of rows that belong together. */
export const FACTORS: Readonly<Record<string, readonly Level[]>> = {
  'config.apiKey.fallback': [
    fallback('', undefined),
    fallback('never', 'never'),
    fallback('always', 'always'),
    fallback('if-placeholder', 'if-placeholder'),
  ],
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
      check: (pod) => {
        assert.equal(flag(pod, 'disable-prompt-cache'), undefined);
        assert.equal(flag(pod, 'prompt-cache-salt'), undefined);
      },
    },
    {
      config: { sharedPromptCache: { enabled: true } },
      check: (pod) => {
        assert.equal(flag(pod, 'disable-prompt-cache'), 'false');
        assert.equal(flag(pod, 'prompt-cache-salt'), undefined);
      },
    },
    {
      config: {
        sharedPromptCache: { enabled: true, promptCacheSalt: { enabled: true, secretName: 'my-salt' } },
      },
      check: (pod) => {
        const path = mount(pod, 'prompt-cache-salt')?.mountPath;
        assert.equal(flag(pod, 'disable-prompt-cache'), 'false');
        assert.equal(flag(pod, 'prompt-cache-salt'), `@${path}/promptCacheSalt`);
        assert.deepEqual(volume(pod, 'prompt-cache-salt')?.['secret'], {
          secretName: 'my-salt',
          defaultMode: 0o440,
          items: [{ key: 'promptCacheSalt', path: 'promptCacheSalt' }],
        });
      },
    },
  ],
  'config.workspace': [
    {
      config: { workspace: { enabled: false } },
      check: (pod) => {
        assert.deepEqual(volume(pod, 'workspace')?.['emptyDir'], {});
        assert.equal(mount(pod, 'workspace')?.readOnly, undefined);
        assert.equal(flag(pod, 'workspace'), mount(pod, 'workspace')?.mountPath);
      },
    },
    {
      config: { workspace: { enabled: true, volumeClaimName: 'my-claim' } },
      check: (pod) => {
        assert.deepEqual(volume(pod, 'workspace')?.['persistentVolumeClaim'], { claimName: 'my-claim' });
        assert.equal(flag(pod, 'workspace'), mount(pod, 'workspace')?.mountPath);
      },
    },
  ],
  'config.receipts': [
    {
      config: { receipts: false },
      check: (pod) => assert.equal(flag(pod, 'receipts'), undefined),
    },
    {
      config: { receipts: true },
      check: (pod) => assert.equal(flag(pod, 'receipts'), 'true'),
    },
  ],
  'config.tls': [
    {
      config: { tls: { enabled: false } },
      check: (pod) => {
        assert.equal(flag(pod, 'tls-cert-path'), undefined);
        assert.equal(pod.containers[0].readinessProbe.httpGet.scheme, 'HTTP');
      },
    },
    {
      config: { tls: { enabled: true, secretName: 'my-tls' } },
      check: (pod) => {
        const path = mount(pod, 'tls')?.mountPath;
        assert.equal(flag(pod, 'tls-cert-path'), `${path}/tls.crt`);
        assert.equal(flag(pod, 'tls-key-path'), `${path}/tls.key`);
        assert.deepEqual(volume(pod, 'tls')?.['secret'], { secretName: 'my-tls', defaultMode: 0o440 });
        assert.equal(pod.containers[0].readinessProbe.httpGet.scheme, 'HTTPS');
        assert.equal(pod.containers[0].livenessProbe.httpGet.scheme, 'HTTPS');
      },
    },
  ],
  'config.customCA': [
    {
      config: { customCA: { enabled: false, secretName: 'unused' } },
      check: (pod) => {
        assert.equal(volume(pod, 'custom-ca'), undefined);
        assert.equal(env(pod, 'SSL_CERT_FILE'), undefined);
      },
    },
    customCA('my-ca', '', { secret: { secretName: 'my-ca', defaultMode: 0o440 } }),
    customCA('', 'my-ca-map', { configMap: { name: 'my-ca-map' } }),
    customCA('my-ca', 'my-ca-map', { configMap: { name: 'my-ca-map' } }),
  ],
  'config.extraEnv': [
    { config: { extraEnv: [] }, check: (pod) => assert.equal(env(pod, 'https_proxy'), undefined) },
    {
      config: { extraEnv: [{ name: 'https_proxy', value: 'http://proxy.corp.example:3128' }] },
      check: (pod) => assert.equal(env(pod, 'https_proxy'), 'http://proxy.corp.example:3128'),
    },
  ],
  'config.manifest': [
    {
      config: { manifest: { enabled: false } },
      check: (pod) => assert.equal(flag(pod, 'manifest-path'), undefined),
    },
    {
      config: {
        manifest: {
          enabled: true,
          configMapName: 'my-manifest',
          fileName: 'm.json',
          mountPath: '/etc/config/manifest.json',
        },
      },
      check: (pod) => {
        assert.equal(flag(pod, 'manifest-path'), '/etc/config/manifest.json');
        assert.deepEqual(volume(pod, 'manifest')?.['configMap'], { name: 'my-manifest' });
        assert.deepEqual(mount(pod, 'manifest'), {
          name: 'manifest',
          mountPath: '/etc/config/manifest.json',
          subPath: 'm.json',
          readOnly: true,
        });
      },
    },
  ],
};

/**
 * Combinations in which every pair of levels of two different factors occurs at least once. Greedy: each combination takes
 * a pair that is still missing, and fills up with the levels that bring the most other missing pairs.
 */
export function everyPair(factors: Readonly<Record<string, readonly Level[]>>): Level[][] {
  const lists = Object.values(factors);
  const missing = new Set<string>();
  const pair = (f: number, a: number, g: number, b: number): string =>
    f < g ? `${f}.${a} ${g}.${b}` : `${g}.${b} ${f}.${a}`;
  for (const [f, levels] of lists.entries()) {
    for (let g = f + 1; g < lists.length; g++) {
      for (const a of levels.keys()) for (const b of lists[g]!.keys()) missing.add(pair(f, a, g, b));
    }
  }
  const rows: Level[][] = [];
  while (missing.size > 0) {
    const chosen = new Map<number, number>();
    const [first] = missing;
    for (const part of first!.split(' ')) {
      const [factor, level] = part.split('.').map(Number) as [number, number];
      chosen.set(factor, level);
    }
    for (const [g, levels] of lists.entries()) {
      if (chosen.has(g)) continue;
      const gain = (b: number): number =>
        [...chosen].filter(([f, a]) => missing.has(pair(f, a, g, b))).length;
      chosen.set(
        g,
        [...levels.keys()].reduce((best, b) => (gain(b) > gain(best) ? b : best), 0),
      );
    }
    for (const [f, a] of chosen) for (const [g, b] of chosen) missing.delete(pair(f, a, g, b));
    rows.push(lists.map((levels, f) => levels[chosen.get(f)!]!));
  }
  return rows;
}
