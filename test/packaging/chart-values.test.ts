import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { parse } from 'yaml';
import { FLAGS, LISTED, type Row } from '../../lib/config/flags.ts';
import { VERSION } from '../../lib/version.ts';
import { renderReadme, valueRows } from '../../scripts/chart-readme.ts';
import { parsed } from '../support/doors/config.ts';
import { run } from '../support/processes/tools.ts';
import { assertShown, everyPair, FACTORS, type Level, type PodSpec } from './support/chart-levels.ts';
import {
  CHART,
  HELM,
  KUBECTL_VALIDATE,
  type KubernetesObject,
  render,
  type Values,
  validate,
} from './support/helm.ts';

const objectOf = (objects: readonly KubernetesObject[], kind: string): KubernetesObject =>
  objects.find((object) => object.kind === kind) ?? assert.fail(`no ${kind} was rendered`);

const podOf = (objects: readonly KubernetesObject[]): PodSpec =>
  (objectOf(objects, 'Deployment').spec['template'] as { spec: PodSpec }).spec;

const merged = (levels: readonly Level[]) => ({
  config: Object.assign({}, ...levels.map(({ config }) => config)),
});

/** The files that the chart mounts, as far as the proxy reads them at start. */
const MOUNTED = {
  '/etc/privatemode-proxy/api-key/apiKey': 'a-key\n',
  '/etc/privatemode-proxy/prompt-cache-salt/promptCacheSalt': '0123456789abcdef0123456789abcdef',
  '/etc/config/manifest.json': '{"Policies":{},"ReferenceValues":{}}',
  '/etc/privatemode-proxy/clients/team.json': '{"clients":[]}',
  '/etc/privatemode-proxy/limits-store/address': 'rediss://:password@redis.example:6380/0',
};

