import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { allAccepted, decisive } from '../../../lib/attestation/check.ts';
import { PrivatemodeError } from '../../../lib/errors.ts';
import type { CertificateRequest } from '../../../simulator/pki/certificate.ts';
import { element, sequence } from '../../../simulator/pki/der.ts';
import { basicConstraints, type EncodedExtension, keyUsage } from '../../../simulator/pki/extensions.ts';
import { TDX_ROWS } from '../../support/evidence/stages.ts';
import { ISSUERS, intelName, ROOT_CRL_URL } from '../../support/evidence/tdx-authorities.ts';
import {
  FUTURE,
  failed,
  filled,
  itAccepts,
  itRefuses,
  judge,
  PAST,
  type Row,
  replaced,
  rootLike,
  STRANGE_ROOT,
  STRANGER,
  UNKNOWN_CRITICAL,
  vouchedBy,
} from '../../support/evidence/tdx-cases.ts';
import { type Changes, NOW, signedBody, tdxPlatform } from '../../support/evidence/tdx-platform.ts';

const answer = (member: 'tcbInfo', value: unknown) => ({ body: signedBody(member, value), issuerChain: '' });
const unreachable = async (): Promise<never> => {
  throw new PrivatemodeError('collateral_unavailable', 'the host did not answer');
};
/** The key of the trusted root under another name. */
const RENAMED_ROOT = { ...ISSUERS.root, name: ISSUERS.platformCa.name };
const DOCUMENTS: readonly Row[] = [
  ['TCB info out of reach', { answers: { intelTcbInfo: unreachable } }, ['tdx.tcb_info.format']],
  [
    'TCB info without an issuer chain',
    { answers: { intelTcbInfo: async () => answer('tcbInfo', { id: 'TDX' }) } },
    ['tdx.tcb_info.format'],
  ],
  ['TCB info without levels', { tcbInfo: (j) => ({ ...j, tcbLevels: [] }) }, ['tdx.tcb_info.format']],
  ['QE identity out of reach', { answers: { intelQeIdentity: unreachable } }, ['tdx.qe_identity.format']],
  [
    'QE identity without levels',
    { qeIdentity: (j) => ({ ...j, tcbLevels: [] }) },
    ['tdx.qe_identity.format'],
  ],
  ...(
    [
      ['tcbSigning', 'tdx.tcb_info'],
      ['qeSigning', 'tdx.qe_identity'],
    ] as const
  ).flatMap(([signing, id]) =>
    (
      [
        [`a ${signing} certificate of another name`, { subject: intelName('Intel SGX PCK Certificate') }],
        [`a ${signing} certificate that the root did not sign`, { issuer: STRANGE_ROOT }],
        [`a ${signing} certificate that names another issuer`, { issuer: RENAMED_ROOT }],
        [`an expired ${signing} certificate`, { notAfter: PAST }],
        [`a ${signing} certificate that is not valid yet`, { notBefore: FUTURE }],
        [`a ${signing} certificate for another key than signed`, { key: STRANGER }, 'signature'],
      ] as const
    ).map(
      ([name, changes, check = 'signer']): Row => [
        name,
        { [signing]: (r: CertificateRequest) => ({ ...r, ...changes }) },
        [`${id}.${check}`],
      ],
    ),
  ),
  ...(
    [
      ['a foreign root', { issuer: STRANGE_ROOT, key: STRANGER }],
      ['a root of another key that the trusted one signed', { key: STRANGER }],
      ['a root of the trusted key that a stranger signed', { issuer: STRANGE_ROOT }],
      ['an expired root', { notAfter: PAST }],
      [
        'a root with a critical extension that nobody understands',
        { extensions: [basicConstraints(true), UNKNOWN_CRITICAL] },
      ],
    ] as const
  ).map(
    ([name, changes]): Row => [
      `${name} beside an honest signer`,
      vouchedBy(rootLike(changes)),
      ['tdx.tcb_info.signer', 'tdx.qe_identity.signer'],
    ],
  ),
  ['TCB info for enclaves', { tcbInfo: (j) => ({ ...j, id: 'SGX' }) }, ['tdx.tcb_info.identity']],
  ['TCB info of version 2', { tcbInfo: (j) => ({ ...j, version: 2 }) }, ['tdx.tcb_info.identity']],
  ['QE identity for enclaves', { qeIdentity: (j) => ({ ...j, id: 'QE' }) }, ['tdx.qe_identity.identity']],
  ['QE identity of version 1', { qeIdentity: (j) => ({ ...j, version: 1 }) }, ['tdx.qe_identity.identity']],
  ...(['tcbInfo', 'qeIdentity'] as const).flatMap((name) =>
    (
      [
        ['issued in the future', { issueDate: '2026-12-01T00:01:01Z' }, 'dates'],
        ['whose next update is due', { nextUpdate: '2026-11-30T23:59:59Z' }, 'dates'],
        ['below the evaluation number of the manifest', { tcbEvaluationDataNumber: 20 }, 'evaluation_number'],
      ] as const
    ).map(
      ([what, changes, check]): Row => [
        `${name} ${what}`,
        { [name]: (j: object) => ({ ...j, ...changes }) },
        [`${name === 'tcbInfo' ? 'tdx.tcb_info' : 'tdx.qe_identity'}.${check}`],
      ],
    ),
  ),
  [
    'TCB info of another platform model',
    { tcbInfo: (j) => ({ ...j, fmspc: 'A0B1C2D3E4F6' }) },
    ['tdx.tcb_info.platform'],
  ],
  ['TCB info of another PCE', { tcbInfo: (j) => ({ ...j, pceId: '0001' }) }, ['tdx.tcb_info.platform']],
  [
    'TCB info with components of another type',
    { tcbInfo: (j) => ({ ...j, tcbType: 1 }) },
    ['tdx.tcb_info.platform'],
  ],
];

