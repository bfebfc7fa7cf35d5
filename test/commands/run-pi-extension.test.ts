import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { pathToFileURL } from 'node:url';
import { PI } from '../../lib/commands/agents/pi.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

interface Model {
  readonly provider: string;
  readonly id: string;
}
type Handler = (event: object, ctx: object) => unknown;

const OURS = { provider: 'privatemode', id: 'model-a' };
const SECOND = { provider: 'privatemode', id: 'model-b' };
const OTHER = { provider: 'groq', id: 'model-a' };

describe('the extension that privatemode-proxy run gives to pi', () => {
  const registered: unknown[] = [];
  const handlers = new Map<string, Handler>();
  const chosen: unknown[] = [];
  const told: string[] = [];
  before(async () => {
    const place = {
      ...{
        url: 'http://127.0.0.1:7',
        key: 'placeholder',
        model: { name: 'model-a', limits: undefined },
        aliases: [],
      },
      models: [{ name: 'model-a', limits: undefined }],
      ...{ file: '/x.ts', direct: { no_proxy: '', NO_PROXY: '' } },
    };
    Object.assign(process.env, PI.env(place));
    const file = join(temporaryDirectory('pi-extension-'), 'extension.mjs');
    writeFileSync(file, PI.file?.text ?? '');
    const { default: extend } = await import(pathToFileURL(file).href);
    extend({
      registerProvider: (...of: unknown[]) => registered.push(of),
      on: (event: string, handler: Handler) => handlers.set(event, handler),
      setModel: async (model: Model) => chosen.push(model),
    });
  });
  after(() => {
    for (const name of Object.keys(process.env))
      if (/^(?:PI_|LOCAL_PROXY_)/.test(name)) delete process.env[name];
  });

  const context = (model?: Model) => ({
    model,
    modelRegistry: { find: (provider: string, id: string) => ({ provider, id }) },
    ui: { notify: (text: string) => told.push(text) },
  });
  const select = async (model: Model, previousModel?: Model) => {
    chosen.length = 0;
    await handlers.get('model_select')?.({ model, previousModel }, context(model));
    return chosen;
  };

  it('adds one provider, the proxy, with the limits that pi assumes if none are known', () => {
    const [[name, config]] = registered as [[string, Record<string, unknown>]];
    assert.deepEqual([registered.length, name, config['baseUrl']], [1, 'privatemode', 'http://127.0.0.1:7']);
    const [{ id, contextWindow, maxTokens }] = config['models'] as [Record<string, unknown>];
    assert.deepEqual([id, contextWindow, maxTokens], ['model-a', 128_000, 16_384]);
  });

  it('switches back to the proxy if the user or another extension switches to another provider', async () => {
    assert.deepEqual(await select(OTHER, SECOND), [SECOND]);
    assert.deepEqual(await select(OTHER, OTHER), [OURS]);
    assert.deepEqual(await select(OTHER), [OURS]);
    assert.deepEqual(told, Array(3).fill('privatemode-proxy run keeps this session on the proxy'));
  });

  it('empties requests to another provider or to none, and leaves requests to the proxy unchanged', () => {
    const request = (model?: Model) =>
      handlers.get('before_provider_request')?.({ payload: { messages: ['secret'] } }, context(model));
    assert.deepEqual([request(OTHER), request(undefined)], [{}, {}]);
    assert.equal(request(SECOND), undefined);
  });
});
