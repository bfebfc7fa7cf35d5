import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { encryptStream } from '../../lib/pipeline/encrypt-stream.ts';
import type { FormParts } from '../../lib/pipeline/form.ts';
import { injectSalt, type SaltedBody } from '../../lib/pipeline/inject-salt.ts';
import { byteByByte, cutAnywhere, cutAt } from '../support/remote/chunkings.ts';
import {
  countingIvs,
  EXCHANGE,
  fixedCipher,
  hex,
  inferenceVectors,
  listedIvs,
} from '../support/remote/exchange-fixture.ts';
import { type FormPart, formBody, literalParts } from '../support/remote/forms.ts';
import { literalOpen } from '../support/remote/literal-envelope.ts';
import { PLAIN_MEMBERS } from '../support/remote/plain-members.ts';
import { bytesOf, formBodyOf } from '../support/remote/sealing.ts';

interface FormVectors {
  readonly multipart: readonly {
    readonly name: string;
    readonly inputFields: readonly { readonly name: string; readonly valueHex: string }[];
    readonly inputFiles: readonly {
      readonly name: string;
      readonly filename: string;
      readonly contentType: string;
      readonly contentHex: string;
    }[];
    readonly plainFields: readonly (readonly [string])[];
    readonly ivsHex: readonly string[];
    readonly boundary: string;
    readonly expectedBodyHex: string;
  }[];
}

const { multipart } = inferenceVectors<FormVectors>('multipart-and-raw');
const plain = PLAIN_MEMBERS.T;
const BOUNDARY = 'x-client-boundary';
const contentType = `multipart/form-data; boundary=${BOUNDARY}`;
const field = (name: string, value: string): FormPart => ({ name, body: Buffer.from(value) });
const file = (name: string, body: string): FormPart => ({ name, filename: 'a.wav', body: Buffer.from(body) });
const FORM = [field('model', 'm'), file('file', 'RIFF')];

async function prepareForm(chunks: Iterable<Uint8Array>, type = contentType): Promise<SaltedBody> {
  const form = formBodyOf(type);
  for (const chunk of chunks) form.feed(chunk);
  return injectSalt(await form.finish(), undefined);
}

/** The form as it goes to the service. */
const sealed = (body: SaltedBody, cipher = fixedCipher()): Promise<Buffer> =>
  bytesOf(encryptStream(body, cipher, () => 'BOUNDARY').stream);

/** The same, of parts that came from nowhere. */
const sealedParts = (parts: FormParts): Promise<Buffer> =>
  sealed({ content: { kind: 'form', parts, plain } } as unknown as SaltedBody);

const prepareParts = (parts: readonly FormPart[]) => prepareForm([formBody(BOUNDARY, parts)]);

describe('a form of the test vectors', () => {
  for (const { name, inputFields, inputFiles, plainFields, ivsHex, expectedBodyHex } of multipart) {
    const parts: FormPart[] = [
      ...inputFields.map((each) => ({ name: each.name, body: hex(each.valueHex) })),
      ...inputFiles.map((each) => ({ ...each, body: hex(each.contentHex) })),
    ];
    const once = parts.filter((part, i) => parts.findIndex((other) => other.name === part.name) === i);

    it(`is sealed to the bytes that the vector expects${once.length === parts.length ? '' : ', if only the first of each repeated field is kept'}: ${name}`, async () => {
      assert.deepEqual([...plain].sort(), plainFields.map(([each]) => each).sort());
      const bytes = formBody(BOUNDARY, once);
      const chunkings = [[bytes], byteByByte(bytes)];
      for (let i = 1; i < bytes.length; i++) chunkings.push(cutAt(bytes, [i]));
      for (const chunks of chunkings) {
        const cipher = fixedCipher({ ivs: listedIvs(ivsHex) });
        const encrypted = encryptStream(await prepareForm(chunks), cipher, () => 'BOUNDARY');
        const body = await bytesOf(encrypted.stream);
        assert.equal(body.toString('latin1'), hex(expectedBodyHex).toString('latin1'));
        assert.equal(encrypted.contentLength, body.length);
        assert.equal(encrypted.contentType, 'multipart/form-data; boundary=BOUNDARY');
      }
    });

    if (once.length < parts.length) {
      it(`is refused with its repeated fields, of which the service would keep the first: ${name}`, async () => {
        await assert.rejects(prepareParts(parts), { code: 'repeated_form_field', status: 400 });
      });
    }
  }
});