/** Enough for a list of more than 256 KiB. */
const MANY_SERIALS = Array.from({ length: 7500 }, (_, i) => ({
  serial: (1n << 150n) + BigInt(i),
  date: PAST,
}));

const REVOCATION: readonly Row[] = [
  ['a root CRL out of reach', { answers: { intelRootCrl: unreachable } }, ['tdx.root_crl.format']],
  [
    'a root that does not say where its CRL is',
    { root: (r) => ({ ...r, extensions: r.extensions.filter(({ oid }) => oid !== '2.5.29.31') }) },
    ['tdx.root_crl.format'],
  ],
  [
    'a root CRL that is none',
    { answers: { intelRootCrl: async () => ({ crl: Uint8Array.of(0x30, 0) }) } },
    ['tdx.root_crl.format'],
  ],
  [
    'a root CRL that is too large',
    { rootCrl: (r) => ({ ...r, revoked: MANY_SERIALS }) },
    ['tdx.root_crl.format'],
  ],
  ['a PCK CRL out of reach', { answers: { intelPckCrl: unreachable } }, ['tdx.pck_crl.format']],
  ...(['rootCrl', 'pckCrl'] as const).flatMap((name): Row[] => {
    const id = name === 'rootCrl' ? 'tdx.root_crl' : 'tdx.pck_crl';
    const signer = name === 'rootCrl' ? ISSUERS.root : ISSUERS.platformCa;
    return [
      [
        `${name} signed by a stranger`,
        { [name]: (r: object) => ({ ...r, issuer: { ...signer, key: STRANGER } }) },
        [`${id}.signature`],
      ],
      [
        `${name} that names another issuer`,
        { [name]: (r: object) => ({ ...r, issuer: { ...signer, name: intelName('Intel') } }) },
        [`${id}.signature`],
      ],
      [
        `${name} issued in the future`,
        { [name]: (r: object) => ({ ...r, thisUpdate: FUTURE }) },
        [`${id}.dates`],
      ],
      [
        `${name} whose next update is due`,
        { [name]: (r: object) => ({ ...r, nextUpdate: PAST }) },
        [`${id}.dates`],
      ],
    ];
  }),
  [
    'a platform CA that may not sign CRLs',
    { platformCa: (r) => ({ ...r, extensions: replaced(r.extensions, keyUsage('keyCertSign')) }) },
    ['tdx.pck_crl.signature'],
  ],
  [
    'a revoked platform CA',
    { rootCrl: (r) => ({ ...r, revoked: [{ serial: 0x12n, date: PAST }] }) },
    ['tdx.revocation.platform_ca'],
  ],
  [
    'a revoked signer of TCB info',
    { rootCrl: (r) => ({ ...r, revoked: [{ serial: 0x13n, date: PAST }] }) },
    ['tdx.revocation.tcb_signing'],
  ],
  [
    'a revoked signer of the QE identity',
    { rootCrl: (r) => ({ ...r, revoked: [{ serial: 0x14n, date: PAST }] }) },
    ['tdx.revocation.tcb_signing'],
  ],
  [
    'a revoked PCK certificate',
    { pckCrl: (r) => ({ ...r, revoked: [{ serial: 0x4242n, date: PAST }] }) },
    ['tdx.revocation.pck'],
  ],
];

const isoSeconds = `${NOW.toISOString().slice(0, 19)}Z`;

