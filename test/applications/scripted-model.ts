/**
 * A model server whose answers a test decides, for real agents: the simulator asks it over HTTP as its
 * backend.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { anthropicResponse } from '../../simulator/inference/models/anthropic.ts';
import { openaiResponse } from '../../simulator/inference/models/openai.ts';
import { wordsOf } from '../../simulator/inference/models/turn.ts';
import type { JsonObject } from '../../simulator/inference/request.ts';

export interface AskedModel {
  readonly isMessages: boolean;
  readonly request: JsonObject;
  /** The text of the request, to search. */
  readonly text: string;
}

/**
 * A text, the call of a tool, or an error with the body of the model server. With status 200 the body is the
 * first event of the stream; a request that asks for none gets 400.
 */
export type ModelAnswer =
  | { readonly say: string }
  | { readonly call: string; readonly with: JsonObject }
  | { readonly status: number; readonly body: JsonObject };

export interface ScriptedModel {
  readonly url: string;
  readonly asked: AskedModel[];
  close(): void;
}

/** Serves `answer` on a port of its own; `models` is the body of GET /v1/models. */
export async function serveModel(
  answer: (asked: AskedModel, before: readonly AskedModel[]) => ModelAnswer,
  models: JsonObject = { object: 'list', data: [{ id: 'scripted', object: 'model' }] },
): Promise<ScriptedModel> {
  const asked: AskedModel[] = [];
  const server = createServer(async (req, res) => {
    if (req.method === 'GET') {
      res.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(models));
      return;
    }
    const text = Buffer.concat(await req.toArray()).toString();
    const request: JsonObject = JSON.parse(text);
    const now: AskedModel = { isMessages: req.url?.startsWith('/v1/messages') === true, request, text };
    const given = answer(now, asked);
    asked.push(now);
    if ('status' in given && given.status === 200 && request['stream'] === true) {
      const data = `data: ${JSON.stringify(given.body)}\n\n`;
      res.writeHead(200, { 'content-type': 'text/event-stream' });
      res.end(now.isMessages ? `event: error\n${data}` : `${data}data: [DONE]\n\n`);
      return;
    }
    if ('status' in given) {
      res
        .writeHead(given.status === 200 ? 400 : given.status, { 'content-type': 'application/json' })
        .end(JSON.stringify(given.body));
      return;
    }
    const turn =
      'say' in given
        ? ({ kind: 'text', tokens: wordsOf(given.say), intervalMs: 0 } as const)
        : ({ kind: 'tool', call: toolCall(given) } as const);
    const stream = request['stream'] === true;
    const { signal } = new AbortController();
    const response = now.isMessages
      ? await anthropicResponse(turn, request, { stream, signal })
      : await openaiResponse('chat', [turn], request, { stream, now: Date.now, signal });
    if (response.kind === 'unary') {
      res.writeHead(response.status, { 'content-type': 'application/json' }).end(response.body);
      return;
    }
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    for await (const { event, data } of response.events)
      res.write(`${event === undefined ? '' : `event: ${event}\n`}data: ${data}\n\n`);
    res.end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}

const toolCall = (given: { readonly call: string; readonly with: JsonObject }) => ({
  name: given.call,
  arguments: given.with,
  pieces: JSON.stringify(given.with).match(/.{1,64}/gs) ?? [],
});
