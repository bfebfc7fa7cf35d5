/**
 * A fault of the program in one request, or of the machine in one connection, must not end all the others.
 */
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Server } from 'node:http';
import { describe, it } from 'node:test';
import { CANARY, gatewayFixture, get } from '../support/doors/gateway-fixture.ts';

describe('the gateway', () => {
  it('ends only the request in which the program throws', async (t) => {
    let faults = 1;
    const { gateway, ask, client } = await gatewayFixture(t, {
      deps: {
        cors() {
          if (faults-- > 0) throw new TypeError(`${CANARY} is not a function`);
          return { allowedOrigins: [], ownNames: [] };
        },
      },
    });
    const unlucky = client();
    unlucky.send(get('/healthz'));
    await unlucky.ended;
    assert.equal(unlucky.received(), '');
    assert.equal((await ask(get('/healthz'))).status, 200);
    assert.match(gateway.logLines.join(''), /A request could not be treated/);
  });

  it('still answers after the listener has failed to accept a connection', async (t) => {
    const { ask } = await gatewayFixture(t);
    let server: Server | undefined;
    const seen = (message: unknown): void => {
      server = (message as { server: Server }).server;
    };
    subscribe('http.server.request.start', seen);
    t.after(() => unsubscribe('http.server.request.start', seen));
    await ask(get('/healthz'));
    for (let i = 0; i < 2; i++)
      server?.emit('error', Object.assign(new Error('accept ENFILE'), { code: 'ENFILE' }));
    assert.equal((await ask(get('/healthz'))).status, 200);
  });
});
