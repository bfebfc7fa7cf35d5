import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { parse as parseYaml } from 'yaml';
import { FLAGS } from '../../lib/config/flags.ts';
import { valueRows } from '../../scripts/chart-readme.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { ROOT, runAside } from '../support/processes/tools.ts';
import type { PodSpec } from './support/chart-levels.ts';
import { serveCluster } from './support/fake-cluster.ts';
import {
  CHART,
  type Cluster,
  HELM,
  KUBECTL_VALIDATE,
  type KubernetesObject,
  refusal,
  render,
  type Values,
  validate,
} from './support/helm.ts';
import { installBlock } from './support/install-blocks.ts';

/** Everything that is off by default, switched on. */
const EVERYTHING: Values = {
  replicaCount: 2,
  podDisruptionBudget: { enabled: true },
  metrics: {
    enabled: true,
    serviceMonitor: { enabled: true, labels: { release: 'prometheus' } },
    dashboard: { enabled: true, annotations: { grafana_folder: 'AI' } },
    rules: { enabled: true, labels: { release: 'prometheus' } },
  },
  config: { tls: { enabled: true } },
  clients: { existingSecret: 'team' },
  networkPolicy: { enabled: true },
  probes: { startup: { enabled: true } },
  topologySpreadConstraints: [
    { maxSkew: 1, topologyKey: 'kubernetes.io/hostname', whenUnsatisfiable: 'ScheduleAnyway' },
  ],
  podAnnotations: { a: 'b' },
  podLabels: { team: 'ml' },
  serviceAccountName: 'proxy',
  priorityClassName: 'high',
  imagePullSecrets: [{ name: 'registry' }],
  service: { annotations: { c: 'd' } },
  tolerations: [{ key: 'dedicated', operator: 'Exists' }],
  affinity: { nodeAffinity: {} },
};

const MONITORED = { apiVersions: ['monitoring.coreos.com/v1'] } as const;

const TEXT = { type: 'string' };
const TEXTS = { type: 'object', additionalProperties: TEXT };
const object = (required: readonly string[], properties: object) => ({
  type: 'object',
  required,
  properties,
});
const array = (items: object) => ({ type: 'array', items });

/** A definition of the Prometheus operator; `ofSpec`: the schema of its `spec`. */
const definition = (kind: string, ofSpec: object) => ({
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: `${kind.toLowerCase()}s.monitoring.coreos.com` },
  spec: {
    group: 'monitoring.coreos.com',
    names: { kind, plural: `${kind.toLowerCase()}s`, singular: kind.toLowerCase() },
    scope: 'Namespaced',
    versions: [
      {
        name: 'v1',
        served: true,
        storage: true,
        schema: { openAPIV3Schema: object(['spec'], { spec: ofSpec }) },
      },
    ],
  },
});

/** As much of the operator's schemas as the chart uses (Prometheus operator, API reference). */
const OPERATOR: Readonly<Record<string, object>> = {
  ServiceMonitor: object(['selector', 'endpoints'], {
    selector: object([], { matchLabels: TEXTS }),
    endpoints: array(object([], { port: TEXT, path: TEXT, interval: TEXT })),
  }),
  PrometheusRule: object(['groups'], {
    groups: array(
      object(['name'], {
        name: TEXT,
        rules: array(
          object(['expr'], { alert: TEXT, expr: TEXT, for: TEXT, labels: TEXTS, annotations: TEXTS }),
        ),
      }),
    ),
  }),
};

interface ConfigMap {
  readonly metadata: KubernetesObject['metadata'] & { readonly annotations?: object };
  readonly data: Readonly<Record<string, string>>;
}

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');

const kinds = (objects: readonly KubernetesObject[]): Record<string, string> =>
  Object.fromEntries(objects.map(({ kind, apiVersion }) => [kind, apiVersion]));

const objectsOf = (values: Values, wanted: string): KubernetesObject[] =>
  render(values).objects.filter(({ kind }) => kind === wanted);

const nameOf = (cluster: Cluster, values: Values = {}): string =>
  render(values, cluster).objects.find(({ kind }) => kind === 'Service')!.metadata.name;

