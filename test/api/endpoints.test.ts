import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { ENDPOINTS, type EndpointId } from '../../lib/api/endpoints.ts';
import { matchEndpoint, type Refusal } from '../../lib/api/match-endpoint.ts';
import type { ErrorCode } from '../../lib/errors.ts';
import { grammarOf } from '../../lib/pipeline/response-grammar.ts';
import { ENDPOINTS as LITERAL } from '../support/remote/endpoints.ts';

function refusalOf(method: string, target: string): Refusal & { readonly code: ErrorCode } {
  const match = matchEndpoint(method, target);
  if (match.kind !== 'refusal') assert.fail(JSON.stringify(match));
  return { ...match, code: match.error.code };
}

describe('forwarded endpoints', () => {
  const forwarded: (readonly [method: string, target: string, id: EndpointId, sent?: string])[] = [
    ['POST', '/v1/v1/v1/completions', 'completions', '/v1/completions'],
    ...Object.entries(LITERAL).map(([id, { path }]) => ['POST', path, id as EndpointId] as const),
    ['GET', '/v1/models', 'models'],
    ['HEAD', '/v1/models', 'models'],
    ['GET', '/v1/models/openai%2Fgpt-oss-120b', 'model'],
    ['GET', '/v1/models/openai/gpt-oss-120b', 'model'],
    ['POST', '/v1/messages?beta=true', 'messages'],
    // Base URLs with and without /v1, with and without a slash at the end.
    ['POST', '/v1//chat/completions/', 'chat', '/v1/chat/completions'],
    ['POST', '/v1/v1/messages/?beta=true', 'messages', '/v1/messages?beta=true'],
    ['GET', '//v1//v1/models/?', 'models', '/v1/models'],
    ['POST', '/chat/completions', 'chat', '/v1/chat/completions'],
    ['POST', '/messages?beta=true', 'messages', '/v1/messages?beta=true'],
    ['GET', '/models/gpt-oss-120b/', 'model', '/v1/models/gpt-oss-120b'],
    // What lies below belongs to another program: its slashes stay.
    ['POST', '///unstructured//general/', 'unstructured', '/unstructured/general/'],
    ['POST', '/unstructured/v1/messages/', 'unstructured'],
  ];
  it('are found by their paths, in each way in which base URLs are pasted', () => {
    for (const [method, target, id, sent = target] of forwarded) {
      const match = matchEndpoint(method, target);
      if (match.kind !== 'endpoint') assert.fail(JSON.stringify(match));
      assert.deepEqual([match.endpoint.id, match.target], [id, sent]);
    }
  });

  const queries: [target: string, sent: string][] = [
    ['/v1/messages?beta=true&api_key=k', '/v1/messages?beta=true'],
    ['/v1/messages?beta=%20a&x=1&beta=../', '/v1/messages?beta=%20a&beta=../'],
    ['/v1/messages?Beta=1&beta%20=1&%62eta=1&betamax=1&&secret', '/v1/messages'],
    ['/v1/messages?beta=1;key=k', '/v1/messages'],
    ['/v1/chat/completions?beta=true', '/v1/chat/completions'],
  ];
  it('get the parameters that they list, each as it came, and no other', () => {
    const pages = '/v1/models?limit=2&after=m%2F1&after_id=a&before_id=b&order=desc';
    for (const [target, sent] of [...queries, [`${pages}&key=k`, pages] as const]) {
      const match = matchEndpoint(target.startsWith('/v1/models') ? 'GET' : 'POST', target);
      assert.equal(match.kind === 'endpoint' && match.target, sent);
    }
  });

  const plain = { codec: 'none', salted: false, plain: { request: new Set(), response: new Set() } };
  const { chat: responses } = LITERAL;
  it('are protected as docs/protocol/inference.md says', () => {
    const literals = { ...LITERAL, responses, models: plain, model: plain };
    const rows = ENDPOINTS.map((row) => {
      const { id, codec, salted, requestPlain: request } = row;
      const response = new Set(codec === 'none' ? [] : Object.keys(grammarOf(row).plain));
      return [id, { codec, salted, plain: { request, response } }];
    });
    const expected = Object.entries(literals).map(([id, { codec, salted, plain }]) => [
      id,
      { codec, salted, plain },
    ]);
    assert.deepEqual(Object.fromEntries(rows), Object.fromEntries(expected));
  });
});

