/** The chart as helm renders it. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import { program } from '../../support/processes/foreign-programs.ts';
import { temporaryDirectory } from '../../support/processes/temporary-directory.ts';
import { ROOT, run } from '../../support/processes/tools.ts';

export const CHART = join(ROOT, 'deploy/chart');
const FROM = { from: 'scripts/install-chart-tools.sh' };
export const HELM = program('helm', FROM);
export const KUBECTL_VALIDATE = program('kubectl-validate', FROM);

export type Values = Readonly<Record<string, unknown>>;

export interface Cluster {
  readonly release?: string;
  readonly kubeVersion?: string;
  readonly apiVersions?: readonly string[];
}

function template(values: Values, cluster: Cluster) {
  const args = ['template', cluster.release ?? 'my-release', CHART, '--values', '-'];
  args.push('--kube-version', cluster.kubeVersion ?? '1.30.0');
  args.push('--namespace', 'default');
  for (const version of cluster.apiVersions ?? []) args.push('--api-versions', version);
  return run(HELM.path, args, { input: JSON.stringify(values) });
}

/** The rendered objects, as text and parsed. Throws with helm's words. */
export function render(values: Values = {}, cluster: Cluster = {}) {
  const { status, stdout, stderr } = template(values, cluster);
  if (status !== 0) throw new Error(`helm template: ${stderr}`);
  const objects = parseAllDocuments(stdout).map((document) => {
    if (document.errors.length > 0) throw document.errors[0];
    return document.toJSON();
  });
  return { text: stdout, objects };
}

/** The words with which helm refuses these values. */
export function refusal(values: Values, cluster: Cluster = {}): string {
  const { status, stdout, stderr } = template(values, cluster);
  if (status === 0) throw new Error(`expected a refusal, got objects:\n${stdout}`);
  return stderr;
}

/**
 * What kubectl-validate finds wrong with the rendered texts by the schemas of a Kubernetes version; empty:
 * nothing.
 */
export function validate(texts: readonly string[], kubernetesVersion: string): string {
  const directory = temporaryDirectory('rendered-');
  texts.forEach((text, index) => {
    writeFileSync(join(directory, `${index}.yaml`), text);
  });
  const args = [directory, '--version', kubernetesVersion];
  // Without a home there is no cluster configuration that it would rather ask.
  const env = { PATH: process.env['PATH'], HOME: directory, KUBECONFIG: '/dev/null' };
  const { status, stdout, stderr } = run(KUBECTL_VALIDATE.path, args, { env, timeoutMs: 300_000 });
  return status === 0 ? '' : stdout + stderr;
}
