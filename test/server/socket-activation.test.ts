import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { inheritedSocket } from '../../lib/server/socket-activation.ts';
import { refused } from '../support/config.ts';

describe('socket activation', () => {
  it('finds the socket that was opened for this process', () => {
    assert.equal(inheritedSocket({ LISTEN_FDS: '1', LISTEN_PID: '42' }, 42), 3);
  });

  it('leaves alone what is meant for another process', () => {
    assert.equal(inheritedSocket({ LISTEN_FDS: '1', LISTEN_PID: '41' }, 42), undefined);
    assert.equal(inheritedSocket({ LISTEN_FDS: '1' }, 42), undefined);
  });

  it('opens the port itself where no socket was passed', () => {
    assert.equal(inheritedSocket({}, 42), undefined);
    assert.equal(inheritedSocket({ LISTEN_PID: '42' }, 42), undefined);
    assert.equal(inheritedSocket({ LISTEN_FDS: '0', LISTEN_PID: '42' }, 42), undefined);
  });

  it('refuses what it would serve only in part', () => {
    for (const count of ['2', '-1', '1x', '']) {
      refused(
        () => inheritedSocket({ LISTEN_FDS: count, LISTEN_PID: '42' }, 42),
        ['LISTEN_FDS', 'ListenStream'],
      );
    }
  });
});
