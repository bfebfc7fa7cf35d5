import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { HELM, refusal, render, type Values } from './support/helm.ts';

const config = (values: Values): Values => ({ config: values });
const fromSecret = (name: string): Values => ({
  name,
  valueFrom: { secretKeyRef: { name: 's', key: 'k' } },
});
const claim = (more: Values): Values =>
  config({ workspace: { enabled: true, volumeClaimName: 'c', ...more } });

/** Values, and words that the refusal must contain. */
const REFUSED: Readonly<Record<string, readonly [values: Values, ...words: string[]]>> = {
  'an unknown fallback mode': [
    config({ apiKey: { fallback: 'sometimes' } }),
    '/config/apiKey/fallback',
    'if-placeholder',
  ],
  'a misspelt key in config': [config({ apikey: {} }), "/config'", 'apikey', 'not allowed'],
  'a misspelt section of the clients': [
    { client: { existingSecret: 'privatemode-clients' } },
    "'client' not allowed",
  ],
  'a misspelt section of the limits': [{ limit: { maxInFlight: 5 } }, "'limit' not allowed"],
  'a misspelt network policy': [{ networkpolicy: { enabled: true } }, "'networkpolicy' not allowed"],
  'a section of config at the top level': [{ tls: { enabled: true } }, "'tls' not allowed"],
  'an ingress and a service account, which other charts have': [
    { ingress: { enabled: false }, serviceAccount: { create: true } },
    'ingress: this chart has none',
    'serviceAccount: this chart has none',
    'serviceAccountName',
  ],
  'the image that the values of the vendor pin': [
    { image: { image: 'ghcr.io/edgelesssys/privatemode/privatemode-proxy@sha256:0' } },
    'image.image',
    'Leave it out',
  ],
  'preStopSeconds of earlier versions': [{ preStopSeconds: 5 }, 'set shutdownDelaySeconds'],
  'a network policy that closes the port of the limits store': [
    {
      networkPolicy: { enabled: true },
      clients: { existingSecret: 'c' },
      limits: { store: { existingSecret: 'r' } },
    },
    'closes the port of limits.store',
    'networkPolicy.extraEgress',
  ],
  ...Object.fromEntries(
    ['https_proxy', 'HTTPS_PROXY'].map((name) => [
      `a network policy that closes the port of an ${name} from a secret`,
      [
        { networkPolicy: { enabled: true }, ...config({ extraEnv: [fromSecret(name)] }) },
        `closes the port of ${name}`,
        'networkPolicy.extraEgress',
      ],
    ]),
  ),
  'a network policy that closes the port of an https_proxy that ends in a variable': [
    {
      networkPolicy: { enabled: true },
      ...config({ extraEnv: [{ name: 'https_proxy', value: 'http://proxy:$(PORT)/' }] }),
    },
    'closes the port of https_proxy',
  ],
  'a misspelt key below config': [config({ tls: { enable: true } }), '/config/tls', "'enable' not allowed"],
  'a misspelt key in another section of the chart': [
    { metrics: { enable: true } },
    '/metrics',
    "'enable' not allowed",
  ],
  'an origin with a path': [
    config({ corsAllowedOrigins: ['https://a.example/x'] }),
    '/config/corsAllowedOrigins/0',
  ],
  'an origin without a scheme': [
    config({ corsAllowedOrigins: ['a.example'] }),
    '/config/corsAllowedOrigins/0',
  ],
  'origins as one string': [
    config({ corsAllowedOrigins: 'https://a.example' }),
    '/config/corsAllowedOrigins',
    'want array',
  ],
  'a wildcard among origins': [
    config({ corsAllowedOrigins: ['*', 'https://a.example'] }),
    "'*' allows every origin already",
  ],
  'a salt for a cache that is not shared': [
    config({ sharedPromptCache: { promptCacheSalt: { enabled: true } } }),
    'Set config.sharedPromptCache.enabled as well',
  ],
  'a number in place of a name': [
    config({ tls: { secretName: 7 } }),
    '/config/tls/secretName',
    'want string',
  ],
  'a name that Kubernetes does not allow': [
    config({ tls: { secretName: 'My_Secret' } }),
    '/config/tls/secretName',
  ],
  'a string in place of a boolean': [
    config({ tls: { enabled: 'yes' } }),
    '/config/tls/enabled',
    'want boolean',
  ],
  'a custom CA without the object that holds it': [
    config({ customCA: { enabled: true } }),
    'config.customCA.configMapName or config.customCA.secretName',
  ],
  'a custom CA beside another SSL_CERT_FILE': [
    config({
      customCA: { enabled: true, secretName: 's' },
      extraEnv: [{ name: 'SSL_CERT_FILE', value: '/x' }],
    }),
    'SSL_CERT_FILE',
    'Use one of the two',
  ],
  'an environment entry without a value': [
    config({ extraEnv: [{ name: 'https_proxy' }] }),
    '/config/extraEnv/0',
  ],
  'an environment value that is no text': [
    config({ extraEnv: [{ name: 'X', value: 1 }] }),
    '/config/extraEnv/0/value',
    'want string',
  ],
  'a relative manifest path': [
    config({ manifest: { enabled: true, mountPath: 'manifest.json' } }),
    '/config/manifest/mountPath',
  ],
  'a missing section': [{ config: { tls: null } }, "missing property 'tls'"],
  'several replicas on a ReadWriteOnce claim': [
    { ...claim({}), replicaCount: 2 },
    'replicaCount is 2',
    'ReadWriteOnce',
    'ReadWriteMany',
    'set replicaCount to 1',
  ],
  'several replicas on a ReadWriteOncePod claim': [
    { ...claim({ accessMode: 'ReadWriteOncePod' }), replicaCount: 2 },
    'ReadWriteOncePod',
    'set replicaCount to 1',
  ],
  'an unknown access mode': [
    claim({ accessMode: 'ReadOnlyMany' }),
    '/config/workspace/accessMode',
    'ReadWriteMany',
  ],
  'a store of limits without clients': [
    { limits: { store: { existingSecret: 'r' } } },
    'limits.store.existingSecret',
    'clients.existingSecret',
  ],
  'a misspelt key of the clients': [
    { clients: { secretName: 'c' } },
    "/clients'",
    "'secretName' not allowed",
  ],
  'a misspelt key of the limits': [{ limits: { maxInflight: 1 } }, "/limits'", "'maxInflight' not allowed"],
  'a URL of the limits store in place of the secret with it': [
    { limits: { store: 'redis://r' } },
    '/limits/store',
    'want object',
  ],
  'a negative maxInFlight': [{ limits: { maxInFlight: -1 } }, '/limits/maxInFlight'],
  'an unknown storeFailure': [{ limits: { storeFailure: 'ignore' } }, '/limits/storeFailure', 'closed'],
  'the file of the clients as a flag': [{ extraArgs: ['--clients=/x'] }, '--clients is set by the chart'],
  'a flag that the chart sets': [{ extraArgs: ['--port=1'] }, '--port is set by the chart'],
  'the API key as a flag in its older spelling': [
    { extraArgs: ['--apiKey=sk-1'] },
    '--apiKey is set by the chart',
  ],
  'an argument that is no flag': [{ extraArgs: ['healthcheck'] }, '/extraArgs/0'],
  'metrics on the port of the API': [
    { metrics: { enabled: true, port: 8080 } },
    'metrics.port and config.port are the same',
  ],
  'a ServiceMonitor without metrics': [
    { metrics: { serviceMonitor: { enabled: true } } },
    'nothing to monitor',
    'Install the Prometheus operator',
  ],
  'a dashboard without metrics': [
    { metrics: { dashboard: { enabled: true } } },
    'metrics.dashboard.enabled',
    'nothing to show',
  ],
  'a label that no object can have': [
    { metrics: { enabled: true, dashboard: { enabled: true, label: 'a b' } } },
    '/metrics/dashboard/label',
  ],
  'a number as the value of a label': [
    { metrics: { enabled: true, dashboard: { enabled: true, labelValue: 1 } } },
    '/metrics/dashboard/labelValue',
    'want string',
  ],
  'alert rules without metrics': [
    { metrics: { rules: { enabled: true } } },
    'metrics.rules.enabled',
    'nothing to watch',
    'Install the Prometheus operator',
  ],
  'a runbookPrefix that does not end with a slash': [
    { metrics: { enabled: true, rules: { runbookPrefix: 'https://git.example' } } },
    '/metrics/rules/runbookPrefix',
  ],
  'the address of the metrics as a flag': [
    { extraArgs: ['--metrics-address=0.0.0.0:1'] },
    '--metrics-address is set',
  ],
  'an address to listen on that no other pod reaches': [
    config({ listenAddress: '127.0.0.1' }),
    '/config/listenAddress',
    "'::'",
  ],
  'a digest that is too short': [{ image: { digest: 'sha256:abc' } }, '/image/digest'],
  'a port out of range': [{ service: { port: 70000 } }, '/service/port'],
  'a network policy that lets nothing out': [
    { networkPolicy: { enabled: true, egressCIDRs: [] } },
    '/networkPolicy/egressCIDRs',
  ],
  'a network policy without the addresses that it lets out to': [
    { networkPolicy: { enabled: true, egressCIDRs: null } },
    "missing property 'egressCIDRs'",
  ],
};

