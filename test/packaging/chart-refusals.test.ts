import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { HELM, refusal, render, type Values } from './support/helm.ts';

const config = (values: Values): Values => ({ config: values });
const claim = config({ workspace: { enabled: true, volumeClaimName: 'c' } });
const fromSecret = { name: 'https_proxy', valueFrom: { secretKeyRef: { name: 's', key: 'k' } } };
const variable = { name: 'https_proxy', value: 'http://proxy:$(PORT)/' };
const store = { clients: { existingSecret: 'c' }, limits: { store: { existingSecret: 'r' } } };
const closed = { networkPolicy: { enabled: true } };

/** Values, and words that the refusal must contain: first those of the schema, then those of _checks.tpl. */
const REFUSED: readonly (readonly [values: Values, ...words: string[]])[] = [
  [{ client: { existingSecret: 'privatemode-clients' } }, "'client' not allowed"],
  [{ clients: { secretName: 'c' } }, "/clients'", "'secretName' not allowed"],
  [{ limits: { maxInflight: 1 } }, "/limits'", "'maxInflight' not allowed"],
  [config({ apikey: {} }), "/config'", 'apikey', 'not allowed'],
  [config({ tls: { enable: true } }), '/config/tls', "'enable' not allowed"],
  [config({ tls: { enabled: 'yes' } }), '/config/tls/enabled', 'want boolean'],
  [config({ tls: { secretName: 'My_Secret' } }), '/config/tls/secretName'],
  [config({ tls: null }), "missing property 'tls'"],
  [config({ apiKey: { fallback: 'sometimes' } }), '/config/apiKey/fallback', 'if-placeholder'],
  [config({ corsAllowedOrigins: ['https://a.example/x'] }), '/config/corsAllowedOrigins/0'],
  [config({ extraEnv: [{ name: 'https_proxy' }] }), '/config/extraEnv/0'],
  [config({ manifest: { enabled: true, mountPath: 'manifest.json' } }), '/config/manifest/mountPath'],
  [config({ listenAddress: '127.0.0.1' }), '/config/listenAddress', "'::'"],
  [{ image: { digest: 'sha256:abc' } }, '/image/digest'],
  [{ extraArgs: ['healthcheck'] }, '/extraArgs/0'],
  [{ networkPolicy: { enabled: true, egressCIDRs: [] } }, '/networkPolicy/egressCIDRs'],
  [{ networkPolicy: { enabled: true, egressCIDRs: null } }, "missing property 'egressCIDRs'"],
  [{ ingress: { enabled: false }, serviceAccount: {} }, 'ingress: this chart has none', 'serviceAccountName'],
  [{ preStopSeconds: 5 }, 'set shutdownDelaySeconds'],
  [{ image: { image: 'ghcr.io/edgelesssys/privatemode/privatemode-proxy@sha256:0' } }, 'Leave it out'],
  [{ ...claim, replicaCount: 2 }, 'replicaCount is 2', 'ReadWriteOnce', 'set replicaCount to 1'],
  [config({ sharedPromptCache: { promptCacheSalt: { enabled: true } } }), 'a salt has no use'],
  [config({ customCA: { enabled: true } }), 'config.customCA.configMapName or config.customCA.secretName'],
  [
    config({
      customCA: { enabled: true, secretName: 's' },
      extraEnv: [{ name: 'SSL_CERT_FILE', value: '/x' }],
    }),
    'Use one of the two',
  ],
  [config({ corsAllowedOrigins: ['*', 'https://a.example'] }), "'*' allows every origin already"],
  [{ metrics: { enabled: true, port: 8080 } }, 'metrics.port and config.port are the same'],
  [
    { metrics: { serviceMonitor: { enabled: true } } },
    'nothing to monitor',
    'Install the Prometheus operator',
  ],
  [{ metrics: { dashboard: { enabled: true } } }, 'nothing to show'],
  [{ metrics: { rules: { enabled: true } } }, 'nothing to watch', 'Install the Prometheus operator'],
  [{ limits: { store: { existingSecret: 'r' } } }, 'limits.store.existingSecret', 'clients.existingSecret'],
  [{ ...closed, ...store }, 'closes the port of limits.store', 'networkPolicy.extraEgress'],
  [{ ...closed, ...config({ extraEnv: [fromSecret] }) }, 'closes the port of https_proxy'],
  [{ ...closed, ...config({ extraEnv: [variable] }) }, 'closes the port of https_proxy'],
  [
    { extraArgs: ['--port=1', '--apiKey=sk-1'] },
    '--port is set by the chart',
    '--apiKey is set by the chart',
  ],
];

/** Values close to those. */
const ACCEPTED: readonly Values[] = [
  { replicaCount: 3, global: { imageRegistry: 'r' }, enabled: true },
  claim,
  { ...config({ workspace: { enabled: true, accessMode: 'ReadWriteMany' } }), replicaCount: 3 },
  { extraArgs: ['--admin-address=127.0.0.1:9091', '--max-body-bytes=1000'], metrics: { enabled: true } },
  { ...store, networkPolicy: { enabled: true, extraEgress: [{ ports: [{ port: 6379 }] }] } },
  config({ extraEnv: [fromSecret] }),
];

if (HELM.skip === false) {
  describe('the chart', () => {
    for (const [values, ...words] of REFUSED) {
      it(`refuses ${JSON.stringify(values)}, with a message that names what is wrong`, () => {
        const text = refusal(values);
        for (const word of words) assert.ok(text.includes(word), `${JSON.stringify(text)} lacks ${word}`);
      });
    }

    it('reports all contradictions in one message', () => {
      const text = refusal({ ...claim, replicaCount: 2, extraArgs: ['--port=1', '--workspace=/x'] });
      for (const word of ['replicaCount is 2', '--port', '--workspace']) assert.ok(text.includes(word), text);
    });

    it('accepts values that are close to those that it refuses', () => {
      for (const values of ACCEPTED) render(values);
    });
  });
}
