import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { ENDPOINTS, type EndpointId } from '../../lib/api/endpoints.ts';
import { matchEndpoint, type Refusal } from '../../lib/api/match-endpoint.ts';
import type { PrivatemodeError } from '../../lib/errors.ts';
import { grammarOf } from '../../lib/pipeline/response-grammar.ts';
import { PLAIN_MEMBERS } from '../support/remote/plain-members.ts';

function endpointOf(method: string, target: string): readonly [EndpointId, string] {
  const match = matchEndpoint(method, target);
  assert.equal(match.kind, 'endpoint', JSON.stringify(match));
  return match.kind === 'endpoint' ? [match.endpoint.id, match.target] : assert.fail();
}

function refusalOf(method: string, target: string): Refusal & Pick<PrivatemodeError, 'code' | 'message'> {
  const match = matchEndpoint(method, target);
  assert.equal(match.kind, 'refusal', JSON.stringify(match));
  if (match.kind !== 'refusal') assert.fail();
  return { ...match, code: match.error.code, message: match.error.message };
}

describe('forwarded endpoints', () => {
  const forwarded: [method: string, target: string, id: EndpointId, sent?: string][] = [
    ['POST', '/v1/chat/completions', 'chat'],
    ['POST', '/v1/completions', 'completions'],
    ['POST', '/v1/embeddings', 'embeddings'],
    ['GET', '/v1/models', 'models'],
    ['HEAD', '/v1/models', 'models'],
    ['GET', '/v1/models/gpt-oss-120b', 'model'],
    ['GET', '/v1/models/openai%2Fgpt-oss-120b', 'model'],
    ['GET', '/v1/models/openai/gpt-oss-120b', 'model'],
    ['POST', '/v1/audio/transcriptions', 'transcription'],
    ['POST', '/v1/messages', 'messages'],
    ['POST', '/v1/messages?beta=true', 'messages'],
    ['POST', '/unstructured/', 'unstructured'],
    ['POST', '/unstructured/general/v0/general', 'unstructured'],
    // Base URLs with and without /v1, with and without a slash at the end.
    ['POST', '//v1/chat/completions', 'chat', '/v1/chat/completions'],
    ['POST', '/v1//chat/completions', 'chat', '/v1/chat/completions'],
    ['POST', '/v1/v1/messages?beta=true', 'messages', '/v1/messages?beta=true'],
    ['POST', '/v1/v1/v1/messages', 'messages', '/v1/messages'],
    ['GET', '//v1//v1/models?', 'models', '/v1/models'],
    ['POST', '///unstructured//x', 'unstructured', '/unstructured/x'],
    ['POST', '/chat/completions', 'chat', '/v1/chat/completions'],
    ['POST', '/completions', 'completions', '/v1/completions'],
    ['POST', '/messages?beta=true', 'messages', '/v1/messages?beta=true'],
    ['POST', '/embeddings', 'embeddings', '/v1/embeddings'],
    ['POST', '/audio/transcriptions', 'transcription', '/v1/audio/transcriptions'],
    ['GET', '/models?limit=2', 'models', '/v1/models?limit=2'],
    ['HEAD', '/models', 'models', '/v1/models'],
    ['GET', '/models/gpt-oss-120b', 'model', '/v1/models/gpt-oss-120b'],
    ['GET', '/models/openai%2Fgpt-oss-120b', 'model', '/v1/models/openai%2Fgpt-oss-120b'],
    ['POST', '/v1/chat/completions/', 'chat', '/v1/chat/completions'],
    ['POST', '/v1/chat/completions//', 'chat', '/v1/chat/completions'],
    ['POST', '/chat/completions/', 'chat', '/v1/chat/completions'],
    ['POST', '/v1/messages/?beta=true', 'messages', '/v1/messages?beta=true'],
    ['GET', '/v1/models/', 'models', '/v1/models'],
    ['GET', '/v1/models/gpt-oss-120b/', 'model', '/v1/models/gpt-oss-120b'],
    ['POST', '//v1//v1//messages/', 'messages', '/v1/messages'],
    // What lies below belongs to another program: its slashes stay.
    ['POST', '/unstructured/general/', 'unstructured'],
    ['POST', '/unstructured/v1/messages/', 'unstructured'],
  ];
  for (const [method, target, id, sent = target] of forwarded) {
    it(`${method} ${target} reaches the endpoint ${id}`, () =>
      assert.deepEqual(endpointOf(method, target), [id, sent]));
  }

  const queries: [method: string, target: string, sent: string, dropped: string[]][] = [
    ['POST', '/v1/messages?beta=true', '/v1/messages?beta=true', []],
    ['POST', '/v1/messages?beta', '/v1/messages?beta', []],
    ['POST', '/v1/messages?beta=true&api_key=k', '/v1/messages?beta=true', ['api_key']],
    ['POST', '/v1/messages?beta=%20a&x=1&beta=../', '/v1/messages?beta=%20a&beta=../', ['x']],
    ['POST', '/v1/messages?Beta=1&beta%20=1&%62eta=1', '/v1/messages', ['Beta', '?', '?']],
    ['POST', '/v1/messages?beta=1;key=k', '/v1/messages', ['beta']],
    ['POST', '/v1/messages?betamax=1', '/v1/messages', ['betamax']],
    ['POST', '/v1/messages?a%20secret', '/v1/messages', ['?']],
    ['POST', '/v1/messages?secret', '/v1/messages', ['?']],
    ['POST', `/v1/messages?${'x'.repeat(41)}=1`, '/v1/messages', ['?']],
    ['POST', '/v1/messages?limit=1', '/v1/messages', ['limit']],
    ['GET', '/v1/models?&&', '/v1/models', []],
    [
      'GET',
      '/v1/models?limit=2&key=k&after=m%2F1&after_id=a&before_id=b&order=desc',
      '/v1/models?limit=2&after=m%2F1&after_id=a&before_id=b&order=desc',
      ['key'],
    ],
    ['GET', '/v1/models?beta=true', '/v1/models', ['beta']],
    ['GET', '/v1/models/m?limit=1', '/v1/models/m', ['limit']],
    ['POST', '/v1/chat/completions?beta=true', '/v1/chat/completions', ['beta']],
    ['POST', '/v1/completions?limit=1', '/v1/completions', ['limit']],
    ['POST', '/v1/embeddings?api-version=1', '/v1/embeddings', ['api-version']],
    ['POST', '/v1/audio/transcriptions?beta=1', '/v1/audio/transcriptions', ['beta']],
    ['POST', '/unstructured/x?y=%2e%2e/../', '/unstructured/x', ['y']],
  ];
  for (const [method, target, sent, dropped] of queries) {
    it(`${method} ${target} is sent to the service as ${sent}`, () => {
      const match = matchEndpoint(method, target);
      assert.ok(match.kind === 'endpoint');
      assert.deepEqual([match.target, match.dropped], [sent, dropped]);
    });
  }

  // docs/protocol/inference.md 1 and 5.1
  const { C, M, E, T, R, MR, TR, NONE } = PLAIN_MEMBERS;
  const rows = {
    chat: ['openai', 'json', C, R, true, '[DONE]', true],
    responses: ['responses', 'json', C, R, true, '[DONE]', true],
    completions: ['openai', 'json', C, R, true, '[DONE]', true],
    messages: ['anthropic', 'json', M, MR, true, 'message_stop', true],
    embeddings: ['openai', 'json', E, R, false, undefined, true],
    transcription: ['openai', 'multipart', T, TR, false, '[DONE]', true],
    unstructured: ['openai', 'raw', NONE, NONE, false, undefined, true],
    models: ['openai', 'none', NONE, NONE, false, undefined, false],
    model: ['openai', 'none', NONE, NONE, false, undefined, false],
  } as const;
  for (const row of ENDPOINTS) {
    it(`${row.id} is protected as docs/protocol/inference.md says`, () => {
      const { errorFormat, codec, requestPlain, salted, terminal, encrypted } = row;
      const responsePlain = new Set(encrypted ? grammarOf(row).plain.keys() : []);
      assert.deepEqual(
        [errorFormat, codec, requestPlain, responsePlain, salted, terminal, encrypted],
        rows[row.id],
      );
    });
  }

  it('are encrypted if they take a body, and only then', () => {
    for (const { id, codec, encrypted } of ENDPOINTS) assert.equal(encrypted, codec !== 'none', id);
  });
});

