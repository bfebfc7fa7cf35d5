import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Agent, fetch, type RequestInit, type Response } from 'undici';
import type { Simulator } from '../../simulator/simulator.ts';
import { startTestSimulator } from '../support/remote/simulator.ts';

const PREFLIGHT: RequestInit = {
  method: 'OPTIONS',
  headers: {
    origin: 'http://page.test',
    'access-control-request-method': 'POST',
    'access-control-request-headers': 'authorization,privatemode-secret-id',
  },
};

for (const cors of [true, false]) {
  describe(`a web page ${cors ? 'with' : 'without'} --cors`, () => {
    let simulator: Simulator;
    let dispatcher: Agent;
    before(async () => {
      simulator = await startTestSimulator({ cors });
      dispatcher = new Agent({ connect: { ca: simulator.caPem } });
    });
    after(async () => {
      await dispatcher?.close();
      await simulator?.close();
    });
    const ask = (path: string, init: RequestInit = {}): Promise<Response> =>
      fetch(`${simulator.url}${path}`, { ...init, dispatcher });

    it(`${cors ? 'may' : 'may not'} read what the deployment and the vendors answer`, async () => {
      for (const path of ['/privatemode/v2/manifest.json', '/v1/models', '/vcek/v1/Milan/crl']) {
        const { headers } = await ask(path);
        assert.equal(headers.get('access-control-allow-origin'), cors ? '*' : null, path);
      }
    });

    it(`is ${cors ? '' : 'not '}allowed to send the headers it asks for`, async () => {
      const before = simulator.counts['inference'] ?? 0;
      const { status, headers } = await ask('/v1/chat/completions', PREFLIGHT);
      assert.equal(status === 204, cors);
      assert.equal(
        headers.get('access-control-allow-headers'),
        cors ? 'authorization,privatemode-secret-id' : null,
      );
      assert.equal(simulator.counts['inference'], cors ? before : before + 1);
    });
  });
}
