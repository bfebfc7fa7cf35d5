import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { parse } from 'yaml';
import { FLAGS, LISTED } from '../../lib/config/flags.ts';
import { VERSION } from '../../lib/version.ts';
import { parsed } from '../support/doors/config.ts';
import { ROOT, run, runAside } from '../support/processes/tools.ts';
import { serveCluster } from './support/fake-cluster.ts';
import {
  CHART,
  type Cluster,
  HELM,
  KUBECTL_VALIDATE,
  refusal,
  render,
  type Values,
  validate,
} from './support/helm.ts';
import { installBlock } from './support/install-blocks.ts';

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');
type Named = { readonly name: string; readonly value?: string };
type Egress = { readonly ports: readonly { readonly port: number }[] };
const nameOf = ({ name }: Named): string => name;

const MONITORED = { apiVersions: ['monitoring.coreos.com/v1'] } as const;
const OWN = { 'app.kubernetes.io/name': 'privatemode-proxy', 'app.kubernetes.io/instance': 'my-release' };

const objectOf = (kind: string, values: Values = {}, cluster: Cluster = {}) =>
  render(values, cluster).objects.find((object) => object.kind === kind) ?? assert.fail(`no ${kind}`);
const podOf = (values: Values) => objectOf('Deployment', values).spec.template.spec;
const argsOf = (values: Values): readonly string[] => podOf(values).containers[0].args;
const config = (values: Values): Values => ({ config: values });

/** The files that the chart mounts, as far as the proxy reads them at start. */
const MOUNTED = {
  '/etc/privatemode-proxy/api-key/apiKey': 'a-key\n',
  '/etc/privatemode-proxy/prompt-cache-salt/promptCacheSalt': '0123456789abcdef0123456789abcdef',
  '/etc/config/manifest.json': '{"Policies":{},"ReferenceValues":{}}',
  '/etc/privatemode-proxy/clients/clients.json': '{"clients":[]}',
  '/etc/privatemode-proxy/limits-store/url': 'rediss://:password@redis.example:6380/0',
};

/** Values, the flags and variables that the container has then, and the objects that are mounted. */
const SETTINGS: readonly (readonly [values: Values, flags: readonly string[], mounts?: object])[] = [
  [
    config({ apiKey: { fallback: 'never', apiKeySecretName: 'k' } }),
    ['--api-key=@/etc/privatemode-proxy/api-key/apiKey', '--api-key-fallback=never'],
    { secret: { secretName: 'k', defaultMode: 0o440, items: [{ key: 'apiKey', path: 'apiKey' }] } },
  ],
  [config({ listenAddress: '::' }), ['--listen-address=::']],
  [
    config({ corsAllowedOrigins: ['https://a.example', 'http://localhost:3000'] }),
    ['--cors-allowed-origins=https://a.example,http://localhost:3000'],
  ],
  [config({ sharedPromptCache: { enabled: true } }), ['--disable-prompt-cache=false']],
  [
    config({ sharedPromptCache: { enabled: true, promptCacheSalt: { enabled: true, secretName: 's' } } }),
    ['--prompt-cache-salt=@/etc/privatemode-proxy/prompt-cache-salt/promptCacheSalt'],
    {
      secret: {
        secretName: 's',
        defaultMode: 0o440,
        items: [{ key: 'promptCacheSalt', path: 'promptCacheSalt' }],
      },
    },
  ],
  [
    config({ workspace: { enabled: true, volumeClaimName: 'c' } }),
    ['--workspace=/workspace'],
    { persistentVolumeClaim: { claimName: 'c' } },
  ],
  [config({ receipts: true }), ['--receipts=true']],
  [
    config({ tls: { enabled: true, secretName: 't' } }),
    [
      '--tls-cert-path=/etc/privatemode-proxy/tls/tls.crt',
      '--tls-key-path=/etc/privatemode-proxy/tls/tls.key',
    ],
    { secret: { secretName: 't', defaultMode: 0o440 } },
  ],
  [
    config({ customCA: { enabled: true, secretName: 'ca', fileName: 'b.pem' } }),
    ['SSL_CERT_FILE=/etc/privatemode-proxy/custom-ca/b.pem'],
    { secret: { secretName: 'ca', defaultMode: 0o440 } },
  ],
  [
    config({ customCA: { enabled: true, secretName: 'ca', configMapName: 'map' } }),
    [],
    { configMap: { name: 'map' } },
  ],
  [
    config({ extraEnv: [{ name: 'https_proxy', value: 'http://proxy:3128' }] }),
    ['https_proxy=http://proxy:3128'],
  ],
  [
    config({ manifest: { enabled: true, configMapName: 'm' } }),
    ['--manifest-path=/etc/config/manifest.json'],
    { configMap: { name: 'm' } },
  ],
  [
    { clients: { existingSecret: 'team' }, limits: { maxInFlight: 40, storeFailure: 'open' } },
    ['--clients=/etc/privatemode-proxy/clients/clients.json', '--max-in-flight=40'],
    { secret: { secretName: 'team', defaultMode: 0o440 } },
  ],
  [
    { clients: { existingSecret: 'team' }, limits: { store: { existingSecret: 'r' }, storeFailure: 'open' } },
    ['--limits-store=@/etc/privatemode-proxy/limits-store/url', '--limits-store-failure=open'],
    { secret: { secretName: 'r', defaultMode: 0o440, items: [{ key: 'url', path: 'url' }] } },
  ],
];