if (HELM.skip === false) {
  describe('the chart in a cluster', () => {
    it('names its service and port as docs/install.md says', () => {
      const { objects } = render({}, { release: 'my-release', namespace: 'ai' });
      const service = objects.find(({ kind }) => kind === 'Service')!;
      assert.equal(service.metadata.name, 'privatemode-proxy-my-release');
      const [port] = service.spec['ports'] as [{ port: number; targetPort: string }];
      assert.equal(port.port, 8080);
      assert.equal(port.targetPort, 'http');
    });

    it('derives a valid host name from any release name', () => {
      assert.equal(nameOf({ release: 'a.b' }), 'privatemode-proxy-a-b');
      const longest = nameOf({ release: `${'r'.repeat(50)}-xy` });
      assert.match(longest, /^privatemode-proxy-[a-z0-9-]*[a-z0-9]$/);
      assert.ok(longest.length <= 63);
      assert.equal(nameOf({ release: 'r' }, { nameOverride: 'gate' }), 'gate-r');
      assert.equal(nameOf({ release: 'r' }, { fullnameOverride: 'gate' }), 'gate');
    });

    it('selects its own pods, and nothing of another release', () => {
      const { objects } = render(EVERYTHING, { release: 'one', ...MONITORED });
      const expected = { 'app.kubernetes.io/name': 'privatemode-proxy', 'app.kubernetes.io/instance': 'one' };
      const spec = (kind: string) => objects.find((object) => object.kind === kind)!.spec;
      assert.deepEqual(spec('Service')['selector'], expected);
      assert.deepEqual(spec('Deployment')['selector'], { matchLabels: expected });
      assert.deepEqual(spec('PodDisruptionBudget')['selector'], { matchLabels: expected });
      assert.deepEqual(spec('NetworkPolicy')['podSelector'], { matchLabels: expected });
      const metrics = { ...expected, 'app.kubernetes.io/component': 'metrics' };
      assert.deepEqual(spec('ServiceMonitor')['selector'], { matchLabels: metrics });
      const template = spec('Deployment')['template'] as {
        metadata: { labels: object };
        spec: { topologySpreadConstraints: { labelSelector: object }[] };
      };
      assert.deepEqual(template.metadata.labels, { ...expected, team: 'ml' });
      assert.deepEqual(template.spec.topologySpreadConstraints[0]?.labelSelector, { matchLabels: expected });
    });

    it('spreads its own pods by a constraint without a labelSelector, and else those that the constraint selects', () => {
      const selectorOf = (constraint: object): unknown => {
        const constraints = [{ maxSkew: 1, topologyKey: 'zone', ...constraint }];
        const [{ spec }] = objectsOf({ topologySpreadConstraints: constraints }, 'Deployment') as [
          KubernetesObject,
        ];
        const pod = (spec['template'] as { spec: PodSpec }).spec;
        return pod.topologySpreadConstraints?.[0]?.['labelSelector'];
      };
      const own = {
        matchLabels: {
          'app.kubernetes.io/name': 'privatemode-proxy',
          'app.kubernetes.io/instance': 'my-release',
        },
      };
      assert.deepEqual(selectorOf({}), own);
      assert.deepEqual(selectorOf({ labelSelector: null }), own);
      for (const labelSelector of [{ matchLabels: { team: 'ml' } }, {}])
        assert.deepEqual(selectorOf({ labelSelector }), labelSelector);
    });

    it('serves metrics in a separate ClusterIP service, whatever the type of the service of the API', () => {
      const values = { service: { type: 'LoadBalancer', port: 9090 }, metrics: { enabled: true } };
      const services = render(values, { release: 'r'.repeat(50) }).objects.filter(
        ({ kind }) => kind === 'Service',
      );
      const shown = services.map(({ metadata: { name, labels }, spec }) => [
        [/-metrics$/.test(name), name.length <= 63, labels['app.kubernetes.io/component']],
        [spec['type'], (spec['ports'] as { targetPort: string }[]).map(({ targetPort }) => targetPort)],
      ]);
      assert.deepEqual(shown, [
        [
          [true, true, 'metrics'],
          ['ClusterIP', ['metrics']],
        ],
        [
          [false, true, undefined],
          ['LoadBalancer', ['http']],
        ],
      ]);
      const deployment = objectsOf(values, 'Deployment')[0];
      assert.doesNotMatch(JSON.stringify(deployment), /--admin-address/);
      assert.match(JSON.stringify(deployment), /--metrics-address=0\.0\.0\.0:9090/);
    });

    it('makes a deployment and a service, and by default nothing else', () => {
      assert.deepEqual(kinds(render().objects), { Deployment: 'apps/v1', Service: 'v1' });
    });

    for (const [kubeVersion, schemas, budget] of [
      ['1.16.0', '1.23', 'policy/v1beta1'],
      ['1.18.20-eks-1', '1.23', 'policy/v1beta1'],
      ['1.21.5-gke.1300', '1.23', 'policy/v1'],
      ['1.23.0', '1.23', 'policy/v1'],
      ['1.27.3', '1.27', 'policy/v1'],
      ['1.30.2+k3s1', '1.30', 'policy/v1'],
    ] as const) {
      it(`speaks the API of Kubernetes ${kubeVersion}`, () => {
        const { objects, text } = render(EVERYTHING, { kubeVersion, ...MONITORED });
        assert.deepEqual(kinds(objects), {
          Deployment: 'apps/v1',
          Service: 'v1',
          NetworkPolicy: 'networking.k8s.io/v1',
          ServiceMonitor: 'monitoring.coreos.com/v1',
          PrometheusRule: 'monitoring.coreos.com/v1',
          ConfigMap: 'v1',
          PodDisruptionBudget: budget,
        });
        const minor = Number(kubeVersion.split('.')[1]);
        assert.equal(text.includes('startupProbe:'), minor >= 18);
        assert.equal(text.includes('topologySpreadConstraints:'), minor >= 18);
        assert.equal(text.includes('seccompProfile:'), minor >= 19);
        assert.equal(text.includes('seccomp.security.alpha.kubernetes.io/pod: runtime/default'), minor < 19);
        assert.ok(text.includes('--shutdown-delay=5s'));
        if (KUBECTL_VALIDATE.skip) return;
        const crds = temporaryDirectory('crds-');
        for (const [kind, ofSpec] of Object.entries(OPERATOR)) {
          writeFileSync(join(crds, `${kind}.yaml`), JSON.stringify(definition(kind, ofSpec)));
        }
        assert.equal(validate([text], schemas, crds), '');
      });
    }

    it('is not installed if Kubernetes is older than the chart allows', () => {
      assert.match(refusal({}, { kubeVersion: '1.15.9' }), /requires kubeVersion: >=1.16/);
    });

    it('does not pass kubectl-validate if a member is misspelt', () => {
      if (KUBECTL_VALIDATE.skip) return;
      const planted = render().text.replace('automountServiceAccountToken', 'automountServiceAcountToken');
      assert.match(validate([planted], '1.30'), /automountServiceAcountToken/);
    });

    it('has a network policy that lets out DNS, port 443, and the ports of a configured proxy and endpoint', () => {
      const ports = (config: object) => {
        const policy = render({ networkPolicy: { enabled: true }, config }).objects.find(
          ({ kind }) => kind === 'NetworkPolicy',
        )!;
        const egress = policy.spec['egress'] as { ports: { port: number }[] }[];
        return egress.map((rule) => rule.ports.map(({ port }) => port));
      };
      const proxy = (value: string) => ({ extraEnv: [{ name: 'https_proxy', value }] });
      assert.deepEqual(ports({}), [[53, 53], [443]]);
      assert.deepEqual(ports(proxy('http://user:pw@proxy.example:3128/')), [
        [53, 53],
        [443, 3128],
      ]);
      assert.deepEqual(ports(proxy('http://proxy.example')), [
        [53, 53],
        [443, 80],
      ]);
      assert.deepEqual(ports({ apiEndpoint: { enabled: true, apiEndpoint: 'x.example:8443' } }), [
        [53, 53],
        [443, 8443],
      ]);
    });

    it('has a network policy that lets in nobody where a list of peers is empty or missing', () => {
      const ingress = (policy: object) =>
        objectsOf(
          { metrics: { enabled: true }, networkPolicy: { enabled: true, ...policy } },
          'NetworkPolicy',
        )[0]!.spec['ingress'];
      const http = { ports: [{ port: 'http', protocol: 'TCP' }], from: [{ podSelector: {} }] };
      const metrics = { ports: [{ port: 'metrics', protocol: 'TCP' }], from: [{ namespaceSelector: {} }] };
      assert.deepEqual(ingress({}), [http, metrics]);
      // a rule whose `from` is empty or null would match everybody
      for (const nobody of [[], null]) {
        assert.deepEqual(ingress({ ingressFrom: nobody }), [metrics]);
        assert.deepEqual(ingress({ metricsFrom: nobody }), [http]);
        assert.deepEqual(ingress({ ingressFrom: nobody, metricsFrom: nobody }), []);
      }
    });

    it('documents in values.yaml, at networkPolicy.egressCIDRs, every host that the proxy connects to', () => {
      const hosts = FLAGS.filter(({ name }) => name === 'api-endpoint' || name.endsWith('-url')).map((flag) =>
        (flag.default as string).replace(/^https:\/\/|:443$/g, ''),
      );
      assert.ok(hosts.length >= 4);
      const words = valueRows(readFileSync(join(CHART, 'values.yaml'), 'utf8')).find(
        ({ path }) => path === 'networkPolicy.egressCIDRs',
      )!.meaning;
      // the root's revocation list lies elsewhere (docs/protocol/attestation.md 10)
      for (const host of [...hosts, 'certificates.trustedservices.intel.com'])
        assert.ok(words.includes(host), host);
    });

    it('contains the dashboard as a ConfigMap with the label that the sidecar of Grafana looks for', () => {
      const dashboard = (values: object) => {
        const metrics = { enabled: true, dashboard: { enabled: true, ...values } };
        return render({ metrics }).objects.find(({ kind }) => kind === 'ConfigMap') as KubernetesObject &
          ConfigMap;
      };
      const { metadata, data } = dashboard({});
      assert.equal(metadata.name, 'privatemode-proxy-my-release-dashboard');
      assert.equal(metadata.labels['grafana_dashboard'], '1');
      assert.equal(metadata.annotations, undefined);
      assert.deepEqual(Object.keys(data), ['privatemode-proxy.json']);
      assert.equal(data['privatemode-proxy.json'], read('deploy/chart/files/dashboard.json'));
      const other = dashboard({ label: 'boards', labelValue: 'yes', annotations: { folder: 'AI' } }).metadata;
      assert.equal(other.labels['boards'], 'yes');
      assert.equal(other.labels['grafana_dashboard'], undefined);
      assert.deepEqual(other.annotations, { folder: 'AI' });
    });

    it('contains the alerts, with runbook links that begin with runbookPrefix, and no links without it', () => {
      const rule = (values: object) => {
        const metrics = { enabled: true, rules: { enabled: true, ...values } };
        return render({ metrics }, MONITORED).objects.find(({ kind }) => kind === 'PrometheusRule')!;
      };
      const source = read('deploy/chart/files/rules.yaml');
      assert.deepEqual(rule({}).spec, parseYaml(source.replace(/^ *runbook_url: .*\n/gm, '')));
      const { metadata, spec } = rule({
        labels: { release: 'prometheus' },
        runbookPrefix: 'https://git.example/proxy/',
      });
      assert.equal(metadata.labels['release'], 'prometheus');
      const linked = source.replaceAll('runbook_url: docs', 'runbook_url: https://git.example/proxy/docs');
      assert.notEqual(linked, source);
      assert.deepEqual(parseYaml(linked), spec);
    });

    it('restarts the pods on upgrade when a CA, a salt or a manifest has changed, which are read only at start-up', async (t) => {
      const objects = new Map([
        ['configmaps/ca', 1],
        ['secrets/salt', 1],
        ['configmaps/manifest', 1],
      ]);
      const cluster = await serveCluster(t, objects);
      const values = {
        config: {
          customCA: { enabled: true, configMapName: 'ca' },
          sharedPromptCache: { enabled: true, promptCacheSalt: { enabled: true, secretName: 'salt' } },
          manifest: { enabled: true, configMapName: 'manifest' },
        },
      };
      const checksums = async () => {
        const text = await install(cluster.url, values);
        return new Map(
          [...text.matchAll(/checksum\/([a-z-]+): ([0-9a-f]{64})/g)].map(([, name, sum]) => [name, sum]),
        );
      };
      const before = await checksums();
      assert.deepEqual([...before.keys()].sort(), ['custom-ca', 'manifest', 'prompt-cache-salt']);
      assert.deepEqual(await checksums(), before);
      for (const [name, object] of [
        ['custom-ca', 'configmaps/ca'],
        ['prompt-cache-salt', 'secrets/salt'],
        ['manifest', 'configmaps/manifest'],
      ] as const) {
        const last = await checksums();
        objects.set(object, 2);
        const next = await checksums();
        assert.deepEqual(
          [...next.keys()].filter((key) => next.get(key) !== last.get(key)),
          [name],
        );
      }
    });

    it('is installed by the commands of docs/install.md', async (t) => {
      const { url } = await serveCluster(t, new Map());
      const shims = temporaryDirectory('shims-');
      const shim = (name: string, line: string): void =>
        writeFileSync(join(shims, name), `#!/bin/sh\n${line}\n`, { mode: 0o755 });
      for (const name of ['docker', 'kubectl']) shim(name, `echo "${name} $*"`);
      shim(
        'helm',
        `exec ${HELM.path} "$@" --dry-run=server --kube-apiserver ${url} --disable-openapi-validation`,
      );
      const command = `PATH=${shims}:$PATH\ncd ${ROOT}\n${installBlock('chart')}`;
      const { status, stdout, stderr } = await runAside('bash', ['-euc', command]);
      assert.equal(status, 0, stderr);
      // the secret is the one that the chart reads
      assert.match(
        stdout,
        /^kubectl create secret generic privatemode-api-key --from-file=apiKey=key\.txt$/m,
      );
      assert.match(stdout, /secretName: privatemode-api-key\n(.*\n)*?.*key: apiKey/);
      // the image is the one that the commands have built and pushed
      const [, image] = /image: "(registry\.example\.com\/.*)"/.exec(stdout) as RegExpExecArray;
      const made = [`docker build --tag ${image} .`, `docker push ${image}`];
      assert.deepEqual(stdout.match(/^docker .*$/gm), made);
      assert.deepEqual(read('deploy/chart/README.md').match(/^docker .*$/gm), made);
      const address = /http:\/\/privatemode-proxy-my-release\.\S*\/v1/;
      const page = readFileSync(join(ROOT, 'docs/install.md'), 'utf8');
      assert.equal(address.exec(stdout)?.[0], address.exec(page)?.[0]?.replace(/`$/, ''));
    });

    it('prints after the installation the URL of the proxy, and hints that fit its values', async (t) => {
      const { url } = await serveCluster(t, new Map());
      const plain = await install(url, {});
      assert.match(plain, /http:\/\/privatemode-proxy-my-release\.ai\.svc\.cluster\.local:8080\/v1/);
      assert.match(plain, /create secret generic privatemode-api-key/);
      assert.match(plain, /log of enforced manifests ends with its pod\. /);
      const rich = await install(url, {
        replicaCount: 2,
        service: { port: 9000 },
        config: {
          tls: { enabled: true },
          apiKey: { enabled: false },
          receipts: true,
          sharedPromptCache: { enabled: true },
          manifest: { enabled: true },
          ssEndpoint: {},
        },
      });
      assert.match(rich, /https:\/\/privatemode-proxy-my-release\.ai\.svc\.cluster\.local:9000\/v1/);
      assert.match(rich, /each application sends its own/);
      assert.match(rich, /shares a prompt cache among its own clients only/);
      assert.match(rich, /replaced at every update/);
      assert.match(rich, /ends with its pod, and so do the receipts\. /);
      assert.match(rich, /are ignored/);
      const team = await install(url, {
        config: { tls: { enabled: true } },
        clients: { existingSecret: 'my-team' },
      });
      assert.match(team, /Only the clients in clients\.json of the secret my-team may use the proxy/);
      const tls = /Node in the image lacks fixes that config\.tls needs\. SECURITY\.md/;
      assert.match(team, tls);
      assert.doesNotMatch(plain, tls);
      const clear = await install(url, { clients: { existingSecret: 'my-team' } });
      assert.match(clear, /cross the cluster in the clear\. SECURITY\.md .* says how to serve TLS\./);
      const single = await install(url, { config: { workspace: { enabled: true } } });
      assert.match(single, /stops the old pod before it starts the new one/);
      assert.match(single, /nothing\s+accepts connections, for up to 600 s/);
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