describe('form sealing', () => {
  it('reads the model, and whether the response streams', async () => {
    assert.equal(
      (await prepareParts([field('model', 'wh\u00efsper'), file('file', '')])).model,
      'wh\u00efsper',
    );
    for (const [value, streaming] of [
      ['true', true],
      ['True', true],
      ['tRUE', true],
      ['false', false],
      ['FALSE', false],
    ] as const) {
      assert.equal((await prepareParts([...FORM, field('stream', value)])).streaming, streaming, value);
    }
    assert.equal((await prepareParts(FORM)).streaming, false);
    assert.equal((await prepareParts(FORM)).shardKey, undefined);
  });

  it('treats a field and a file of the same name as two parts', async () => {
    const prepared = await prepareParts([...FORM, field('file', 'x')]);
    assert.equal(literalParts('BOUNDARY', await sealed(prepared)).length, 3);
  });

  it('seals the same form again for a retry', async () => {
    const prepared = await prepareParts(FORM);
    const first = await sealed(prepared, fixedCipher({ ivs: countingIvs() }));
    assert.deepEqual(await sealed(prepared, fixedCipher({ ivs: countingIvs() })), first);
  });

  it('draws a new boundary each time', async () => {
    const prepared = await prepareForm([formBody(BOUNDARY, FORM)]);
    const types = [0, 1].map(() => encryptStream(prepared, fixedCipher()).contentType!);
    assert.match(types[0]!, /^multipart\/form-data; boundary=[0-9a-f]{60}$/);
    assert.notEqual(types[0], types[1]);
  });

  it('keeps the bytes of a field that is not UTF-8', async () => {
    const prepared = await prepareParts([
      ...FORM,
      { name: 'prompt', contentType: 'text/plain; charset=latin1', body: hex('ff00e9') },
    ]);
    const parts = literalParts('BOUNDARY', await sealed(prepared));
    assert.equal(literalOpen(EXCHANGE, 0, parts[1]!.body.toString()).toString('hex'), 'ff00e9');
  });

  it('reads response_format unchanged from a field, but not from a file, and does not read n', async () => {
    for (const format of ['json', 'verbose_json', '']) {
      assert.equal((await prepareParts([...FORM, field('response_format', format)])).format, format);
    }
    assert.equal((await prepareParts(FORM)).format, undefined);
    assert.equal((await prepareParts([...FORM, file('response_format', 'json')])).format, undefined);
    assert.equal((await prepareParts([...FORM, field('n', '2')])).choices, 1);
  });

  it('reads a response_format of 4 KiB, and refuses one with a byte more', async () => {
    const format = (bytes: number) => `${'x'.repeat(bytes - 4)}json`;
    const prepared = (bytes: number) => prepareParts([...FORM, field('response_format', format(bytes))]);
    assert.equal((await prepared(4096)).format, format(4096));
    await assert.rejects(prepared(4097), { code: 'unsupported_response_format' });
  });

  it('numbers fields, then files, by the UTF-8 bytes of their names', async () => {
    const names = ['b', 'é', '\uffff', '😀'];
    const parts = new Map([...names].reverse().map((name) => [name, Buffer.from(name)]));
    const form = await sealedParts({ values: parts, files: parts });
    assert.deepEqual(
      literalParts('BOUNDARY', form).map(({ body }, sequence) =>
        literalOpen(EXCHANGE, sequence, body.toString()).toString(),
      ),
      [...names, ...names],
    );
  });

  it('percent-encodes line breaks in names, so that none starts a header', async () => {
    const bytes = Buffer.from('x');
    for (const [name, written] of [
      ['a\rX-Evil: 1', 'a%0DX-Evil: 1'],
      ['a\nX-Evil: 1', 'a%0AX-Evil: 1'],
      ['a\r\nX-Evil: 1\r\n\r\nb', 'a%0D%0AX-Evil: 1%0D%0A%0D%0Ab'],
    ] as const) {
      const parts = { values: new Map([[name, bytes]]), files: new Map([[name, bytes]]) };
      const form = await sealedParts(parts);
      assert.deepEqual(
        literalParts('BOUNDARY', form).map(({ head }) => head),
        [
          `Content-Disposition: form-data; name="${written}"`,
          `Content-Disposition: form-data; name="${written}"; filename="${written}"\r\n` +
            'Content-Type: application/octet-stream',
        ],
      );
    }
  });

  it('starts no header at a line break in the name of a received part', async () => {
    for (const name of ['name="a\rX-Evil: 1"', 'name="a\nX-Evil: 1"', "name*=utf-8''a%0D%0AX-Evil:%201"]) {
      const bytes = formBody(BOUNDARY, [...FORM, field('evil', 'x')]).toString('latin1');
      const preparing = prepareForm([Buffer.from(bytes.replace('name="evil"', name), 'latin1')]);
      if (/[\r\n]/.test(name)) {
        await assert.rejects(preparing, { code: 'invalid_multipart' }); // no header has a line break
        continue;
      }
      const prepared = await preparing;
      const heads = literalParts('BOUNDARY', await sealed(prepared)).map(({ head }) => head);
      assert.ok(!heads.some((head) => /[\r\n]x-evil/i.test(head)), name);
    }
  });

  it('quotes names in the headers it writes', async () => {
    const prepared = await prepareParts([...FORM, field('a\\"b', 'x')]);
    assert.match(literalParts('BOUNDARY', await sealed(prepared))[0]!.head, /name="a\\"b"$/);
  });

  it('takes multipart/mixed, and quoted boundaries', async () => {
    for (const type of [
      `multipart/mixed; boundary=${BOUNDARY}`,
      `Multipart/Form-Data ; charset=x; boundary="${BOUNDARY}"`,
    ]) {
      assert.equal((await prepareForm([formBody(BOUNDARY, FORM)], type)).model, 'm');
    }
  });

  it('takes blanks after a boundary, as RFC 2046 5.1.1 allows, and loses no part for them', async () => {
    const padded = formBody(BOUNDARY, FORM)
      .toString('latin1')
      .replaceAll(`${BOUNDARY}\r\n`, `${BOUNDARY} \t\r\n`);
    const prepared = await prepareForm(byteByByte(Buffer.from(padded, 'latin1')));
    assert.equal(prepared.model, 'm');
    assert.equal(literalParts('BOUNDARY', await sealed(prepared)).length, FORM.length);
  });
});

describe('a form is refused with a 400', () => {
  const rows: Record<string, readonly [string, readonly FormPart[]][]> = {
    missing_model: [
      ['no model', [file('file', 'x')]],
      ['an empty model', [field('model', ''), file('file', 'x')]],
      ['a model of blanks', [field('model', ' \t'), file('file', 'x')]],
      ['a model that is a file', [file('model', 'm')]],
    ],
    invalid_model: [
      ['a model with a line feed', [field('model', 'a\nb')]],
      ['a model with a blank before it', [field('model', ' m')]],
      ['a model with a blank behind it', [field('model', 'm ')]],
      ['a model far too long', [field('model', 'x'.repeat(5000))]],
    ],
    unsupported_response_format: ['text', 'srt', 'vtt', `${'x'.repeat(5000)}json`].map(
      (format) => [format.slice(0, 9), [...FORM, field('response_format', format)]] as const,
    ),
    invalid_plain_member: ['stream', 'stream_include_usage', 'stream_continuous_usage_stats'].flatMap(
      (name) =>
        ['1', '0', 'yes', 'on', 't', '', ' true', 'true ', 'true\n', 'null', `true${' '.repeat(5000)}`].map(
          (value) => [`${name} ${JSON.stringify(value.slice(0, 9))}`, [...FORM, field(name, value)]] as const,
        ),
    ),
    repeated_form_field: [
      ['a value twice', [...FORM, field('language', 'en'), field('language', 'de')]],
      ['a file twice', [...FORM, file('file', 'y')]],
    ],
    invalid_multipart: [['an empty name', [...FORM, field('', 'x')]]],
  };
  for (const [code, each] of Object.entries(rows)) {
    for (const [name, parts] of each) {
      it(`as ${code} for ${name}`, () => assert.rejects(prepareParts(parts), { code, status: 400 }));
    }
  }

  for (const name of ['stream', 'stream_include_usage', 'stream_continuous_usage_stats']) {
    for (const value of ['true', 'false', 'True', 'FALSE']) {
      it(`but not for ${name} "${value}", which is sent unchanged`, async () => {
        const prepared = await prepareParts([...FORM, field(name, value)]);
        const parts = literalParts('BOUNDARY', await sealed(prepared));
        const { body } = parts.find(({ head }) => head.endsWith(`name="${name}"`))!;
        assert.equal(body.toString(), value);
      });
    }
  }

  it('for a content type that is no form, has no boundary, or has one of more than 70 characters', () => {
    for (const type of [
      undefined,
      '',
      'application/json',
      'multipart/form-data',
      'multipart/form-data; charset=x',
      'multipart/form-dataX; boundary=x',
      'application/x-www-form-urlencoded',
      `multipart/form-data; boundary=${'x'.repeat(71)}`,
    ]) {
      assert.throws(() => formBodyOf(type), { code: 'invalid_multipart' });
    }
    formBodyOf(`multipart/form-data; boundary=${'x'.repeat(70)}`);
  });

  it('if it is cut off anywhere', async () => {
    const bytes = formBody(BOUNDARY, FORM);
    for (let end = 0; end < bytes.length - 4; end++) {
      await assert.rejects(prepareForm([bytes.subarray(0, end)]), { code: 'invalid_multipart' }, `at ${end}`);
    }
  });

  it('for a part with a transfer encoding, which would be decoded on the way', async () => {
    const bytes = Buffer.from(
      formBody(BOUNDARY, FORM)
        .toString('latin1')
        .replace('\r\n\r\nm', '\r\nContent-Transfer-Encoding: base64\r\n\r\nm'),
      'latin1',
    );
    await assert.rejects(prepareForm([bytes]), { code: 'invalid_multipart' });
  });

  it('for a part that is not declared as a form field, since the service would drop it', async () => {
    for (const head of ['X-A: b', 'Content-Disposition: attachment; name="a"', 'Content-Type: text/plain']) {
      const form = `--${BOUNDARY}\r\n${head}\r\n\r\nwords\r\n${formBody(BOUNDARY, FORM).toString('latin1')}`;
      const refusal = { code: 'invalid_multipart', message: /is no field/ };
      await assert.rejects(prepareForm([Buffer.from(form, 'latin1')]), refusal, head);
    }
  });

  it('for text before the first part, which could be a part that lost its boundary', async () => {
    const bytes = formBody(BOUNDARY, FORM);
    for (const text of [
      '\0',
      ' ',
      'x',
      'Words of a mail program.\r\n',
      `x--${BOUNDARY}\r\n`,
      'x'.repeat(100),
    ]) {
      for (const chunks of [
        [Buffer.from(text), bytes],
        byteByByte(Buffer.concat([Buffer.from(text), bytes])),
      ]) {
        await assert.rejects(prepareForm(chunks), { code: 'invalid_multipart' }, text);
      }
    }
    assert.equal((await prepareForm([Buffer.from('\r\n'), bytes])).model, 'm');
  });

  it('for more than 1,000 parts', async () => {
    const many = (count: number) => Array.from({ length: count }, (_, i) => field(`k${i}`, 'x'));
    assert.equal((await prepareParts([field('model', 'm'), ...many(999)])).model, 'm');
    const refusal = { code: 'invalid_multipart', message: /too many parts/ };
    await assert.rejects(prepareParts([field('model', 'm'), ...many(1000)]), refusal);
  });
});

describe('form sealing, any form', () => {
  it('keeps every part, in any chunks', async () => {
    const name = fc.stringMatching(/^[a-zA-Z_[\].]{1,6}$/);
    const part = fc.record({ name, isFile: fc.boolean(), body: fc.uint8Array({ maxLength: 200 }) });
    await fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(part, { selector: ({ name: each }) => each, maxLength: 6 }),
        fc.array(fc.nat(), { maxLength: 6 }),
        async (rows, cuts) => {
          const parts: FormPart[] = [
            field('model', 'm'),
            ...rows
              .filter(({ name: each }) => !['model', 'response_format', 'stream'].includes(each))
              .map(({ name: each, isFile, body }) => ({
                name: each,
                body: Buffer.from(body),
                ...(isFile ? { filename: 'f' } : {}),
              })),
          ];
          const bytes = formBody(BOUNDARY, parts);
          const prepared = await prepareForm(cutAnywhere(bytes, cuts));
          const found = literalParts('BOUNDARY', await sealed(prepared));
          const sorted = (wanted: boolean) =>
            parts
              .filter(({ filename }) => (filename !== undefined) === wanted)
              .sort((a, b) => Buffer.compare(Buffer.from(a.name), Buffer.from(b.name)));
          const expected = [...sorted(false), ...sorted(true)];
          assert.equal(found.length, expected.length);
          let sequence = 0;
          expected.forEach(({ name: each, filename, body }, i) => {
            const { head, body: wire } = found[i]!;
            assert.ok(head.includes(`name="${each}"`));
            const isPlain = filename === undefined && plain.has(each as 'model');
            const opened = isPlain ? wire : literalOpen(EXCHANGE, sequence++, wire.toString());
            assert.deepEqual(opened, body);
          });
        },
      ),
      { seed: 20261121, numRuns: 100 },
    );
  });
});