it('paths that the proxy answers itself are those of the table', () => {
  for (const [method, path, id, format] of [
    ['GET', '//', 'root', 'plain'],
    ['HEAD', '/api/hello/', 'healthz', 'plain'],
    ['GET', '/health', 'healthz', 'plain'],
    ['GET', '/healthz/', 'healthz', 'plain'],
    ['HEAD', '/readyz', 'readyz', 'plain'],
    ['GET', '//v1//', 'api', 'openai'],
    ['POST', '/messages/count_tokens/?beta=true', 'count_tokens', 'anthropic'],
  ] as const)
    assert.deepEqual(matchEndpoint(method, path), { kind: 'local', id, format });
});

it('a wrong method is refused, and the refusal names the right ones', () => {
  for (const [method, path, allow, format] of [
    ['OPTIONS', '/v1/embeddings', ['POST'], 'openai'],
    ['post', '/v1/chat/completions', ['POST'], 'openai'],
    ['GET', '/messages/', ['POST'], 'anthropic'],
    ['GET', '/v1/messages/count_tokens', ['POST'], 'anthropic'],
    ['DELETE', '/v1/models/x', ['GET', 'HEAD'], 'openai'],
  ] as const) {
    const refusal = refusalOf(method, path);
    assert.deepEqual([refusal.code, refusal.allow, refusal.format], ['method_not_allowed', allow, format]);
  }
});

describe('a path that does not exist', () => {
  const unknown = {
    '/foo /metrics /status /verification /chat /v11/models /v2/chat/completions /api /unstructured /openai/v1/models':
      'plain',
    '/constructor': 'plain',
    '/v1/chat /v1/chat/completions/x /v1/chat%2Fcompletions /v1/Chat/completions /v1/healthz': 'openai',
    '/v1/unstructured/x': 'openai',
    '/v1/messages/batches': 'anthropic',
    '/v1/responses/resp_1': 'responses',
  };
  it('is 404 in the form of its API, which lists the endpoints and does not quote the path', () => {
    for (const [paths, format] of Object.entries(unknown)) {
      for (const path of paths.split(' ')) {
        const refusal = refusalOf('POST', path);
        assert.deepEqual([refusal.code, refusal.format], ['unknown_path', format], path);
        assert.equal(refusal.error.message, 'there is no such endpoint here');
        assert.match(
          refusal.error.remedy,
          /^Use one of these: POST \/v1\/chat\/completions, .* GET \/v1\/models,/,
        );
      }
    }
  });

  it('is that of the Responses API unless it is offered, and the refusal says what to do instead', () => {
    for (const path of ['/v1/responses', '//v1/responses', '/responses/']) {
      const { code, format, error } = refusalOf('POST', path);
      assert.deepEqual([code, format], ['not_supported', 'responses']);
      assert.match(error.remedy, /^Start the proxy with --responses-api/);
      const offered = matchEndpoint('POST', path, true);
      assert.equal(offered.kind === 'endpoint' && offered.target, '/v1/chat/completions');
      const other = matchEndpoint('GET', path, true); // no response is stored
      assert.equal(other.kind === 'refusal' && other.error.code, 'unknown_path');
    }
  });
});

describe('a request target', () => {
  it('is refused, and not quoted, if another parser may read it differently', () => {
    for (const target of [
      ...['/unstructured/../v1/chat/completions', '/unstructured/..', '/unstructured/.', '/unstructured/./x'],
      ...['/unstructured/%2e%2e/v1/chat/completions', '/unstructured/.%2E/v1', '/unstructured/x%2F..%2Fv1'],
      ...[
        '/v1/models/..',
        '/models/../',
        '/./v1/models',
        '/unstructured\\..\\v1',
        '/unstructured/x%5C..%5Cy',
      ],
      ...['http://localhost:8080/v1/models', 'http://[', 'localhost:8080', 'javascript:alert(1)', '*', ''],
      ...['v1/models', '/v1/models#x', '/v1/models?x#y', '/v1/models ', '/v1/models?a b', '/v1/models?\x00'],
      ...['/v1/modéls', '/unstructured/%', '/unstructured/%zz', '/unstructured/%0d%0a', '/unstructured/%7f'],
    ]) {
      const { code, error } = refusalOf('POST', target);
      assert.equal(code, 'invalid_path', target);
      assert.ok(target.length < 2 || !error.message.includes(target), 'the target is quoted');
    }
  });

  it('that is forwarded has the same path for the WHATWG parser', () => {
    const piece = fc.constantFrom(
      ...['/', '//', 'v1', 'unstructured', 'models', '.', '..', '%2e', '%2F', '\\', '%5c', 'x'],
      ...['?', '@', ':', ';'],
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
