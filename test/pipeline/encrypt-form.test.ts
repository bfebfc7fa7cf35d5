/** Forms: how they are taken apart, what is refused, and what leaves (docs/protocol/inference.md 6.3). */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { encryptBody } from '../../lib/pipeline/encrypt-body.ts';
import { formContent, type FormPart as Part } from '../../lib/pipeline/form.ts';
import type { SaltedBody } from '../../lib/pipeline/inject-salt.ts';
import { PLAIN_MEMBERS } from '../support/remote/endpoints.ts';
import { EXCHANGE, fixedCipher, hex, listedIvs } from '../support/remote/exchange-fixture.ts';
import { type FormPart, formBody, literalParts } from '../support/remote/forms.ts';
import { literalOpen } from '../support/remote/literal-envelope.ts';
import { formBodyOf, prepare } from '../support/remote/sealing.ts';
import forms from '../vectors/inference/multipart-and-raw.json' with { type: 'json' };

const { multipart } = forms;
const plain = PLAIN_MEMBERS.T;
const BOUNDARY = 'x-client-boundary';
const contentType = `multipart/form-data; boundary=${BOUNDARY}`;
const field = (name: string, value: string): FormPart => ({ name, body: Buffer.from(value) });
const file = (name: string, body: string): FormPart => ({ name, filename: 'a.wav', body: Buffer.from(body) });
const FORM = [field('model', 'm'), file('file', 'RIFF')];

/** The text of a form, in which each byte is one character. */
const formText = (parts: readonly FormPart[]): string => formBody(BOUNDARY, parts).toString('latin1');
const prepareForm = (text: string, type = contentType): SaltedBody =>
  prepare(formBodyOf(type), Buffer.from(text, 'latin1'));
const prepareParts = (parts: readonly FormPart[]): SaltedBody => prepareForm(formText(parts));

/** The form as it goes to the service, with BOUNDARY in place of the boundary that was drawn. */
function sealed(body: SaltedBody, cipher = fixedCipher()): Buffer {
  const { slices, contentLength, contentType = '' } = encryptBody(body, cipher);
  const bytes = Buffer.concat([...slices]);
  assert.equal(contentLength, bytes.length);
  const [, drawn = ''] = /^multipart\/form-data; boundary=([0-9a-f]{60})$/.exec(contentType) ?? [];
  return Buffer.from(bytes.toString('latin1').replaceAll(drawn, 'BOUNDARY'), 'latin1');
}
const sealedParts = (body: SaltedBody) => literalParts('BOUNDARY', sealed(body));

/** The same, of parts that came from nowhere. */
const ofParts = (parts: readonly Part[]) => sealedParts(formContent(parts, plain) as SaltedBody);

describe('a form of the test vectors', () => {
  for (const { name, inputFields, inputFiles, plainFields, ivsHex, expectedBodyHex } of multipart) {
    const parts: FormPart[] = [
      ...inputFields.map((each) => ({ name: each.name, body: hex(each.valueHex) })),
      ...inputFiles.map((each) => ({ ...each, body: hex(each.contentHex) })),
    ];
    const once = parts.filter((part, i) => parts.findIndex((other) => other.name === part.name) === i);

    it(`is sealed to the bytes that the vector expects${once.length === parts.length ? '' : ', if only the first of each repeated field is kept'}: ${name}`, () => {
      assert.deepEqual([...plain].sort(), plainFields.map(([each]) => each).sort());
      const body = sealed(prepareParts(once), fixedCipher({ ivs: listedIvs(ivsHex) }));
      assert.equal(body.toString('latin1'), hex(expectedBodyHex).toString('latin1'));
    });

    if (once.length < parts.length) {
      it(`is refused with its repeated fields, of which the service would keep the first: ${name}`, () => {
        assert.throws(() => prepareParts(parts), { code: 'repeated_form_field', status: 400 });
      });
    }
  }
});

