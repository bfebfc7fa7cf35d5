import { once } from 'node:events';
import { audioForm, FORM_BOUNDARY } from '../fixtures.ts';
import { dial, requestHead, type Target } from '../load.ts';
import type { Metric } from '../metric.ts';
import { forgetPeak, peakBytes, residentBytes } from '../processes.ts';
import { shuffled } from '../stats.ts';

const FILE = 64 * 1024 * 1024;
const PLAN = { unary: true };

/** Sends the form and waits for the end of its answer. */
async function sendForm(target: Target): Promise<void> {
  const socket = await dial(target);
  const pieces = (): Generator<Buffer> => audioForm(PLAN, FILE);
  let length = 0;
  for (const piece of pieces()) length += piece.length;
  const contentType = `multipart/form-data; boundary=${FORM_BOUNDARY}`;
  socket.write(
    requestHead(target, PLAN, length, {
      path: '/v1/audio/transcriptions',
      contentType,
    }),
  );
  const answered = new Promise<void>((resolve, reject) => {
    let text = '';
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1');
      if (!text.startsWith('HTTP/1.1 200')) reject(new Error(`the upload was answered with ${text}`));
      else if (text.includes('What was said.')) resolve();
    });
    socket.on('close', () => reject(new Error('the upload was not answered')));
  });
  for (const piece of pieces()) if (!socket.write(piece)) await once(socket, 'drain');
  await answered;
  socket.destroy();
}

export const uploadMemory: Metric = {
  name: 'upload_mem',
  rows: [
    {
      id: 'upload_mem',
      title: '64 MiB audio upload, peak memory over idle',
      figure: '÷ body',
      bar: { limit: 1.5, kind: 'at most' },
    },
  ],
  rounds: { full: 5, quick: 0 },
  async round(subjects) {
    const values: Record<string, number> = {};
    let share = Number.NaN;
    for (const name of shuffled(subjects.startable)) {
      const subject = await subjects.fresh(name);
      const pid = subject.pid as number;
      try {
        const idle = residentBytes(pid);
        forgetPeak(pid);
        await sendForm(subject.target);
        const peak = peakBytes(pid);
        if (name === 'ours') share = (peak - idle) / FILE;
        Object.assign(values, { [`${name}, idle MB`]: idle / 1e6, [`${name}, peak MB`]: peak / 1e6 });
      } finally {
        await subject.stop();
      }
    }
    return { figures: { upload_mem: share }, values };
  },
};