describe('paths that the proxy answers itself', () => {
  const local = {
    '/': 'root',
    '//': 'root',
    '/api/hello': 'hello',
    '/api/hello/': 'hello',
    '/health': 'healthz',
    '/healthz': 'healthz',
    '/healthz/': 'healthz',
    '/readyz': 'readyz',
    '/v1': 'api',
    '/v1/': 'api',
    '//v1//': 'api',
  };
  for (const [path, id] of Object.entries(local)) {
    for (const method of ['GET', 'HEAD']) {
      it(`${method} ${path} gets the answer "${id}"`, () =>
        assert.deepEqual(matchEndpoint(method, path), {
          kind: 'local',
          id,
          format: id === 'api' ? 'openai' : 'plain',
        }));
    }
    it(`POST ${path} is refused with method_not_allowed`, () => {
      const { code, allow } = refusalOf('POST', path);
      assert.deepEqual([code, allow], ['method_not_allowed', ['GET', 'HEAD']]);
    });
  }
});

describe('the path of the verification', () => {
  for (const path of ['/verification', '/verification/', '//verification?x=1']) {
    it(`${path} is answered with --expose-verification, and gets unknown_path without it`, () => {
      for (const method of ['GET', 'HEAD'])
        assert.deepEqual(matchEndpoint(method, path, ['verification']), {
          kind: 'local',
          id: 'verification',
          format: 'plain',
        });
      const post = matchEndpoint('POST', path, ['verification']);
      assert.equal(post.kind === 'refusal' && post.error.code, 'method_not_allowed');
      for (const method of ['GET', 'HEAD', 'POST'])
        assert.equal(refusalOf(method, path).code, 'unknown_path', `${method} ${path}`);
    });
  }
});