describe('form sealing', () => {
  it('reads the model, and whether the response streams', () => {
    assert.equal(prepareParts([field('model', 'wh\u00efsper'), file('file', '')]).model, 'wh\u00efsper');
    for (const value of ['true', 'tRUE', 'false', 'FALSE']) {
      const { streaming } = prepareParts([...FORM, field('stream', value)]);
      assert.equal(streaming, value.toLowerCase() === 'true', value);
    }
    assert.equal(prepareParts(FORM).streaming, false);
  });

  it('treats a field and a file of the same name as two parts', () => {
    assert.equal(sealedParts(prepareParts([...FORM, field('file', 'x')])).length, 3);
  });

  it('draws a boundary for each form', () => {
    const [one, other] = [0, 1].map(() => prepareParts(FORM).contentType);
    assert.notEqual(one, other);
  });

  it('keeps the bytes of a field that is not UTF-8', () => {
    const prompt = { name: 'prompt', contentType: 'text/plain; charset=latin1', body: hex('ff00e9') };
    const parts = sealedParts(prepareParts([...FORM, prompt]));
    assert.equal(literalOpen(EXCHANGE, 0, parts[1]!.body.toString()).toString('hex'), 'ff00e9');
  });

  it('reads response_format unchanged from a field, but not from a file, and does not read n', () => {
    for (const format of ['json', 'verbose_json', '', `${'x'.repeat(4092)}json`]) {
      assert.equal(prepareParts([...FORM, field('response_format', format)]).format, format);
    }
    assert.equal(prepareParts([...FORM, file('response_format', 'json')]).format, undefined);
    assert.equal(prepareParts([...FORM, field('n', '2')]).choices, 1);
  });

  it('numbers fields, then files, by the UTF-8 bytes of their names', () => {
    const names = ['b', 'é', '\uffff', '😀'];
    const parts = [true, false].flatMap((isFile) =>
      [...names].reverse().map((name) => ({ name, isFile, bytes: Buffer.from(name) })),
    );
    assert.deepEqual(
      ofParts(parts).map(({ body }, sequence) => literalOpen(EXCHANGE, sequence, body.toString()).toString()),
      [...names, ...names],
    );
  });

  it('quotes names in the headers it writes, and percent-encodes line breaks in them', () => {
    const bytes = Buffer.from('x');
    for (const [name, written] of [
      ['a\rX-Evil: 1', 'a%0DX-Evil: 1'],
      ['a\r\nX-Evil: 1\r\n\r\nb', 'a%0D%0AX-Evil: 1%0D%0A%0D%0Ab'],
      ['a\\"b', 'a\\\\\\"b'],
    ] as const) {
      const parts = [true, false].map((isFile) => ({ name, isFile, bytes }));
      assert.deepEqual(
        ofParts(parts).map(({ head }) => head),
        [
          `Content-Disposition: form-data; name="${written}"`,
          `Content-Disposition: form-data; name="${written}"; filename="${written}"\r\n` +
            'Content-Type: application/octet-stream',
        ],
      );
    }
  });

  it('takes multipart/mixed, quoted boundaries, and blanks after a boundary', () => {
    for (const type of [
      `multipart/mixed; boundary=${BOUNDARY}`,
      `Multipart/Form-Data ; charset=x; boundary="${BOUNDARY}"`,
    ]) {
      assert.equal(prepareForm(formText(FORM), type).model, 'm');
    }
    const padded = formText(FORM).replaceAll(`${BOUNDARY}\r\n`, `${BOUNDARY} \t\r\n`);
    assert.equal(sealedParts(prepareForm(padded)).length, FORM.length);
  });
});

