import { setTimeout as delay } from 'node:timers/promises';
import { chatBody } from '../fixtures.ts';
import { gapsOf, openPaced, openStream } from '../load.ts';
import type { Metric } from '../metric.ts';

const PACE = 20;
const PLAN = { events: 1 };
const UPLOAD = 16_000_000;

export const neighbourStall: Metric = {
  name: 'neighbour_stall',
  rows: [
    {
      id: 'neighbour_stall',
      title: 'Worst gap of 20 streams × 20 ms during a 16 MB upload',
      figure: '÷ pace',
      bar: { limit: 2, kind: 'at most' },
    },
  ],
  rounds: { full: 9, quick: 1 },
  async round(subjects) {
    const worst: Record<string, number> = {};
    const { target } = await subjects.get('ours');
    const body = chatBody(PLAN, UPLOAD); // made before, or it would stall the generator
    for (const uploading of [false, true]) {
      const events = uploading ? 60 : 40;
      const streams = await openPaced(target, {
        count: 20,
        events,
        pace: PACE,
        lead: 200,
      });
      await Promise.all(streams.map((stream) => stream.reached(5)));
      if (uploading) await (await openStream(target, PLAN, body)).finished;
      else await delay(200);
      await Promise.all(streams.map(({ finished }) => finished));
      worst[uploading ? 'during the upload, ms' : 'without it, ms'] = Math.max(...streams.flatMap(gapsOf));
    }
    return {
      figures: { neighbour_stall: worst['during the upload, ms']! / PACE },
      values: worst,
    };
  },
};
