import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { newRequestId } from '../../lib/api/error-response.ts';

const NOW = 0x0123456789ab;
const UUID = /^proxy_01234567-89ab-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

describe('request ids', () => {
  it('are UUIDs of version 7 that begin with the time', () => {
    for (let i = 0; i < 200; i++) assert.match(newRequestId('proxy', NOW), UUID);
    const today = Number.parseInt(newRequestId('proxy').slice(6, 19).replace('-', ''), 16);
    assert.ok(Math.abs(Date.now() - today) < 10_000);
  });

  it('have 74 random bits, drawn anew for each id', () => {
    const ids = Array.from({ length: 200 }, () =>
      BigInt(`0x${newRequestId('proxy', NOW).slice(6).replaceAll('-', '')}`),
    );
    const seen = (bit: bigint): number => new Set(ids.map((id) => (id >> bit) & 1n)).size;
    const drawn = Array.from({ length: 128 }, (_, bit) => seen(BigInt(bit))).filter((count) => count === 2);
    assert.equal(drawn.length, 74);
  });
});
