import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { allAccepted, decisive } from '../../../lib/attestation/check.ts';
import { PrivatemodeError } from '../../../lib/errors.ts';
import type { CertificateRequest, CrlRequest } from '../../../simulator/pki/certificate.ts';
import { element, sequence } from '../../../simulator/pki/der.ts';
import { basicConstraints, type EncodedExtension, keyUsage } from '../../../simulator/pki/extensions.ts';
import { failed } from '../../support/evidence/cases.ts';
import { TDX_ROWS } from '../../support/evidence/stages.ts';
import { ISSUERS, intelName, ROOT_CRL_URL } from '../../support/evidence/tdx-authorities.ts';
import {
  type Cases,
  FUTURE,
  filled,
  itAccepts,
  itRefuses,
  judge,
  PAST,
  type Refusals,
  replaced,
  rootLike,
  STRANGE_ROOT,
  STRANGER,
  UNKNOWN_CRITICAL,
  vouchedBy,
} from '../../support/evidence/tdx-cases.ts';
import { type Changes, NOW, signedBody, tdxPlatform } from '../../support/evidence/tdx-platform.ts';

const unreachable = async (): Promise<never> => {
  throw new PrivatemodeError('collateral_unavailable', 'the host did not answer');
};
/** The key of the trusted root under another name. */
const RENAMED_ROOT = { ...ISSUERS.root, name: ISSUERS.platformCa.name };

/** What is refused of TCB info, and of QE identity in the same way. */
function documentRefusals(
  check: 'tdx.tcb_info' | 'tdx.qe_identity',
  name: 'tcbInfo' | 'qeIdentity',
  signer: 'tcbSigning' | 'qeSigning',
): Refusals {
  const stating = (members: object): Changes => ({ [name]: (j: object) => ({ ...j, ...members }) });
  const signedBy = (members: Partial<CertificateRequest>): Changes => ({
    [signer]: (r: CertificateRequest) => ({ ...r, ...members }),
  });
  return {
    [`${check}.format`]: { [`${name} without levels`]: stating({ tcbLevels: [] }) },
    [`${check}.signer`]: {
      [`a ${signer} certificate of another name`]: signedBy({
        subject: intelName('Intel SGX PCK Certificate'),
      }),
      [`a ${signer} certificate that the root did not sign`]: signedBy({ issuer: STRANGE_ROOT }),
      [`a ${signer} certificate that names another issuer`]: signedBy({ issuer: RENAMED_ROOT }),
      [`an expired ${signer} certificate`]: signedBy({ notAfter: PAST }),
      [`a ${signer} certificate that is not valid yet`]: signedBy({ notBefore: FUTURE }),
    },
    [`${check}.signature`]: {
      [`a ${signer} certificate for another key than signed`]: signedBy({ key: STRANGER }),
    },
    [`${check}.identity`]: {
      [`${name} for enclaves`]: stating({ id: name === 'tcbInfo' ? 'SGX' : 'QE' }),
      [`${name} of an older version`]: stating({ version: name === 'tcbInfo' ? 2 : 1 }),
    },
    [`${check}.dates`]: {
      [`${name} issued in the future`]: stating({ issueDate: '2026-12-01T00:01:01Z' }),
      [`${name} whose next update is due`]: stating({ nextUpdate: '2026-11-30T23:59:59Z' }),
    },
    [`${check}.evaluation_number`]: {
      [`${name} below the evaluation number of the manifest`]: stating({ tcbEvaluationDataNumber: 20 }),
    },
  };
}

const besideSigner = (name: string, changes: Partial<CertificateRequest>): Cases => ({
  [`${name} beside an honest signer`]: vouchedBy(rootLike(changes)),
});

/** Enough for a list of more than 256 KiB. */
const MANY_SERIALS = Array.from({ length: 7500 }, (_, i) => ({
  serial: (1n << 150n) + BigInt(i),
  date: PAST,
}));