describe('verification of TCB info, QE identity and revocation lists', () => {
  itRefuses('collateral', [...DOCUMENTS, ...REVOCATION]);
  itAccepts([
    ['a lower-case FMSPC in TCB info', { tcbInfo: (j) => ({ ...j, fmspc: 'a0b1c2d3e4f5' }) }],
    [
      'dates that are reached to the second',
      { tcbInfo: (j) => ({ ...j, issueDate: isoSeconds, nextUpdate: isoSeconds }) },
    ],
    [
      'any evaluation number if the manifest asks for none',
      {
        entry: (e) => ({ ...e, minTcbEvaluationDataNumber: 0 }),
        tcbInfo: (j) => ({ ...j, tcbEvaluationDataNumber: 1 }),
        qeIdentity: (j) => ({ ...j, tcbEvaluationDataNumber: 1 }),
      },
    ],
  ]);
});

/** Evidence that fails before anything of Intel is needed: by its form, its chain, its signatures. */
const FORGED: readonly Changes[] = [
  { header: (h) => ({ ...h, version: 5 }) },
  { quote: (quote) => ({ ...quote, signedDataSize: 0 }) },
  { pck: (r) => ({ ...r, issuer: { ...r.issuer, key: STRANGER } }) },
  { pck: (r) => ({ ...r, notAfter: PAST }) },
  { quote: (q) => ({ ...q, tdQuoteBody: { ...q.tdQuoteBody, mrOwner: filled(48, 1) } }) },
  { qeReport: (r) => ({ ...r, reportData: filled(64, 1) }) },
];

