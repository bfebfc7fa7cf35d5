import type { Metric } from '../metric.ts';
import { monotonicMs } from '../processes.ts';
import { untilReady } from '../subjects.ts';

export const timeToReady: Metric = {
  name: 'start',
  rows: [
    {
      id: 'start',
      title: 'Start to /readyz 204, collateral cached',
      figure: 'ms',
      bar: { limit: 400, kind: 'at most' },
    },
  ],
  rounds: { full: 9, quick: 3 },
  async round(subjects) {
    await subjects.get('ours'); // fills the cache
    const from = monotonicMs();
    const subject = await subjects.fresh('ours', {
      place: 'anywhere',
      unready: true,
    });
    await untilReady(subject.target.port);
    const took = monotonicMs() - from;
    await subject.stop();
    return { figures: { start: took }, values: { 'ready after, ms': took } };
  },
};
