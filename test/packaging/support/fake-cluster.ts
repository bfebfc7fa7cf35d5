/**
 * As much of a Kubernetes API as helm asks for before an installation: versions, kinds, and the objects that
 * it looks up.
 */
import { createServer } from 'node:http';
import type { TestContext } from 'node:test';
import { listening } from '../../support/remote/loopback.ts';

const KINDS: Readonly<Record<string, readonly string[]>> = {
  v1: ['Service', 'Secret', 'ConfigMap'],
  'apps/v1': ['Deployment'],
};

/**
 * Serves a cluster of version 1.30 on loopback. `objects` are the objects that exist: `<resource>/<name>` →
 * resourceVersion, which may change later.
 */
export async function serveCluster(t: Pick<TestContext, 'after'>, objects: ReadonlyMap<string, number>) {
  const server = createServer((req, res) => {
    const answer = answerTo((req.url ?? '').split('?', 1)[0] as string, objects);
    res.writeHead(answer === undefined ? 404 : 200, { 'content-type': 'application/json' });
    res.end(JSON.stringify(answer ?? { kind: 'Status', apiVersion: 'v1', reason: 'NotFound', code: 404 }));
  });
  const { port } = await listening(t, server);
  return { url: `http://127.0.0.1:${port}` };
}

function answerTo(path: string, objects: ReadonlyMap<string, number>): object | undefined {
  if (path === '/version') return { major: '1', minor: '30', gitVersion: 'v1.30.0' };
  if (path === '/api') return { kind: 'APIVersions', versions: ['v1'] };
  if (path === '/apis') {
    const version = { groupVersion: 'apps/v1', version: 'v1' };
    return {
      kind: 'APIGroupList',
      groups: [{ name: 'apps', versions: [version], preferredVersion: version }],
    };
  }
  const groupVersion = path.replace(/^\/apis?\//, '');
  if (Object.hasOwn(KINDS, groupVersion)) {
    const resources = KINDS[groupVersion]!.map((kind) => ({
      name: `${kind.toLowerCase()}s`,
      kind,
      namespaced: true,
      verbs: ['get', 'list', 'create'],
    }));
    return { kind: 'APIResourceList', groupVersion, resources };
  }
  const [resource, name] = path.split('/').slice(-2) as [string, string];
  const resourceVersion = objects.get(`${resource}/${name}`);
  if (resourceVersion === undefined) return undefined;
  const metadata = { name, uid: `uid-of-${name}`, resourceVersion: String(resourceVersion) };
  return { kind: resource === 'secrets' ? 'Secret' : 'ConfigMap', apiVersion: 'v1', metadata, data: {} };
}