if (HELM.skip === false) {
  describe('the chart', () => {
    for (const [behaviour, [values, ...words]] of Object.entries(REFUSED)) {
      it(`refuses ${behaviour}, with a message that names it`, () => {
        const text = refusal(values);
        for (const word of words) assert.ok(text.includes(word), `${JSON.stringify(text)} lacks ${word}`);
      });
    }

    it('reports three contradictions in one message', () => {
      const text = refusal({ ...claim({}), replicaCount: 2, extraArgs: ['--port=1', '--workspace=/x'] });
      for (const word of ['replicaCount is 2', '--port', '--workspace']) assert.ok(text.includes(word), text);
    });

    it('accepts values that are close to those that it refuses', () => {
      render({ ...claim({ accessMode: 'ReadWriteMany' }), replicaCount: 3 });
      render({ ...claim({}), replicaCount: 1 });
      render({ replicaCount: 3 });
      render({ global: { imageRegistry: 'r' }, enabled: true });
      render({ extraArgs: ['--admin-address=127.0.0.1:9091'], metrics: { enabled: true } });
      render({
        networkPolicy: { enabled: true, extraEgress: [{ ports: [{ port: 6379 }] }] },
        clients: { existingSecret: 'c' },
        limits: { store: { existingSecret: 'r' } },
      });
      render({ extraArgs: ['--first-byte-timeout=5m', '--max-body-bytes=1000'] });
      render(config({ extraEnv: [fromSecret('https_proxy')] }));
      render({
        networkPolicy: { enabled: true, extraEgress: [{ ports: [{ port: 3128 }] }] },
        ...config({ extraEnv: [fromSecret('https_proxy')] }),
      });
      const password = { name: 'https_proxy', value: 'http://me:$(PASSWORD)@proxy:3128' };
      render({
        networkPolicy: { enabled: true },
        ...config({ extraEnv: [fromSecret('PASSWORD'), password] }),
      });
    });
  });
}
