/**
 * Records exchanges through the gateway as both sides see them on raw sockets, as text that can be compared
 * and read. It reaches the product by way of gateway.ts (the support file beside it) and no other.
 */
import { createHash } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { type Script, startScriptedUpstream } from '../remote/scripted-upstream.ts';
import { startGateway, type TestGatewayOptions } from './gateway.ts';
import { type RawAnswer, type RawClient, rawClient, readAnswer } from './raw-client.ts';

export interface PlannedExchange {
  readonly name: string;
  readonly gateway?: Omit<TestGatewayOptions, 'upstream'>;
  /**
   * What the upstream does with each request that reaches it, in order; the last one stays. Default: it stays
   * silent.
   */
  readonly upstream?: readonly Script[];
  /** Its bytes, or several pieces of them that arrive one after the other. */
  readonly request: Buffer | readonly Buffer[];
}

/** Characters of a body that are written out; of more, and of what is no text, the record has the hash. */
const MOST_TEXT = 6_000;
/** Asked on a connection that was left open, to see that it still serves. */
const PROBE = Buffer.from('GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n');
/** The date that upstreams of the recordings give; the gateway's own is replaced. */
export const UPSTREAM_DATE = 'Thu, 01 Jan 2026 00:00:00 GMT';

/** Runs the exchange on a gateway and an upstream of its own. Whoever calls it waits only so long. */
export async function record(planned: PlannedExchange): Promise<string> {
  const upstream = await startScriptedUpstream();
  upstream.on(...(planned.upstream ?? [() => {}]));
  const gateway = await startGateway({ upstream, ...planned.gateway });
  const client = rawClient(gateway.port);
  try {
    const answer = await ask(client, planned.request);
    const end = answer.open ? await probe(client, answer.text) : await client.ended;
    if (upstream.violations.length > 0) throw new Error(upstream.violations.join('; '));
    const text = [
      ...upstreamText(upstream.received(), upstream.requests),
      ...messageText('answer 1 to the application', '<', answer.text),
      `end of the connection: ${end}`,
    ].join('\n');
    return text.replaceAll(`localhost:${upstream.port}`, 'localhost:UPSTREAM');
  } finally {
    client.socket.destroy();
    await gateway.close();
    await upstream.close();
  }
}

/** Sends a request and waits for its answer; `open`: the connection stays open after it. */
async function ask(client: RawClient, request: PlannedExchange['request']) {
  const pieces = Buffer.isBuffer(request) ? [request] : request;
  for (const piece of pieces) {
    client.send(piece);
    if (pieces.length > 1) for (let turn = 0; turn < 4; turn++) await nextTurn();
  }
  let ended = false;
  void client.ended.then(() => {
    ended = true;
  });
  for (;;) {
    const over = ended; // before the bytes are looked at: none come after it
    const text = client.received();
    const answer = readAnswer(text);
    if (answer?.complete === true) {
      if (answer.rest !== '') throw new Error(`more than an answer: ${answer.rest.slice(0, 200)}`);
      return { text, open: answer.headers['connection'] !== 'close' };
    }
    if (over) return { text, open: false };
    await nextTurn();
  }
}

/** Whether a connection that was left open still serves. */
async function probe(client: RawClient, answer: string): Promise<string> {
  client.send(PROBE);
  const end = await client.ended;
  const rest = client.received().slice(answer.length);
  const served = end === 'end' && rest.startsWith('HTTP/1.1 200 OK\r\n') && rest.endsWith('\r\n\r\nok\n');
  return served ? 'none, it serves the next request' : `the next request got ${end} ${JSON.stringify(rest)}`;
}

/** Every request that reached the upstream, one after the other as they lie in its bytes. */
function upstreamText(
  received: Buffer,
  requests: readonly { readonly connection: number; readonly body: Buffer }[],
): string[] {
  if (requests.length === 0) return ['nothing went upstream'];
  let at = 0;
  const lines = requests.flatMap(({ connection, body }, i) => {
    const end = received.indexOf('\r\n\r\n', at) + 4 + body.length;
    const text = received.subarray(at, end).toString('latin1');
    at = end;
    return messageText(`request ${i + 1} upstream, connection ${connection + 1}`, '>', text);
  });
  return at === received.length ? lines : [...lines, `and ${received.length - at} more bytes`];
}

/** A message in latin1: its head line by line, and its body as text or as a hash. */
function messageText(title: string, mark: string, message: string): string[] {
  const end = message.indexOf('\r\n\r\n');
  const head = message.slice(0, Math.max(end, 0)).split('\r\n').map(normalised);
  const rest = message.slice(end + 4);
  return [
    `--- ${title}`,
    ...head.map((line) => `${mark} ${visible(line)}`),
    ...bodyText(Buffer.from(rest, 'latin1'), message).map((line) => `${mark}|${line}`),
  ];
}

/** What differs between machines and moments, and is no business of the gateway. */
const NORMAL: readonly [pattern: RegExp, text: string][] = [
  [/^(date: ).*$/i, '$1(now)'],
  [/^(privatemode-os: ).*$/i, '$1(this system)'],
  [/^(privatemode-architecture: ).*$/i, '$1(this machine)'],
];

const normalised = (line: string): string =>
  line.endsWith(UPSTREAM_DATE) ? line : NORMAL.reduce((text, [from, to]) => text.replace(from, to), line);

const visible = (text: string): string =>
  text.replace(/[^\n\x20-\x7e\u00a1-\uffff]/g, (char) => (char === '\r' ? '␍' : `␛${char.charCodeAt(0)};`));

/** Lines of the body of a message; the last one has no line end. None of an empty body. */
function bodyText(body: Buffer, message: string): string[] {
  if (body.length === 0) return [];
  const text = body.toString('utf8');
  if (body.length <= MOST_TEXT && Buffer.from(text).equals(body)) {
    return visible(text).split('\n');
  }
  // Where a long body is cut into chunks is the network's doing.
  const { body: joined, complete, rest } = readAnswer(message) as RawAnswer;
  const digest = createHash('sha256').update(joined, 'latin1').digest('hex');
  return [
    `${joined.length} bytes${complete ? '' : ', unfinished'}, ${rest.length} behind them, SHA-256 ${digest}`,
  ];
}