/** What is refused of the root's list, and of the platform CA's in the same way. */
function listRefusals(check: string, name: 'rootCrl' | 'pckCrl', issuer: CrlRequest['issuer']): Refusals {
  const stating = (members: Partial<CrlRequest>): Changes => ({
    [name]: (r: CrlRequest) => ({ ...r, ...members }),
  });
  return {
    [`${check}.format`]: { [`a ${name} that is too large`]: stating({ revoked: MANY_SERIALS }) },
    [`${check}.signature`]: {
      [`${name} signed by a stranger`]: stating({ issuer: { ...issuer, key: STRANGER } }),
      [`${name} that names another issuer`]: stating({ issuer: { ...issuer, name: intelName('Intel') } }),
    },
    [`${check}.dates`]: {
      [`${name} issued in the future`]: stating({ thisUpdate: FUTURE }),
      [`${name} whose next update is due`]: stating({ nextUpdate: PAST }),
    },
  };
}
const ROOT_CRL = listRefusals('tdx.root_crl', 'rootCrl', ISSUERS.root);
const PCK_CRL = listRefusals('tdx.pck_crl', 'pckCrl', ISSUERS.platformCa);

const revoking = (name: 'rootCrl' | 'pckCrl', serial: bigint): Changes => ({
  [name]: (r: CrlRequest) => ({ ...r, revoked: [{ serial, date: PAST }] }),
});

const isoSeconds = `${NOW.toISOString().slice(0, 19)}Z`;

describe('verification of TCB info, QE identity and revocation lists', () => {
  itRefuses('collateral', {
    ...documentRefusals('tdx.tcb_info', 'tcbInfo', 'tcbSigning'),
    ...documentRefusals('tdx.qe_identity', 'qeIdentity', 'qeSigning'),
    'tdx.tcb_info.signer, tdx.qe_identity.signer': {
      ...besideSigner('a foreign root', { issuer: STRANGE_ROOT, key: STRANGER }),
      ...besideSigner('a root of another key that the trusted one signed', { key: STRANGER }),
      ...besideSigner('a root of the trusted key that a stranger signed', { issuer: STRANGE_ROOT }),
      'a signer under a root of another key that the trusted one signed': {
        ...vouchedBy(rootLike({ key: STRANGER })),
        tcbSigning: (r) => ({ ...r, issuer: STRANGE_ROOT }),
        qeSigning: (r) => ({ ...r, issuer: STRANGE_ROOT }),
      },
      ...besideSigner('an expired root', { notAfter: PAST }),
      ...besideSigner('a root with a critical extension that nobody understands', {
        extensions: [basicConstraints(true), UNKNOWN_CRITICAL],
      }),
    },
    'tdx.tcb_info.platform': {
      'TCB info of another platform model': { tcbInfo: (j) => ({ ...j, fmspc: 'A0B1C2D3E4F6' }) },
      'TCB info of another PCE': { tcbInfo: (j) => ({ ...j, pceId: '0001' }) },
      'TCB info with components of another type': { tcbInfo: (j) => ({ ...j, tcbType: 1 }) },
    },
    ...ROOT_CRL,
    ...PCK_CRL,
    'tdx.pck_crl.signature': {
      ...PCK_CRL['tdx.pck_crl.signature'],
      'a platform CA that may not sign CRLs': {
        platformCa: (r) => ({ ...r, extensions: replaced(r.extensions, keyUsage('keyCertSign')) }),
      },
    },
    'tdx.revocation.platform_ca': { 'a revoked platform CA': revoking('rootCrl', 0x12n) },
    'tdx.revocation.tcb_signing': {
      'a revoked signer of TCB info': revoking('rootCrl', 0x13n),
      'a revoked signer of the QE identity': revoking('rootCrl', 0x14n),
    },
    'tdx.revocation.pck': { 'a revoked PCK certificate': revoking('pckCrl', 0x4242n) },
  });
  itAccepts({
    'a lower-case FMSPC in TCB info': { tcbInfo: (j) => ({ ...j, fmspc: 'a0b1c2d3e4f5' }) },
    'dates that are reached to the second': {
      tcbInfo: (j) => ({ ...j, issueDate: isoSeconds, nextUpdate: isoSeconds }),
      qeIdentity: (j) => ({ ...j, issueDate: isoSeconds, nextUpdate: isoSeconds }),
    },
    'what is issued within the next minute': {
      tcbInfo: (j) => ({ ...j, issueDate: '2026-12-01T00:01:00Z' }),
      qeIdentity: (j) => ({ ...j, issueDate: '2026-12-01T00:01:00Z' }),
    },
    'any evaluation number if the manifest asks for none': {
      entry: (e) => ({ ...e, minTcbEvaluationDataNumber: 0 }),
      tcbInfo: (j) => ({ ...j, tcbEvaluationDataNumber: 1 }),
      qeIdentity: (j) => ({ ...j, tcbEvaluationDataNumber: 1 }),
    },
  });
});