describe('the files of the chart', () => {
  it('have the README.md that is generated from values.yaml', () => {
    assert.equal(readFileSync(join(CHART, 'README.md'), 'utf8'), renderReadme());
  });

  it('explain every value in values.yaml', () => {
    const rows = valueRows(readFileSync(join(CHART, 'values.yaml'), 'utf8'));
    assert.ok(rows.length > 80, `${rows.length} values`);
    assert.deepEqual(
      rows.filter(({ meaning }) => meaning === '').map(({ path }) => path),
      [],
    );
  });

  it('have the version of the program', () => {
    const chart = parse(readFileSync(join(CHART, 'Chart.yaml'), 'utf8'));
    assert.equal(chart.version, VERSION);
    assert.equal(chart.appVersion, VERSION);
  });

  it('refuse among extraArgs every flag that the chart sets itself, in each of its spellings', () => {
    const templates = readFileSync(join(CHART, 'templates/_pod.tpl'), 'utf8');
    const set = new Set([...templates.matchAll(/"--([a-z-]+)[=]/g)].map((match) => match[1]));
    const guarded = /\$own := list (.*?) }}/.exec(
      readFileSync(join(CHART, 'templates/_checks.tpl'), 'utf8'),
    )?.[1];
    const aliases = FLAGS.filter(({ name }) => set.has(name)).flatMap(({ aliases: of = [] }) =>
      of.map(({ name }) => name),
    );
    assert.ok(set.has('metrics-address') && aliases.includes('apiKey'));
    const expected = [...set, ...aliases].sort();
    assert.deepEqual([...guarded!.matchAll(/"([^"]+)"/g)].map((match) => match[1]).sort(), expected);
  });
});

if (HELM.skip === false) {
  describe('the chart with values', () => {
    it('passes lint', () => {
      const { status, stdout } = run(HELM.path, ['lint', '--strict', CHART]);
      assert.equal(status, 0, stdout);
    });

    for (const [name, levels] of Object.entries(FACTORS)) {
      it(`has the documented flags, variables, volumes and probes with ${name}`, () => {
        for (const level of levels) assertShown(level, podOf(render(merged([level])).objects));
      });
    }

    it('has them in every pair of settings, too, and is accepted by the proxy and by Kubernetes', () => {
      const rows = everyPair(FACTORS);
      const texts = rows.map((levels) => {
        const { objects, text } = render(merged(levels));
        const pod = podOf(objects);
        for (const level of levels) assertShown(level, pod);
        const { config } = parsed(pod.containers[0].args, MOUNTED);
        assert.equal(config.port, pod.containers[0].ports[0]?.containerPort);
        assert.deepEqual(
          pod.containers[0].volumeMounts.map(({ name }) => name).sort(),
          pod.volumes.map((volume) => volume['name']).sort(),
        );
        return text;
      });
      assert.ok(rows.length >= 16 && rows.length < 60, `${rows.length} combinations`);
      if (KUBECTL_VALIDATE.skip === false) assert.equal(validate(texts, '1.30'), '');
    });

    it('listens on IPv4, and for requests and metrics on IPv6 too if listenAddress is ::', () => {
      const listening = (values: Values) => {
        const pod = podOf(render({ config: values, metrics: { enabled: true } }).objects);
        const { config } = parsed(pod.containers[0].args, MOUNTED);
        return [config.listenAddress, config.metricsAddress];
      };
      assert.deepEqual(listening({}), ['0.0.0.0', { host: '0.0.0.0', port: 9090 }]);
      assert.deepEqual(listening({ listenAddress: '::' }), ['::', { host: '::', port: 9090 }]);
    });

    it('lets the applications bring their own keys', () => {
      const pod = podOf(render({ config: { apiKey: { enabled: false } } }).objects);
      assert.deepEqual(
        pod.containers[0].args.filter((arg) => arg.includes('api-key')),
        [],
      );
      assert.deepEqual(
        pod.volumes.map((volume) => volume['name']),
        ['workspace'],
      );
    });

    it('mounts the clients file as a directory, so that changes arrive, and the limits store as a file', () => {
      const pod = podOf(
        render({
          clients: { existingSecret: 'my-team', fileName: 'team.json' },
          limits: {
            maxInFlight: 40,
            store: { existingSecret: 'my-redis', key: 'address' },
            storeFailure: 'open',
          },
        }).objects,
      );
      const { args, volumeMounts } = pod.containers[0];
      const { config } = parsed(args, MOUNTED);
      assert.equal(config.clients, '/etc/privatemode-proxy/clients/team.json');
      assert.ok(args.includes('--max-in-flight=40'));
      assert.ok(args.includes('--limits-store=@/etc/privatemode-proxy/limits-store/address'));
      assert.ok(args.includes('--limits-store-failure=open'));
      const mount = (name: string) => volumeMounts.find((entry) => entry.name === name);
      assert.deepEqual(mount('clients'), {
        name: 'clients',
        mountPath: '/etc/privatemode-proxy/clients',
        readOnly: true,
      });
      assert.deepEqual(
        pod.volumes.filter(({ name }) => name === 'clients' || name === 'limits-store'),
        [
          { name: 'clients', secret: { secretName: 'my-team', defaultMode: 0o440 } },
          {
            name: 'limits-store',
            secret: {
              secretName: 'my-redis',
              defaultMode: 0o440,
              items: [{ key: 'address', path: 'address' }],
            },
          },
        ],
      );
    });

    it('can pass every flag of the proxy, by a value or among extraArgs', () => {
      const flagsOf = (values: Values) =>
        podOf(render(values).objects).containers[0].args.map((arg) => /^--([a-z-]+)=/.exec(arg)?.[1] ?? arg);
      const byValues = flagsOf({
        config: {
          apiKey: { fallback: 'never' },
          corsAllowedOrigins: ['*'],
          sharedPromptCache: { enabled: true, promptCacheSalt: { enabled: true } },
          tls: { enabled: true },
          manifest: { enabled: true },
          apiEndpoint: { enabled: true },
          receipts: true,
        },
        clients: { existingSecret: 'team' },
        limits: { maxInFlight: 1, store: { existingSecret: 'store' } },
        metrics: { enabled: true },
      });
      const flags = LISTED.filter(({ commandLineOnly }) => !commandLineOnly).map(({ name }) => name);
      for (const name of byValues) assert.ok(flags.includes(name as Row['name']), name);
      const others = flags.filter((name) => !byValues.includes(name));
      assert.ok(others.includes('stream-keepalive'));
      const extraArgs = others.map((name) => `--${name}=0`);
      assert.deepEqual(flagsOf({ extraArgs }).slice(-others.length), others);
    });

    it('sets no flag of clients, limits, limits store or TLS by default', () => {
      const [{ args }] = podOf(render().objects).containers;
      assert.deepEqual(
        args.filter((arg) => /^--(clients|limits|max-in-flight|tls)/.test(arg)),
        [],
      );
    });

    it('fits the restricted Pod Security Standard, and runs on a read-only root', () => {
      const pod = podOf(render().objects);
      assert.equal(pod.securityContext['runAsNonRoot'], true);
      assert.deepEqual(pod.securityContext['seccompProfile'], { type: 'RuntimeDefault' });
      assert.deepEqual(pod.containers[0].securityContext, {
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ['ALL'] },
      });
      assert.equal(pod.automountServiceAccountToken, false);
    });

    it('probes /readyz for start-up and readiness, and /healthz for liveness', () => {
      const { containers } = podOf(render({ probes: { startup: { enabled: true } } }).objects);
      assert.equal(containers[0].startupProbe?.httpGet.path, '/readyz');
      assert.equal(containers[0].readinessProbe.httpGet.path, '/readyz');
      assert.equal(containers[0].livenessProbe.httpGet.path, '/healthz');
    });

    it('gives a pod shutdownDelaySeconds, shutdownGraceSeconds and 15 s more before it is killed', () => {
      for (const [shutdownGraceSeconds, shutdownDelaySeconds] of [
        [600, 5],
        [30, 0],
        [0, 20],
      ] as const) {
        const pod = podOf(render({ shutdownGraceSeconds, shutdownDelaySeconds }).objects);
        assert.ok(pod.containers[0].args.includes(`--shutdown-grace=${shutdownGraceSeconds}s`));
        const delays = pod.containers[0].args.filter((arg) => arg.startsWith('--shutdown-delay='));
        assert.deepEqual(
          delays,
          shutdownDelaySeconds > 0 ? [`--shutdown-delay=${shutdownDelaySeconds}s`] : [],
        );
        assert.equal(pod.terminationGracePeriodSeconds, shutdownDelaySeconds + shutdownGraceSeconds + 15);
        assert.equal(pod.containers[0].lifecycle, undefined);
      }
    });

    it('has the strategy Recreate with a claim that only one pod can mount, and else RollingUpdate', () => {
      const strategy = (workspace: object) =>
        (
          objectOf(render({ config: { workspace } }).objects, 'Deployment').spec['strategy'] as {
            type: string;
          }
        ).type;
      assert.equal(strategy({ enabled: true }), 'Recreate');
      assert.equal(strategy({ enabled: true, accessMode: 'ReadWriteOncePod' }), 'Recreate');
      assert.equal(strategy({ enabled: true, accessMode: 'ReadWriteMany' }), 'RollingUpdate');
      assert.equal(strategy({ enabled: false }), 'RollingUpdate');
    });

    it('accepts a values file that was written for the chart of the vendor', () => {
      const { objects } = render({
        replicaCount: 1,
        image: { image: `registry.example.com/proxy@sha256:${'0'.repeat(64)}`, restartPolicy: 'Always' },
        nodeSelector: { 'kubernetes.io/arch': 'amd64' },
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
      });
      const [container] = podOf(objects).containers;
      assert.equal(container.image, `registry.example.com/proxy@sha256:${'0'.repeat(64)}`);
      assert.ok(container.args.includes('--api-endpoint=api.example.com:443'));
      assert.ok(container.args.includes('--workspace=/data'));
      assert.equal(container.ports[0]?.containerPort, 8081);
    });

    it('names the image by digest rather than tag, and without either by the version of the program', () => {
      const image = (values: object) =>
        podOf(render({ image: { repository: 'r', ...values } }).objects).containers[0].image;
      const digest = `sha256:${'a'.repeat(64)}`;
      assert.equal(image({}), `r:${VERSION}`);
      assert.equal(image({ tag: 'latest' }), 'r:latest');
      assert.equal(image({ tag: 'latest', digest }), `r@${digest}`);
      assert.equal(image({ tag: 'latest', digest, image: 'whole:1' }), 'whole:1');
    });
  });
}