describe('a form is refused with a 400', () => {
  const rows: Record<string, readonly [string, readonly FormPart[]][]> = {
    missing_model: [
      ['no model', [file('file', 'x')]],
      ['a model of blanks', [field('model', ' \t'), file('file', 'x')]],
      ['a model that is a file', [file('model', 'm')]],
    ],
    invalid_model: [
      ['a model with a blank before it', [field('model', ' m')]],
      ['a model with a blank behind it', [field('model', 'm ')]],
      ['a model far too long', [field('model', 'x'.repeat(5000))]],
    ],
    unsupported_response_format: ['text', 'srt', `${'x'.repeat(4093)}json`].map(
      (format) => [format.slice(0, 9), [...FORM, field('response_format', format)]] as const,
    ),
    invalid_plain_member: ['stream', 'stream_include_usage', 'stream_continuous_usage_stats'].flatMap(
      (name) =>
        ['1', 'yes', '', ' true', 'true\n', 'null', `true${' '.repeat(5000)}`].map(
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
      it(`as ${code} for ${name}`, () => assert.throws(() => prepareParts(parts), { code, status: 400 }));
    }
  }

  it('for a content type that is no form, has no boundary, or has one of more than 70 characters', () => {
    for (const type of [
      undefined,
      'application/json',
      'multipart/form-data; charset=x',
      'multipart/form-dataX; boundary=x',
      `multipart/form-data; boundary=${'x'.repeat(71)}`,
    ]) {
      assert.throws(() => formBodyOf(type), { code: 'invalid_multipart' });
    }
    formBodyOf(`multipart/form-data; boundary=${'x'.repeat(70)}`);
  });

  it('if it is cut off anywhere', () => {
    const text = formText(FORM);
    for (let end = 0; end < text.length - 4; end++) {
      assert.throws(() => prepareForm(text.slice(0, end)), { code: 'invalid_multipart' }, `at ${end}`);
    }
  });

  it('for a part with a transfer encoding, which would be decoded on the way', () => {
    const encoded = formText(FORM).replace('\r\n\r\nm', '\r\nContent-Transfer-Encoding: base64\r\n\r\nm');
    assert.throws(() => prepareForm(encoded), { code: 'invalid_multipart', message: /transfer encoding/ });
  });

  it('for a part that is not declared as a form field, since the service would drop it', () => {
    for (const head of ['X-A: b', 'Content-Disposition: attachment; name="a"', 'Content-Type: text/plain']) {
      const form = `--${BOUNDARY}\r\n${head}\r\n\r\nwords\r\n${formText(FORM)}`;
      assert.throws(() => prepareForm(form), { code: 'invalid_multipart', message: /is no field/ }, head);
    }
  });

  it('for a part with a header that parsers could read differently', () => {
    for (const more of [' x', '\r\nno header', '\r\nX-A: \0']) {
      const head = `Content-Disposition: form-data; name="a"${more}`;
      const form = `--${BOUNDARY}\r\n${head}\r\n\r\nwords\r\n${formText(FORM)}`;
      assert.throws(() => prepareForm(form), { code: 'invalid_multipart', message: /malformed/ }, head);
    }
  });

  it('for text before the first part, which could be a part that lost its boundary', () => {
    for (const text of ['\0', ' ', 'Words of a mail program.\r\n', `x--${BOUNDARY}\r\n`]) {
      assert.throws(() => prepareForm(text + formText(FORM)), { code: 'invalid_multipart' }, text);
    }
    assert.equal(prepareForm(`\r\n${formText(FORM)}`).model, 'm');
  });

  it('for a head, or blanks behind a boundary, of more than 16 KiB', () => {
    const rest = 'Content-Disposition: form-data; name="model"\r\n';
    const form = (blanks: number, head: string) =>
      prepareForm(`--${BOUNDARY}${' '.repeat(blanks)}\r\n${rest}${head}\r\nm\r\n--${BOUNDARY}--`);
    const header = (bytes: number) => `X: ${'x'.repeat(bytes - 5)}\r\n`;
    const left = 16_384 - rest.length;
    assert.equal(form(16_384, '').model, 'm');
    assert.equal(form(0, header(left)).model, 'm');
    assert.throws(() => form(16_385, ''), { code: 'invalid_multipart' });
    assert.throws(() => form(0, header(left + 1)), { code: 'invalid_multipart' });
  });

  it('for more than 100 parts', () => {
    const many = (count: number) => Array.from({ length: count }, (_, i) => field(`k${i}`, 'x'));
    assert.equal(prepareParts([field('model', 'm'), ...many(99)]).model, 'm');
    const refusal = { code: 'invalid_multipart', message: /too many parts/ };
    assert.throws(() => prepareParts([field('model', 'm'), ...many(100)]), refusal);
  });
});