describe('the count of tokens', () => {
  const paths = [
    '/v1/messages/count_tokens',
    '/v1/messages/count_tokens/',
    '/v1/messages/count_tokens?beta=true',
    '/messages/count_tokens',
    '//v1/v1/messages/count_tokens',
  ];
  for (const path of paths) {
    it(`POST ${path} is answered by the proxy itself`, () =>
      assert.deepEqual(matchEndpoint('POST', path), {
        kind: 'local',
        id: 'count_tokens',
        format: 'anthropic',
      }));
    it(`GET ${path} is refused with method_not_allowed in the anthropic form`, () => {
      const { code, allow, format } = refusalOf('GET', path);
      assert.deepEqual([code, allow, format], ['method_not_allowed', ['POST'], 'anthropic']);
    });
  }
});

describe('a wrong base URL', () => {
  const OPENAI =
    'The base URL of the client has to be http://HOST:PORT/v1, with the host and port of this proxy';
  const ANTHROPIC =
    'The base URL of the client has to be http://HOST:PORT, without a path, with the host and port of this proxy';
  const asked: [path: string, named: string, base: string | undefined][] = [
    ['/openai/v1/chat/completions', '/openai/v1/chat/completions', OPENAI],
    ['/openai/v1/chat/completions/', '/openai/v1/chat/completions', OPENAI],
    ['/api/v1/models', '/api/v1/models', OPENAI],
    ['/v2/chat/completions', '/v2/chat/completions', OPENAI],
    ['/V1/chat/completions', '/V1/chat/completions', OPENAI],
    ['/v1/chat/completions/chat/completions', '/v1/chat/*/chat/completions', OPENAI],
    ['/openai/deployments/a-secret/chat/completions', '/openai/*/chat/completions', OPENAI],
    ['/anthropic/v1/messages', '/anthropic/v1/messages', ANTHROPIC],
    ['/anthropic/v1/messages/count_tokens', '/anthropic/v1/messages/count_tokens', ANTHROPIC],
    ['/v1/files', '/v1/files', undefined],
    ['/v1/files/a-secret', '/v1/files/*', undefined],
    ['/a-secret/files', '/*', undefined],
    ['/openai/v1/models/a-secret', '/openai/*', undefined],
    ['/proxy/healthz', '/proxy/*', undefined],
  ];
  for (const [path, named, base] of asked) {
    it(`in ${path} gets a refusal that names ${named}${base === undefined ? '' : ' and the base URL to set'}`, () => {
      const { code, message } = refusalOf('POST', path);
      assert.equal(code, 'unknown_path');
      assert.equal(message, [`there is no such endpoint here: ${named}`, base].filter(Boolean).join('. '));
    });
  }
});