/** Evidence that fails before anything of Intel is needed: by its form, its chain, its signatures. */
const FORGED: readonly Changes[] = [
  { header: (h) => ({ ...h, version: 5 }) },
  { pck: (r) => ({ ...r, issuer: { ...r.issuer, key: STRANGER } }) },
  { quote: (q) => ({ ...q, tdQuoteBody: { ...q.tdQuoteBody, mrOwner: filled(48, 1) } }) },
  { qeReport: (r) => ({ ...r, reportData: filled(64, 1) }) },
];

describe('collateral of TDX', () => {
  type Question = readonly [name: string, query: object];
  const asked = (changes: Changes): { readonly questions: Question[]; readonly changes: Changes } => {
    const questions: Question[] = [];
    const { collateral } = tdxPlatform(changes).context;
    const noting =
      <Query extends object, Answer>(name: string, answer: (query: Query) => Answer) =>
      (query: Query): Answer => {
        questions.push([name, query]);
        return answer(query);
      };
    const answers: Changes['answers'] = {
      intelTcbInfo: noting('tcb', collateral.intelTcbInfo),
      intelQeIdentity: noting('qe', collateral.intelQeIdentity),
      intelPckCrl: () => noting('pck crl', collateral.intelPckCrl)({}),
      intelRootCrl: noting('root crl', collateral.intelRootCrl),
    };
    return { questions, changes: { ...changes, answers } };
  };

  it('is requested with the FMSPC of the certificate and the evaluation number of the manifest', async () => {
    const { questions, changes } = asked({});
    assert.ok(allAccepted(TDX_ROWS, await judge(changes)));
    assert.deepEqual(questions, [
      ['tcb', { fmspc: 'a0b1c2d3e4f5', evaluationDataNumber: 21 }],
      ['qe', { evaluationDataNumber: 21 }],
      ['pck crl', {}],
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
      ['two distribution points', [points(point(uri), point(uri))]],
      ['two URIs', [points(point(uri, uri))]],
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

  const crl = Uint8Array.of(0x30, 0);
  const unlevelled = { body: signedBody('tcbInfo', { id: 'TDX' }), issuerChain: '' };
  const useless: readonly (readonly [
    check: string,
    what: string,
    answers: NonNullable<Changes['answers']>,
  ])[] = [
    ['tdx.tcb_info.format', 'out of reach', { intelTcbInfo: unreachable }],
    ['tdx.tcb_info.format', 'no JSON', { intelTcbInfo: async () => ({ body: '{', issuerChain: '' }) }],
    ['tdx.tcb_info.format', 'without an issuer chain', { intelTcbInfo: async () => unlevelled }],
    ['tdx.qe_identity.format', 'out of reach', { intelQeIdentity: unreachable }],
    ['tdx.pck_crl.format', 'out of reach', { intelPckCrl: unreachable }],
    ['tdx.root_crl.format', 'out of reach', { intelRootCrl: unreachable }],
    ['tdx.root_crl.format', 'no list', { intelRootCrl: async () => ({ crl }) }],
  ];
  for (const [check, what, answers] of useless) {
    it(`that is ${what} fails ${check} with collateral_unavailable, and other checks are still made`, async () => {
      const checks = await judge({ answers });
      const [failure] = checks.filter(({ outcome }) => outcome === 'fail');
      assert.deepEqual([failure?.id, failure?.code], [check, 'collateral_unavailable']);
      if (what === 'out of reach') assert.equal(failure?.found, 'the host did not answer');
      assert.ok(checks.some(({ id, outcome }) => id === 'tdx.policy.mrtd' && outcome === 'pass'));
      assert.ok(!allAccepted(TDX_ROWS, checks));
    });
  }

  it('that is missing does not decide where what has come shows something wrong', async () => {
    const tcbLevels = [{ tcb: { isvsvn: 1 }, tcbDate: '2026-03-13T00:00:00Z', tcbStatus: 'OutOfDate' }];
    const checks = await judge({
      answers: { intelTcbInfo: unreachable },
      qeIdentity: (j) => ({ ...j, tcbLevels }),
    });
    assert.deepEqual(failed(checks), ['tdx.tcb_info.format', 'tdx.qe.status']);
    assert.equal(decisive(checks)?.id, 'tdx.qe.status');
  });
});