describe('the files of the chart', () => {
  it('have the version of the program', () => {
    const { version, appVersion } = parse(read('deploy/chart/Chart.yaml'));
    assert.deepEqual([version, appVersion], [VERSION, VERSION]);
  });

  it('refuse among extraArgs every flag that the chart sets itself, in each of its spellings', () => {
    const set = new Set(
      [...read('deploy/chart/templates/_pod.tpl').matchAll(/"--([a-z-]+)[=]/g)].map(([, name]) => name),
    );
    const [, guarded = ''] = /\$own := list (.*?) }}/.exec(read('deploy/chart/templates/_checks.tpl')) ?? [];
    const aliases = FLAGS.filter(({ name }) => set.has(name)).flatMap(({ aliases: of = [] }) =>
      of.map(({ name }) => name),
    );
    assert.ok(set.has('metrics-address') && aliases.includes('apiKey'));
    assert.deepEqual(
      [...guarded.matchAll(/"([^"]+)"/g)].map(([, name]) => name).sort(),
      [...set, ...aliases].sort(),
    );
  });
});

if (HELM.skip === false) {
  describe('the chart', () => {
    it('passes lint', () => {
      const { status, stdout } = run(HELM.path, ['lint', '--strict', CHART]);
      assert.equal(status, 0, stdout);
    });

    it('makes a deployment and a service, and by default nothing else', () => {
      assert.deepEqual(
        render()
          .objects.map(({ kind }) => kind)
          .sort(),
        ['Deployment', 'Service'],
      );
      assert.deepEqual(
        argsOf({}).filter((arg) => /^--(clients|limits|max-in-flight|tls)/.test(arg)),
        [],
      );
    });

    for (const [values, flags, mounted] of SETTINGS) {
      it(`gives the proxy what it accepts with ${JSON.stringify(values)}`, () => {
        const { containers, volumes } = podOf(values);
        const [{ args, env = [], volumeMounts }] = containers;
        const all = [...args, ...env.map(({ name, value }: Named) => `${name}=${value}`)];
        for (const flag of flags) assert.ok(all.includes(flag), `${flag} of ${all}`);
        parsed(args, MOUNTED);
        assert.deepEqual(volumeMounts.map(nameOf).sort(), volumes.map(nameOf).sort());
        const sources = volumes.map(({ name: _, ...source }: Named) => JSON.stringify(source));
        if (mounted !== undefined) assert.ok(sources.includes(JSON.stringify(mounted)), sources.join('\n'));
      });
    }

    it('can pass every flag of the proxy, by a value or among extraArgs', () => {
      const flagsOf = (values: Values) => argsOf(values).map((arg) => /^--([a-z-]+)=/.exec(arg)?.[1] ?? arg);
      const byValues = new Set(['api-endpoint', 'metrics-address']);
      for (const [values] of SETTINGS) for (const name of flagsOf(values)) byValues.add(name);
      const flags = LISTED.filter(({ commandLineOnly }) => !commandLineOnly).map(({ name }) => name);
      const others = flags.filter((name) => !byValues.has(name));
      assert.ok(others.includes('stream-keepalive') && !others.includes('port'));
      assert.deepEqual(
        flagsOf({ extraArgs: others.map((name) => `--${name}=0`) }).slice(-others.length),
        others,
      );
    });

    it('lets the applications bring their own keys', () => {
      const { containers, volumes } = podOf(config({ apiKey: { enabled: false } }));
      assert.doesNotMatch(containers[0].args.join(), /api-key/);
      assert.deepEqual(volumes.map(nameOf), ['workspace']);
    });

    it('fits the restricted Pod Security Standard, and runs on a read-only root', () => {
      const { securityContext, containers, automountServiceAccountToken } = podOf({});
      assert.equal(securityContext.runAsNonRoot, true);
      assert.deepEqual(securityContext.seccompProfile, { type: 'RuntimeDefault' });
      const locked = {
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ['ALL'] },
      };
      assert.deepEqual(containers[0].securityContext, locked);
      assert.equal(automountServiceAccountToken, false);
    });

    it('probes /readyz for start-up and readiness, and /healthz for liveness, by HTTPS with TLS', () => {
      for (const enabled of [false, true]) {
        const [container] = podOf({
          probes: { startup: { enabled: true } },
          ...config({ tls: { enabled } }),
        }).containers;
        for (const [probe, path] of [
          ['startupProbe', '/readyz'],
          ['readinessProbe', '/readyz'],
          ['livenessProbe', '/healthz'],
        ] as const) {
          const { httpGet } = container[probe];
          assert.deepEqual([httpGet.path, httpGet.scheme], [path, enabled ? 'HTTPS' : 'HTTP']);
        }
      }
    });

    it('gives a pod shutdownDelaySeconds, shutdownGraceSeconds and 15 s more before it is killed', () => {
      const pod = podOf({ shutdownGraceSeconds: 30, shutdownDelaySeconds: 7 });
      assert.equal(pod.terminationGracePeriodSeconds, 52);
      for (const flag of ['--shutdown-grace=30s', '--shutdown-delay=7s'])
        assert.ok(pod.containers[0].args.includes(flag));
    });

    it('has the strategy Recreate with a claim that only one pod can mount, and else RollingUpdate', () => {
      const strategy = (workspace: object) =>
        objectOf('Deployment', config({ workspace })).spec.strategy.type;
      assert.equal(strategy({ enabled: true }), 'Recreate');
      assert.equal(strategy({ enabled: true, accessMode: 'ReadWriteMany' }), 'RollingUpdate');
      assert.equal(strategy({ enabled: false }), 'RollingUpdate');
    });

    it('accepts a values file that was written for the chart of the vendor', () => {
      const [container] = podOf({
        image: { image: `registry.example.com/proxy@sha256:${'0'.repeat(64)}`, restartPolicy: 'Always' },
        config: {
          apiKey: { enabled: true, apiKeySecretName: 'other-key' },
          ssEndpoint: { enabled: false, ssEndpoint: 'secret.example.com:443' },
          apiEndpoint: { enabled: true, apiEndpoint: 'api.example.com:443' },
          coordinatorEndpoint: { enabled: false, coordinatorEndpoint: 'coordinator.example.com:443' },
          port: '8081',
          workspace: { enabled: true, volumeClaimName: 'claim', mountPath: '/data' },
        },
        global: { anything: { at: 'all' } },
        enabled: true,
      }).containers;
      assert.equal(container.image, `registry.example.com/proxy@sha256:${'0'.repeat(64)}`);
      for (const flag of ['--api-endpoint=api.example.com:443', '--workspace=/data', '--port=8081'])
        assert.ok(container.args.includes(flag), flag);
    });

    it('names the image by digest rather than tag, and without either by the version of the program', () => {
      const digest = `sha256:${'a'.repeat(64)}`;
      for (const [values, image] of [
        [{}, `r:${VERSION}`],
        [{ tag: 'latest' }, 'r:latest'],
        [{ tag: 'latest', digest }, `r@${digest}`],
        [{ digest, image: 'whole:1' }, 'whole:1'],
      ] as const)
        assert.equal(podOf({ image: { repository: 'r', ...values } }).containers[0].image, image);
    });
  });

  describe('the chart in a cluster', () => {
    it('derives a valid host name from any release name', () => {
      const hostOf = (cluster: Cluster, values: Values = {}): string =>
        objectOf('Service', values, cluster).metadata.name;
      assert.equal(hostOf({}), 'privatemode-proxy-my-release');
      assert.equal(hostOf({ release: 'a.b' }), 'privatemode-proxy-a-b');
      assert.match(
        hostOf({ release: `${'r'.repeat(50)}-xy` }),
        /^privatemode-proxy-[a-z0-9-]{1,44}[a-z0-9]$/,
      );
      assert.equal(hostOf({}, { nameOverride: 'gate' }), 'gate-my-release');
      assert.equal(hostOf({}, { fullnameOverride: 'gate' }), 'gate');
    });

    it('selects its own pods, and serves metrics in a separate ClusterIP service', () => {
      const { objects } = render({
        ...{ podDisruptionBudget: { enabled: true }, networkPolicy: { enabled: true } },
        ...{ service: { type: 'LoadBalancer' }, metrics: { enabled: true } },
      });
      const specs = (kind: string) =>
        objects.filter((object) => object.kind === kind).map(({ spec }) => spec);
      const types = specs('Service').map(({ selector, type }) => {
        assert.deepEqual(selector, OWN);
        return type;
      });
      assert.deepEqual(types.sort(), ['ClusterIP', 'LoadBalancer']);
      assert.deepEqual(specs('PodDisruptionBudget')[0].selector, { matchLabels: OWN });
      assert.deepEqual(specs('NetworkPolicy')[0].podSelector, { matchLabels: OWN });
      assert.ok(argsOf({ metrics: { enabled: true } }).includes('--metrics-address=0.0.0.0:9090'));
      assert.doesNotMatch(JSON.stringify(objects), /--admin-address/);
    });

    for (const [kubeVersion, budget] of [
      ['1.16.0', 'policy/v1beta1'],
      ['1.21.5-gke.1300', 'policy/v1'],
    ] as const) {
      it(`speaks the API of Kubernetes ${kubeVersion}`, () => {
        const values = {
          ...{ replicaCount: 2, podDisruptionBudget: { enabled: true }, metrics: { enabled: true } },
          ...{ clients: { existingSecret: 'team' }, networkPolicy: { enabled: true } },
          ...{
            probes: { startup: { enabled: true } },
            podAnnotations: { a: 'b' },
            podLabels: { team: 'ml' },
          },
          topologySpreadConstraints: [
            { maxSkew: 1, topologyKey: 'zone', whenUnsatisfiable: 'ScheduleAnyway' },
          ],
          ...config({ tls: { enabled: true } }),
        };
        const { objects, text } = render(values, { kubeVersion });
        assert.equal(objects.find(({ kind }) => kind === 'PodDisruptionBudget')?.apiVersion, budget);
        const isNew = !kubeVersion.startsWith('1.16');
        for (const newer of ['startupProbe:', 'topologySpreadConstraints:', 'seccompProfile:'])
          assert.equal(text.includes(newer), isNew, newer);
        if (KUBECTL_VALIDATE.skip === false) assert.equal(validate([text], isNew ? '1.30' : '1.23'), '');
      });
    }

    it('is not installed if Kubernetes is older than the chart allows', () => {
      assert.match(refusal({}, { kubeVersion: '1.15.9' }), /requires kubeVersion: >=1.16/);
    });

    it('has a network policy that lets out DNS, port 443, and the ports of a configured proxy and endpoint', () => {
      const ports = (values: Values) => {
        const { egress } = objectOf('NetworkPolicy', {
          networkPolicy: { enabled: true },
          ...config(values),
        }).spec;
        return egress.map(({ ports: of }: Egress) => of.map(({ port }) => port));
      };
      const proxy = (value: string) => ({ extraEnv: [{ name: 'https_proxy', value }] });
      assert.deepEqual(ports({}), [[53, 53], [443]]);
      assert.deepEqual(ports(proxy('http://user:pw@proxy.example:3128/')), [
        [53, 53],
        [443, 3128],
      ]);
      assert.deepEqual(ports({ apiEndpoint: { enabled: true, apiEndpoint: 'x.example:8443' } }), [
        [53, 53],
        [443, 8443],
      ]);
    });

    it('has a network policy that lets in nobody where a list of peers is empty or missing', () => {
      const ingress = (policy: object) =>
        objectOf('NetworkPolicy', { metrics: { enabled: true }, networkPolicy: { enabled: true, ...policy } })
          .spec['ingress'];
      const http = { ports: [{ port: 'http', protocol: 'TCP' }], from: [{ podSelector: {} }] };
      const metrics = { ports: [{ port: 'metrics', protocol: 'TCP' }], from: [{ namespaceSelector: {} }] };
      assert.deepEqual(ingress({}), [http, metrics]);
      // a rule whose `from` is empty or null would match everybody
      for (const nobody of [[], null]) {
        assert.deepEqual(ingress({ ingressFrom: nobody }), [metrics]);
        assert.deepEqual(ingress({ ingressFrom: nobody, metricsFrom: nobody }), []);
      }
    });

    it('contains the dashboard, and the alerts with runbook links that begin with runbookPrefix', () => {
      const map = objectOf('ConfigMap', { metrics: { enabled: true, dashboard: { enabled: true } } });
      assert.equal(map.metadata.labels.grafana_dashboard, '1');
      assert.deepEqual(map.data, { 'privatemode-proxy.json': read('deploy/chart/files/dashboard.json') });
      const rule = (values: object) =>
        objectOf(
          'PrometheusRule',
          { metrics: { enabled: true, rules: { enabled: true, ...values } } },
          MONITORED,
        ).spec;
      const source = read('deploy/chart/files/rules.yaml');
      assert.deepEqual(rule({}), parse(source.replace(/^ *runbook_url: .*\n/gm, '')));
      const linked = source.replaceAll('runbook_url: docs', 'runbook_url: https://git.example/docs');
      assert.deepEqual(rule({ runbookPrefix: 'https://git.example/' }), parse(linked));
    });

    it('restarts the pods on upgrade when a CA, a salt or a manifest has changed, which are read only at start-up', async (t) => {
      const objects = new Map([
        ['configmaps/ca', 1],
        ['secrets/salt', 1],
        ['configmaps/manifest', 1],
      ]);
      const { url } = await serveCluster(t, objects);
      const values = config({
        customCA: { enabled: true, configMapName: 'ca' },
        sharedPromptCache: { enabled: true, promptCacheSalt: { enabled: true, secretName: 'salt' } },
        manifest: { enabled: true, configMapName: 'manifest' },
      });
      const checksums = async () =>
        [...(await install(url, values)).matchAll(/checksum\/[a-z-]+: [0-9a-f]{64}/g)].map(([line]) => line);
      let last = await checksums();
      assert.equal(last.length, 3);
      assert.deepEqual(await checksums(), last);
      for (const object of objects.keys()) {
        objects.set(object, 2);
        const next = await checksums();
        assert.equal(next.filter((line) => !last.includes(line)).length, 1, object);
        last = next;
      }
    });

    it('is installed by the commands of docs/install.md, with the image that they have built', async (t) => {
      const { url } = await serveCluster(t, new Map());
      const shims = `docker() { echo "docker $*"; }; kubectl() { echo "kubectl $*"; }
        helm() { ${HELM.path} "$@" --dry-run=server --kube-apiserver ${url} --disable-openapi-validation; }`;
      const commands = `cd ${ROOT}\n${shims}\n${installBlock('chart')}`;
      const { status, stdout, stderr } = await runAside('bash', ['-euc', commands]);
      assert.equal(status, 0, stderr);
      assert.match(
        stdout,
        /^kubectl create secret generic privatemode-api-key --from-file=apiKey=key\.txt$/m,
      );
      assert.match(stdout, /secretName: privatemode-api-key\n(.*\n)*?.*key: apiKey/);
      const [, image] = /image: "(registry\.example\.com\/.*)"/.exec(stdout) ?? [];
      assert.ok(stdout.includes(`docker build --tag ${image} .\ndocker push ${image}\n`), stdout);
    });

    it('prints after the installation the URL of the proxy, and hints that fit its values', async (t) => {
      const { url } = await serveCluster(t, new Map());
      const team = await install(url, {
        service: { port: 9000 },
        clients: { existingSecret: 'my-team' },
        ...config({ tls: { enabled: true } }),
      });
      assert.match(team, /https:\/\/privatemode-proxy-my-release\.ai\.svc\.cluster\.local:9000\/v1/);
      assert.match(team, /Only the clients in clients\.json of the secret my-team may use the proxy/);
    });
  });
}

/** What `helm install` would do in that cluster: objects and notes. */
async function install(url: string, values: Values): Promise<string> {
  const args = ['install', 'my-release', CHART, '--namespace', 'ai', '--dry-run=server', '--values', '-'];
  args.push('--kube-apiserver', url, '--disable-openapi-validation');
  const { status, stdout, stderr } = await runAside(HELM.path, args, { input: JSON.stringify(values) });
  if (status !== 0) throw new Error(`helm install: ${stderr}`);
  return stdout;
}
