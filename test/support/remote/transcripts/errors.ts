/** Responses of status 400 and above: of the model server, sealed like any other. */
import { forVersions, type Members, MODEL, type Row, type Transcript, whole } from './transcript.ts';

const CHAT = { model: MODEL, messages: [{ role: 'user', content: 'x' }] };
const REQUESTS = {
  chat: CHAT,
  completions: { model: MODEL, prompt: 'x' },
  messages: { ...CHAT, max_tokens: 100 },
  embeddings: { model: MODEL, input: 'x', encoding_format: 'float' },
  transcription: { model: MODEL },
  unstructured: {},
};

const vllm = (status: number, type: string): Row['response'] =>
  whole({ error: { message: 'This is what went wrong: "ü".', type, param: null, code: status } }, status);

const anthropic = (status: number, type: string): Row['response'] =>
  whole({ type: 'error', error: { type, message: 'This is what went wrong: "ü".' } }, status);

const row = (name: string, request: Members, response: Row['response']): Row => ({
  name,
  request,
  response,
  ends: 'error',
});

/** The exception handlers of the server are shared: they answer every endpoint in the same shapes. */
const shared = (request: Members): readonly Row[] => [
  row('refused with an object', request, vllm(400, 'BadRequestError')),
  row(
    'refused with an object in which more is named',
    request,
    whole({ error: { message: 'too long', type: 'BadRequestError', param: 'input_tokens', code: 400 } }, 400),
  ),
  row('not found', request, vllm(404, 'NotFoundError')),
  row('failed', request, vllm(500, 'InternalServerError')),
  row('refused with a text', request, whole({ error: 'Unauthorized' }, 401)),
];

const MESSAGES: readonly Row[] = [
  row('refused in its own shape', REQUESTS.messages, anthropic(400, 'invalid_request_error')),
  row('failed in its own shape', REQUESTS.messages, anthropic(500, 'internal_error')),
];

const UNSTRUCTURED: readonly Row[] = [
  row('refused with a detail', {}, whole({ detail: 'File type is not supported' }, 415)),
  row(
    'refused with a list of details',
    {},
    whole({ detail: [{ type: 'missing', loc: ['body', 'files'], msg: 'Field required', input: null }] }, 422),
  ),
];

export const ERRORS: readonly Transcript[] = [
  ...(['chat', 'completions', 'messages', 'embeddings', 'transcription'] as const).flatMap((endpoint) =>
    forVersions(endpoint, () => shared(REQUESTS[endpoint])),
  ),
  ...forVersions('messages', () => MESSAGES),
  ...forVersions('unstructured', () => UNSTRUCTURED),
];