describe('a wrong method', () => {
  const wrong: [method: string, path: string, allow: string[], format: string][] = [
    ['GET', '/v1/chat/completions', ['POST'], 'openai'],
    ['HEAD', '/v1/chat/completions', ['POST'], 'openai'],
    ['PUT', '/v1/completions', ['POST'], 'openai'],
    ['DELETE', '/v1/embeddings', ['POST'], 'openai'],
    ['GET', '/v1/messages', ['POST'], 'anthropic'],
    ['GET', '/v1/audio/transcriptions', ['POST'], 'openai'],
    ['GET', '/unstructured/x', ['POST'], 'openai'],
    ['POST', '/v1/models', ['GET', 'HEAD'], 'openai'],
    ['DELETE', '/v1/models/x', ['GET', 'HEAD'], 'openai'],
    ['OPTIONS', '/v1/chat/completions', ['POST'], 'openai'],
    ['OPTIONS', '/v1/models', ['GET', 'HEAD'], 'openai'],
    ['post', '/v1/chat/completions', ['POST'], 'openai'],
    ['GET', '/chat/completions', ['POST'], 'openai'],
    ['GET', '/messages/', ['POST'], 'anthropic'],
    ['POST', '/models', ['GET', 'HEAD'], 'openai'],
    ['POST', '/v1/models/', ['GET', 'HEAD'], 'openai'],
  ];
  for (const [method, path, allow, format] of wrong) {
    it(`${method} ${path} is refused, and the refusal names ${allow.join(', ')}`, () => {
      const refusal = refusalOf(method, path);
      assert.deepEqual([refusal.code, refusal.allow, refusal.format], ['method_not_allowed', allow, format]);
    });
  }
});

describe('a path that does not exist', () => {
  const unknown: [path: string, format: string, words: RegExp][] = [
    ['/foo', 'plain', /no such endpoint/],
    ...['/metrics', '/status/'].map((path): [string, string, RegExp] => [
      ...([path, 'plain'] as const),
      /^\/\w+ is not on this port, but on the listener of (?:--metrics-address or )?--admin-address \(such as 127\.0\.0\.1:9090\)/,
    ]),
    [
      ...(['/verification', 'plain'] as const),
      /^\/verification is not on this port, but on the listener of --admin-address \(such as 127\.0\.0\.1:9090\), or here with --expose-verification$/,
    ],
    ['/v1/chat', 'openai', /no such endpoint/],
    ['/v1/chat/completions/x', 'openai', /no endpoint .*; the nearest is /],
    ['/v1/chat/completions%2F', 'openai', /no such endpoint/],
    [
      '/v1/chat/completion',
      'openai',
      /^there is no endpoint \/v1\/chat\/completion here; the nearest is \/v1\/chat\/completions$/,
    ],
    ['/chat/complettions', 'plain', / here; the nearest is \/v1\/chat\/completions$/],
    ['/v1/chats/completions', 'openai', / here; the nearest is \/v1\/chat\/completions$/],
    ['/v1/mesages/', 'openai', / here; the nearest is \/v1\/messages$/],
    ['/chat', 'plain', /no such endpoint/],
    ['/v11/models', 'plain', /no such endpoint/],
    ['/v1/unstructured/x', 'openai', /no such endpoint/],
    ['/v1/healthz', 'openai', /no such endpoint/],
    ['/api', 'plain', /no such endpoint/],
    ['/v1/Chat/completions', 'openai', /no such endpoint/],
    ['/v1/chat%2Fcompletions', 'openai', /no such endpoint/],
    ['/v1/fine_tuning/jobs', 'openai', /no such endpoint here: [^;]*$/],
    ['/v1/messages/batches', 'anthropic', /no such endpoint/],
    ['/v2/chat/completions', 'plain', /no such endpoint/],
    ['/unstructured', 'plain', /no such endpoint/],
    ['/constructor', 'plain', /no such endpoint/],
  ];
  for (const [path, format, words] of unknown) {
    it(`${path} is 404 in the ${format} form`, () => {
      const refusal = refusalOf('POST', path);
      assert.deepEqual([refusal.code, refusal.format], ['unknown_path', format]);
      assert.match(refusal.message, words);
    });
  }

  for (const piece of ['/a', '/', '/v1', '/v1/a', '/chat/completions', 'a', '%2f']) {
    it(`gets its refusal after little work, however often it repeats ${piece}`, () => {
      const path = `/x${piece.repeat(65_536 / piece.length)}x`;
      const before = process.cpuUsage();
      assert.equal(refusalOf('GET', path).code, 'unknown_path');
      const { user, system } = process.cpuUsage(before);
      assert.ok(user + system < 100_000, `${user + system} µs`);
    });
  }

  const responses = ['/v1/responses', '//v1/responses', '/v1/v1/responses', '/v1/responses/resp_1'];
  for (const path of [...responses, '/responses', '/v1/responses/', '/responses/resp_1/input_items']) {
    it(`${path} gets not_supported, with the settings that avoid it`, () => {
      for (const method of ['POST', 'GET', 'DELETE']) {
        const { code, format, message, error } = refusalOf(method, path);
        assert.deepEqual([code, format], ['not_supported', 'responses']);
        assert.equal(message, 'the service has no Responses API');
        assert.equal(
          error.remedy,
          'Start the proxy with --responses-api, which translates it, or set the client to /v1/chat/completions (docs/responses-api.md): ' +
            "AI SDK openai.chat('MODEL'), openai-agents set_default_openai_api('chat_completions'), Pydantic AI " +
            'OpenAIChatModel, LiteLLM custom_openai/MODEL; Codex CLI needs --responses-api.',
        );
      }
    });
  }
});