describe('collateral of TDX', () => {
  type Question = readonly [name: string, query?: object];
  const asked = (changes: Changes): { readonly questions: Question[]; readonly changes: Changes } => {
    const questions: Question[] = [];
    const { collateral } = tdxPlatform(changes).context;
    const answers: Changes['answers'] = {
      intelTcbInfo: (query) => {
        questions.push(['tcb', query]);
        return collateral.intelTcbInfo(query);
      },
      intelQeIdentity: (query) => {
        questions.push(['qe', query]);
        return collateral.intelQeIdentity(query);
      },
      intelPckCrl: () => {
        questions.push(['pck crl']);
        return collateral.intelPckCrl();
      },
      intelRootCrl: (query) => {
        questions.push(['root crl', query]);
        return collateral.intelRootCrl(query);
      },
    };
    return { questions, changes: { ...changes, answers } };
  };

  it('is requested with the FMSPC of the certificate and the evaluation number of the manifest', async () => {
    const { questions, changes } = asked({});
    assert.ok(allAccepted(TDX_ROWS, await judge(changes)));
    assert.deepEqual(questions, [
      ['tcb', { fmspc: 'a0b1c2d3e4f5', evaluationDataNumber: 21 }],
      ['qe', { evaluationDataNumber: 21 }],
      ['pck crl'],
      ['root crl', { url: ROOT_CRL_URL }],
    ]);
  });

  it('is requested without an evaluation number if the manifest has none', async () => {
    const { questions, changes } = asked({ entry: (e) => ({ ...e, minTcbEvaluationDataNumber: 0 }) });
    await judge(changes);
    assert.deepEqual(questions.slice(0, 2), [
      ['tcb', { fmspc: 'a0b1c2d3e4f5' }],
      ['qe', {}],
    ]);
  });

  it('is requested with the evaluation number of the manifest even if that number is 1', async () => {
    const { questions, changes } = asked({ entry: (e) => ({ ...e, minTcbEvaluationDataNumber: 1 }) });
    await judge(changes);
    assert.deepEqual(questions.slice(0, 2), [
      ['tcb', { fmspc: 'a0b1c2d3e4f5', evaluationDataNumber: 1 }],
      ['qe', { evaluationDataNumber: 1 }],
    ]);
  });

  it('is not requested if the form, the chain or a signature of the evidence is bad', async () => {
    for (const change of FORGED) {
      const { questions, changes } = asked(change);
      await judge(changes);
      assert.deepEqual(questions, []);
    }
  });

  it('includes no root CRL from an address that an untrusted root names', async () => {
    const { questions, changes } = asked({ qeSigning: (r) => ({ ...r, issuer: STRANGE_ROOT }) });
    await judge(changes);
    assert.ok(!questions.some((question) => question[0] === 'root crl'));
  });

  describe('the root CRL', () => {
    const uri = element(0x86, Buffer.from('https://example.test/'));
    const point = (...names: readonly Uint8Array[]): Uint8Array =>
      sequence(element(0xa0, element(0xa0, ...names)));
    const points = (...list: readonly Uint8Array[]): EncodedExtension => ({
      oid: '2.5.29.31',
      critical: false,
      value: sequence(...list),
    });
    /** The address that is asked, with these extensions in the root beside the signers, and what fails. */
    const askedWith = async (...extensions: readonly EncodedExtension[]) => {
      const root = rootLike({ extensions: [basicConstraints(true, 1), ...extensions] });
      const { questions, changes } = asked(vouchedBy(root));
      const failing = failed(await judge(changes));
      return { address: questions.find(([name]) => name === 'root crl')?.[1], failing };
    };

    it('comes from the one URI of the one distribution point in the root', async () => {
      const { address, failing } = await askedWith(points(point(uri)));
      assert.deepEqual([address, failing], [{ url: 'https://example.test/' }, []]);
    });

    const refused: readonly (readonly [string, readonly EncodedExtension[]])[] = [
      ['no extension with the address', []],
      ['no distribution point', [points()]],
      ['two distribution points', [points(point(uri), point(uri))]],
      ['two URIs', [points(point(uri, uri))]],
      ['no URI', [points(point())]],
      ['a name of another kind', [points(point(element(0x82, Buffer.from('example.test'))))]],
      [
        'a distribution point with reasons',
        [points(sequence(element(0xa0, element(0xa0, uri)), element(0x81, Uint8Array.of(7, 0x80))))],
      ],
    ];
    for (const [name, extensions] of refused) {
      it(`is not requested if the root has ${name}`, async () => {
        const { address, failing } = await askedWith(...extensions);
        assert.deepEqual([address, failing], [undefined, ['tdx.root_crl.format']]);
      });
    }
  });

  it('fails with collateral_unavailable if it cannot be fetched, and other checks are still made', async () => {
    for (const name of ['intelTcbInfo', 'intelQeIdentity', 'intelPckCrl', 'intelRootCrl'] as const) {
      const checks = await judge({ answers: { [name]: unreachable } });
      const [failure] = checks.filter(({ outcome }) => outcome === 'fail');
      assert.equal(failure?.code, 'collateral_unavailable');
      assert.equal(failure?.found, 'the host did not answer');
      assert.ok(checks.some(({ id, outcome }) => id === 'tdx.policy.mrtd' && outcome === 'pass'));
    }
  });

  it('fails with collateral_unavailable if it cannot be read, and other checks are still made', async () => {
    const crl = Uint8Array.of(0x30, 0);
    const unreadable: readonly (readonly [check: string, answers: NonNullable<Changes['answers']>])[] = [
      ['tdx.tcb_info.format', { intelTcbInfo: async () => ({ body: '{', issuerChain: '' }) }],
      [
        'tdx.tcb_info.format', // by its issuer chain
        { intelTcbInfo: async () => answer('tcbInfo', { id: 'TDX' }) },
      ],
      ['tdx.qe_identity.format', { intelQeIdentity: async () => ({ body: '{', issuerChain: '' }) }],
      ['tdx.pck_crl.format', { intelPckCrl: async () => ({ crl, issuerChain: '' }) }],
      ['tdx.root_crl.format', { intelRootCrl: async () => ({ crl }) }],
    ];
    for (const [check, answers] of unreadable) {
      const checks = await judge({ answers });
      const [failure] = checks.filter(({ outcome }) => outcome === 'fail');
      assert.deepEqual([failure?.id, failure?.code], [check, 'collateral_unavailable']);
      assert.ok(checks.some(({ id, outcome }) => id === 'tdx.policy.mrtd' && outcome === 'pass'));
    }
  });

  it('that is missing does not decide where what has come shows something wrong', async () => {
    const tcbLevels = [{ tcb: { isvsvn: 1 }, tcbDate: '2026-03-13T00:00:00Z', tcbStatus: 'OutOfDate' }];
    const checks = await judge({
      answers: { intelTcbInfo: unreachable },
      qeIdentity: (j) => ({ ...j, tcbLevels }),
    });
    assert.deepEqual(failed(checks), ['tdx.tcb_info.format', 'tdx.qe.status']);
    assert.equal(decisive(checks)?.id, 'tdx.qe.status');
  });

  it('makes verification throw, rather than give a verdict, if its source has a defect', async () => {
    const broken = async (): Promise<never> => {
      throw new TypeError('defect');
    };
    await assert.rejects(judge({ answers: { intelPckCrl: broken } }), TypeError);
    const empty = async () => ({}) as never;
    await assert.rejects(judge({ answers: { intelPckCrl: empty } }), TypeError);
  });

  it('is accepted at both ends of its period, and not outside', async () => {
    const at = (issueDate: string, nextUpdate: string): Changes => {
      const dated = (json: object) => ({ ...json, issueDate, nextUpdate });
      return { tcbInfo: dated, qeIdentity: dated };
    };
    const [now, before, after] = ['2026-12-01T00:00:00Z', '2026-11-30T23:59:59Z', '2026-12-01T00:01:01Z'];
    assert.deepEqual(failed(await judge(at(now, after))), []);
    assert.deepEqual(failed(await judge(at('2026-12-01T00:01:00Z', after))), []);
    assert.deepEqual(failed(await judge(at(before, now))), []);
    for (const outside of [at(after, after), at(before, before)]) {
      assert.deepEqual(failed(await judge(outside)), ['tdx.tcb_info.dates', 'tdx.qe_identity.dates']);
    }
  });
});
