/** Embeddings. */
import { CREATED, forVersions, type Members, MODEL, type Row, type Transcript, whole } from './transcript.ts';

/** Exact as 32-bit floats. */
const VECTOR = [0.5, -0.25, 0.125, 0];
const BASE64 = Buffer.from(Float32Array.from(VECTOR).buffer).toString('base64');

const asked = (more: Members): Members => ({ model: MODEL, input: 'a', ...more });

const datum = (index: number, embedding: unknown): Members => ({ index, object: 'embedding', embedding });

const list = (data: readonly Members[], more: Members = {}): Members => ({
  id: 'embd-0c7f2e11b3d94d55',
  object: 'list',
  created: CREATED,
  model: MODEL,
  data,
  usage: { prompt_tokens: 3, total_tokens: 3, completion_tokens: 0, prompt_tokens_details: null },
  ...more,
});

const withoutCreated = ({ created: _, ...rest }: Members): Members => rest;

const ROWS: readonly Row[] = [
  {
    name: 'floats',
    request: asked({ encoding_format: 'float' }),
    response: whole(list([datum(0, VECTOR)])),
  },
  {
    name: 'base64',
    request: asked({ encoding_format: 'base64' }),
    response: whole(list([datum(0, BASE64)])),
  },
  {
    name: 'several',
    request: asked({ input: ['a', 'b', 'c'], encoding_format: 'float' }),
    response: whole(list([0, 1, 2].map((index) => datum(index, VECTOR)))),
  },
  {
    name: 'without the time',
    request: asked({ encoding_format: 'float' }),
    response: whole(withoutCreated(list([datum(0, VECTOR)]))),
  },
  {
    name: 'a model of null',
    request: asked({ encoding_format: 'float' }),
    response: whole(list([datum(0, VECTOR)], { model: null })),
  },
];

export const EMBEDDINGS: readonly Transcript[] = forVersions('embeddings', () => ROWS);
