import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { PrivatemodeError } from '../../lib/errors.ts';
import { createLogger, statusLine } from '../../lib/observe/log.ts';
import { recordingLogger } from '../support/doors/logger.ts';

const ESCAPE = '\x1b';

function logger(format: 'text' | 'json' = 'text', { level = 30, isTTY = false } = {}) {
  const lines: string[] = [];
  const output = { write: (line: string) => lines.push(line), isTTY };
  return { log: createLogger({ format, level, output }), lines };
}

describe('text logs', () => {
  it('quote what could be mistaken for another field or another line', () => {
    const { log, lines } = logger();
    log.warn({ reason: 'a=b "c"\nlevel=ERROR', empty: '', plain: 'a-b/c:d' }, 'x\ny');
    const [, time, rest] = /^time=(\S+) (.*)$/s.exec(lines[0] ?? '') ?? [];
    assert.equal(new Date(time ?? '').toISOString(), time);
    assert.equal(rest, 'level=WARN msg="x\\ny" reason="a=b \\"c\\"\\nlevel=ERROR" empty="" plain=a-b/c:d\n');
  });

  it('show no control characters that a remote could send to a terminal', () => {
    const { log, lines } = logger('text', { isTTY: true });
    log.info({ reason: `${ESCAPE}[2Jgone` }, `${ESCAPE}]0;title`);
    assert.deepEqual(
      lines[0]?.match(/\x1b\[[\d;]*[^\d;]|\x1b[^[]/g)?.filter((code) => !code.endsWith('m')) ?? [],
      [],
    );
  });
});

describe('text from others in a log', () => {
  /** C1 and DEL, bidi controls, separators of lines, what nobody sees, half a pair. */
  const steering = [
    ...Array.from({ length: 33 }, (_, i) => 0x7f + i),
    ...[0x61c, 0x200b, 0x200e, 0x200f, 0x202a, 0x202b, 0x202c, 0x202d, 0x202e],
    ...[0x2028, 0x2029, 0x2060, 0x2066, 0x2067, 0x2068, 0x2069, 0xfeff, 0xd800, 0xe000, 0xe0041],
  ];
  it('has what a terminal obeys or hides escaped in both formats, and JSON parses to the original text', () => {
    for (const code of steering) {
      const sign = String.fromCodePoint(code);
      const text = `a${sign}b`;
      for (const format of ['text', 'json'] as const) {
        const { log, lines } = logger(format);
        log.info({ reason: text, [`a${text}`]: 1 }, `b${text}c`);
        log.error({ err: new PrivatemodeError('internal', text) }, 'x');
        assert.equal(lines.length, 2);
        assert.ok(!lines.some((line) => line.includes(sign)), `U+${code.toString(16)} in ${format}`);
        if (format === 'json') assert.equal(JSON.parse(lines[0] as string).reason, text);
      }
    }
  });

  it('has letters and signs of other languages unescaped', () => {
    const { log, lines } = logger();
    log.info({ name: 'Müller', other: '株式会社', both: 'é ü' }, '✓');
    assert.match(lines[0] ?? '', /msg=✓ .*name=Müller other=株式会社 both="é ü"/);
  });

  it('is escaped in the status line of a terminal', () => {
    const written: string[] = [];
    const output = { write: (text: string) => written.push(text), isTTY: true, columns: 80 };
    statusLine(output)?.show('asking \u202eevil\u009b2J\r\n');
    assert.ok(!/[\u202e\u009b\r\n]/.test(written.join('')), JSON.stringify(written));
  });
});

it('json logs are one object per line with the keys of the reference implementation', () => {
  const { log, lines: raw } = logger('json');
  log.warn({ requestId: 'proxy_1', status: 503 }, 'msg\n2');
  assert.equal(raw.length, 1);
  assert.match(raw[0] ?? '', /^\{[^\n]*\}\n$/);
  const { time, ...line } = JSON.parse(raw[0] as string);
  assert.equal(new Date(time).toISOString(), time);
  assert.deepEqual(line, { level: 'WARN', requestId: 'proxy_1', status: 503, msg: 'msg\n2' });
});

it('the log shows the lines of its level and of those above', () => {
  const names = ['debug', 'info', 'warn', 'error'] as const;
  for (const [i, level] of [20, 30, 40, 50].entries()) {
    for (const format of ['text', 'json'] as const) {
      const { log, lines } = logger(format, { level });
      for (const name of names) log[name]('x');
      assert.deepEqual(
        lines.map((line) => /"?level"?[=:]"?(\w+)/.exec(line)?.[1]),
        names.slice(i).map((name) => name.toUpperCase()),
      );
      assert.equal(log.isLevelEnabled('debug'), level === 20);
    }
  }
});

describe('a log line', () => {
  /** What a line shows of the value of a field. */
  function shown(name: string, value: unknown): unknown {
    const { log, lines } = recordingLogger();
    log.info({ [name]: value }, 'x');
    assert.ok(!JSON.stringify(lines).includes('CANARY'), name);
    return lines[0]?.[name];
  }

  it('has [redacted] in fields with the names of secrets and of content', () => {
    const names =
      'authorization Authorization x-api-key api-key apiKey key token secret password cookie set-cookie salt ' +
      'cache_salt promptCacheSalt configuredKey offeredKey prompt messages content body';
    for (const name of names.split(' ')) assert.equal(shown(name, 'CANARY'), '[redacted]', name);
  });

  it('has [omitted] in place of objects and functions, whatever their own JSON is', () => {
    for (const value of [
      { headers: { authorization: 'CANARY' } },
      ['CANARY'],
      Buffer.from('CANARY'),
      new Map([['CANARY', 'CANARY']]),
      { toJSON: () => 'CANARY' },
      () => 'CANARY',
      Symbol('CANARY'),
    ])
      assert.equal(shown('value', value), '[omitted]');
  });

  const foreign: [name: string, error: Error][] = [
    ['the error of a parser that quotes its input', parseFailure('{"prompt": "CANARY')],
    ['a TypeError of the program', new TypeError('CANARY')],
    [
      "Node's own check of an argument",
      Object.assign(new TypeError('Received CANARY'), { code: 'ERR_INVALID_ARG_VALUE' }),
    ],
    [
      'the cause of an error of the proxy',
      new PrivatemodeError('internal', 'an internal error occurred', { cause: new Error('CANARY') }),
    ],
  ];
  for (const [name, err] of foreign) {
    it(`tells of ${name} without its message`, () => {
      const { log, lines } = recordingLogger();
      log.error({ err }, 'x');
      assert.ok(!JSON.stringify(lines).includes('CANARY'), JSON.stringify(lines));
      assert.ok(String(lines[0]?.['err']).length > 5, 'the error is still told');
    });
  }

  it('has fewer than 1,100 characters of a text of 1,000,000', () => {
    const { log, lines } = recordingLogger();
    log.info({ reason: 'x'.repeat(1_000_000) }, 'x');
    assert.ok(String(lines[0]?.['reason']).length < 1_100);
  });
});

describe('errors in a log', () => {
  it('show code and message of the error of the proxy, and of the system error that caused it', () => {
    const { log, lines } = recordingLogger();
    const cause = Object.assign(new Error('connect ECONNREFUSED 127.0.0.1:1'), { code: 'ECONNREFUSED' });
    log.error(
      { err: new PrivatemodeError('upstream_unreachable', 'the service cannot be reached', { cause }) },
      'x',
    );
    assert.equal(
      lines[0]?.['err'],
      'upstream_unreachable: the service cannot be reached <- ECONNREFUSED: connect ECONNREFUSED 127.0.0.1:1',
    );
  });
  it('are complete even if an error is its own cause', () => {
    const { log, lines } = recordingLogger();
    const err = new Error('x');
    err.cause = err;
    log.error({ err }, 'x');
    assert.equal(lines.length, 1);
  });
});

it('a log that nobody reads keeps at most 16 MiB waiting, and says how many lines it dropped once it is read again', async (t) => {
  const code = `
    import { createLogger } from ${JSON.stringify(join(import.meta.dirname, '../../lib/observe/log.ts'))};
    const log = createLogger({ format: 'json', level: 30 });
    for (let i = 0; i < 40_000; i++) log.info({ i, reason: 'x'.repeat(900) }, 'line');
    process.stderr.once('drain', () => log.info('after'));
    process.send(process.stderr.writableLength, () => process.disconnect());`;
  const child = spawn(process.execPath, ['--input-type=module-typescript', '--eval', code], {
    stdio: ['ignore', 'inherit', 'pipe', 'ipc'],
  });
  t.after(() => child.kill('SIGKILL'));
  const [waiting] = await once(child, 'message');
  assert.ok(waiting > 15 * 2 ** 20 && waiting < 17 * 2 ** 20, `${waiting} bytes wait`);
  let read = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    read += text;
  });
  await once(child, 'close');
  const lines = read
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  const [told, after] = lines.splice(-2);
  assert.deepEqual(
    lines.map(({ i }) => i),
    lines.map((_, i) => i),
  );
  const { level, msg, lines: dropped } = told as Record<string, unknown>;
  assert.deepEqual(
    [level, msg, dropped],
    ['ERROR', 'Lines of the log were dropped, because its reader did not read', 40_000 - lines.length],
  );
  assert.equal(after?.['msg'], 'after');
});

function parseFailure(text: string): Error {
  try {
    JSON.parse(text);
  } catch (thrown) {
    return thrown as Error;
  }
  return assert.fail('that was JSON');
}