describe('a request target', () => {
  const refused = [
    '/unstructured/../v1/chat/completions',
    '/unstructured/..',
    '/unstructured/.',
    '/unstructured/./x',
    '/unstructured/%2e%2e/v1/chat/completions',
    '/unstructured/%2E%2e/v1/chat/completions',
    '/unstructured/.%2e/v1/chat/completions',
    '/unstructured/%2e/x',
    '/unstructured/..%2fv1/chat/completions',
    '/unstructured/x%2F..%2Fv1',
    '/unstructured\\..\\v1',
    '/unstructured/x\\y',
    '/unstructured/x%5cy',
    '/unstructured/x%5C..%5Cy',
    '/v1/models/..',
    '/v1/models/../',
    '/models/..',
    '/models/%2e%2e/',
    '/models\\x',
    '/chat/./completions',
    '/v1/models/%2e%2e',
    '/./v1/models',
    'http://localhost:8080/v1/models',
    'https://other.example/v1/chat/completions',
    'http://[',
    'localhost:8080',
    '*',
    '',
    'v1/models',
    '/v1/models#x',
    '/v1/models?x#y',
    '/v1/models ',
    '/v1/models?a b',
    '/v1/models\t',
    '/v1/models?\x00',
    '/v1/modéls',
    '/v1/models?q=é',
    '/unstructured/%',
    '/unstructured/%zz',
    '/unstructured/%00',
    '/unstructured/%0d%0a',
    '/unstructured/%7f',
  ];
  for (const target of refused) {
    it(`is refused if another parser may read it differently: ${JSON.stringify(target)}`, () => {
      const { code, message } = refusalOf('POST', target);
      assert.equal(code, 'invalid_path');
      assert.ok(target === '' || target === '*' || !message.includes(target), 'the target is not quoted');
    });
  }

  it('that is forwarded has the same path for the WHATWG parser', () => {
    const piece = fc.constantFrom(
      '/',
      '//',
      'v1',
      'unstructured',
      'models',
      '.',
      '..',
      '%2e',
      '%2F',
      '\\',
      '%5c',
      'x',
      '?',
      '@',
      ':',
      ';',
    );
    const start = fc.constantFrom<[string, string]>(
      ['POST', '/'],
      ['POST', '/unstructured/'],
      ['GET', '/v1/models/'],
      ['GET', '/v1/models'],
      ['GET', '/models/'],
      ['POST', '/messages'],
    );
    let forwarded = 0;
    fc.assert(
      fc.property(start, fc.array(piece, { maxLength: 8 }), ([method, path], pieces) => {
        const match = matchEndpoint(method, path + pieces.join(''));
        if (match.kind !== 'endpoint') return;
        forwarded += 1;
        const url = new URL(match.target, 'https://remote.example');
        assert.equal(url.href, `https://remote.example${match.target}`);
      }),
      { seed: 20261121, numRuns: 5_000 },
    );
    assert.ok(forwarded > 500, `only ${forwarded} targets were forwarded`);
  });
});
