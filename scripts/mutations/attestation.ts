/** Faults in what is accepted as evidence, and in the cryptography below it. */
import type { Mutation } from './mutation.ts';

export const ATTESTATION: readonly Mutation[] = [
  {
    defence: 'the expected manifest, first lock: the manifests of the document are not compared with it',
    file: 'lib/attestation/document-checks.ts',
    edits: [
      {
        find: 'manifests.every((each) => constantTimeEqual(each, expectedManifest))',
        replace: 'manifests.every((each) => each.length > 0)',
      },
    ],
    tests: [
      {
        file: 'test/attestation/stages.test.ts',
        names: [
          'verify has a second lock: the hardware itself must name the expected manifest, whatever the checks compared',
        ],
      },
    ],
  },
  {
    defence: 'the expected manifest, second lock: the hardware may have named another one',
    file: 'lib/attestation/verify-evidence.ts',
    edits: [
      {
        find: 'const isExpected = constantTimeEqual(',
        replace: 'const isExpected = true || constantTimeEqual(',
      },
    ],
    tests: [
      {
        file: 'test/attestation/stages.test.ts',
        names: [
          'verify has a second lock: the hardware itself must name the expected manifest, whatever the checks compared',
        ],
      },
    ],
  },
  {
    defence: 'the order of stages: what nobody signed is called a service under another manifest',
    file: 'lib/attestation/snp/verify-snp.ts',
    edits: [
      {
        find: '|| extensions === undefined) return false;',
        replace: '|| extensions === undefined || !(await documentHolds(checks))) return false;',
      },
    ],
    tests: [
      {
        file: 'test/attestation/stages.test.ts',
        names: [
          'verify refuses evidence under another manifest that is signed by another key by snp.report.signature, never as a mismatch',
        ],
      },
    ],
  },
  {
    defence: 'the product line: a key of another line than the reference value may have signed',
    file: 'lib/attestation/snp/policy-checks.ts',
    edits: [
      {
        find: 'if (signer !== undefined && signer.product !== product) return',
        replace: 'if (!product) return',
      },
    ],
    tests: [
      {
        file: 'test/attestation/snp/forged-evidence.test.ts',
        names: [
          'the VCEK certificate is refused with the name of the line that only the manifest names',
          'the VCEK certificate is refused with another line than report and reference value',
        ],
      },
    ],
  },
  {
    defence: 'a migration agent of an AMD guest: it may have one',
    file: 'lib/attestation/snp/policy-checks.ts',
    edits: [
      {
        find: 'finding(/^f+$/.test(hex(reportIdMa)), hex(reportIdMa))',
        replace: 'finding(true, hex(reportIdMa))',
      },
    ],
    tests: [
      {
        file: 'test/attestation/snp/forged-evidence.test.ts',
        names: [
          'a report of SEV-SNP is refused with a migration agent',
          'a report of SEV-SNP is refused with a migration agent whose id is ones but for its last byte',
        ],
      },
    ],
  },
  {
    defence: 'the policy documents: there may be more than the manifest lists',
    file: 'lib/attestation/document-checks.ts',
    edits: [{ find: 'missing + extra + repeated === 0', replace: 'missing === 0' }],
    tests: [
      {
        file: 'test/attestation/snp/verify.test.ts',
        names: [
          'verification of the synthetic_v158 deployment rejects policies_extra: one more policy document than the manifest lists',
        ],
      },
    ],
  },
  {
    defence: 'the report data: the evidence may answer another nonce, for other CAs',
    file: 'lib/attestation/snp/signer-checks.ts',
    edits: [{ find: 'oneOf(reportData, [expectedData])', replace: "finding(true, '')" }],
    tests: [
      {
        file: 'test/attestation/snp/verify.test.ts',
        names: [
          'verification of the synthetic deployment rejects mesh_ca_swapped: mesh_ca in the response replaced by another self-signed CA',
          'verification of the synthetic deployment rejects root_ca_swapped: root_ca in the response replaced',
          'an honest document is refused for another nonce than was sent',
        ],
      },
    ],
  },
  {
    defence: 'the signature on a report of AMD: nobody need have signed it',
    file: 'lib/attestation/snp/signer-checks.ts',
    edits: [
      {
        find: 'verified(await verifyEcdsa(',
        replace: 'verified(true || await verifyEcdsa(',
      },
    ],
    tests: [
      {
        file: 'test/attestation/snp/verify.test.ts',
        names: [
          'verification of the synthetic deployment rejects report_body_flipped: one bit of MEASUREMENT flipped after signing',
          'verification of the synthetic deployment rejects report_sig_flipped: one bit of the report signature flipped',
        ],
      },
    ],
  },
  {
    defence: 'the issuer of the VCEK: anybody may have issued it',
    file: 'lib/attestation/snp/signer-checks.ts',
    edits: [{ find: 'issuedBy(vcek, roots.ask)', replace: "finding(true, '')" }],
    tests: [
      {
        file: 'test/attestation/snp/verify.test.ts',
        names: [
          'verification of the synthetic deployment rejects vcek_wrong_issuer_key: VCEK names SEV-Genoa as issuer but is signed by another key',
          'an honest document is refused under other roots than those of its product line',
        ],
      },
    ],
  },
  {
    defence: 'the minimum TCB: firmware may be older than the manifest allows',
    file: 'lib/attestation/snp/policy-checks.ts',
    edits: [{ find: 'const holds = packed.tcbAtMost(minimumTcb, found);', replace: 'const holds = true;' }],
    tests: [
      {
        file: 'test/attestation/snp/verify.test.ts',
        names: [
          'verification of the synthetic deployment rejects tcb_launch_below_min: LAUNCH_TCB microcode below minimum',
          'verification of the synthetic_v158 deployment rejects tcb_bootloader_11: REPORTED_TCB and VCEK bootloader 11 < 12 (would pass the v1.40 minimum)',
        ],
      },
    ],
  },
  {
    defence: 'the signing key of a report of AMD: the field that names it may say anything',
    file: 'lib/attestation/snp/signer-checks.ts',
    edits: [{ find: 'finding(key === 0 && !reserved, found)', replace: 'finding(true, found)' }],
    tests: [
      {
        file: 'test/attestation/snp/forged-evidence.test.ts',
        names: [
          'a report of SEV-SNP is refused with a reserved bit of SIGNER_INFO',
          'a report of SEV-SNP is refused with SIGNING_KEY none',
        ],
      },
    ],
  },
  {
    defence: 'the author key of an AMD guest: an owner may have signed an ID block of his own',
    file: 'lib/attestation/snp/policy-checks.ts',
    edits: [{ find: 'finding((signerInfo & 1) === 0,', replace: 'finding(true,' }],
    tests: [
      {
        file: 'test/attestation/snp/forged-evidence.test.ts',
        names: ['a report of SEV-SNP is refused with an author key'],
      },
    ],
  },
  {
    defence: 'the firmware of AMD: a committed version may be above the one that runs',
    file: 'lib/attestation/snp/policy-checks.ts',
    edits: [
      {
        find: 'isAtMost && committedBuild <= currentBuild',
        replace: 'committedBuild <= currentBuild',
      },
    ],
    tests: [
      {
        file: 'test/attestation/snp/forged-evidence.test.ts',
        names: [
          'a report of SEV-SNP has firmware versions that are compared as a whole, and builds that are compared too',
        ],
      },
    ],
  },
  {
    defence: 'the guest policy and the platform: a guest may be debugged',
    file: 'lib/attestation/snp/policy-checks.ts',
    edits: [{ find: 'return finding(set !== forbidden,', replace: 'return finding(true,' }],
    tests: [
      {
        file: 'test/attestation/snp/verify.test.ts',
        names: [
          'verification of the synthetic deployment rejects platform_alias_off: PLATFORM_INFO bit 5 (alias check) missing',
          'verification of the synthetic deployment rejects platform_smt_on: PLATFORM_INFO bit 0 (SMT) set but not allowed',
          'verification of the synthetic deployment rejects policy_debug: DEBUG bit set in the guest policy',
        ],
      },
    ],
  },
  {
    defence: 'the signature on a quote of Intel: its body may be changed',
    file: 'lib/attestation/tdx/quote-checks.ts',
    edits: [
      {
        find: 'return signatureFinding(key, signedQuoteBytes(quote), signature);',
        replace: "return finding(true, '');",
      },
    ],
    tests: [
      {
        file: 'test/attestation/tdx/quote-checks.test.ts',
        names: [
          'verification of the form and the signatures of a TDX quote refuses a quote signature that was altered',
          'verification of the form and the signatures of a TDX quote refuses a body that was altered after signing',
        ],
      },
    ],
  },
  {
    defence: 'the attestation key of a quote: it need not be that of the enclave',
    file: 'lib/attestation/tdx/quote-checks.ts',
    edits: [{ find: 'return oneOf(qeReport.reportData, [expected]);', replace: "return finding(true, '');" }],
    tests: [
      {
        file: 'test/attestation/tdx/quote-checks.test.ts',
        names: [
          'verification of the form and the signatures of a TDX quote refuses other authentication data than the enclave bound',
          'verification of the form and the signatures of a TDX quote refuses a key binding with a tail that is not zero',
        ],
      },
    ],
  },
  {
    defence: 'the chains of Intel: a CA that the trusted root signed may stand in for it',
    file: 'lib/attestation/tdx/chain.ts',
    edits: [{ find: "!same && 'the root is not the trusted one'", replace: 'false' }],
    tests: [
      {
        file: 'test/attestation/tdx/pck-checks.test.ts',
        names: [
          'verification of the PCK certificate chain refuses a root of another key that the trusted one signed, above its own platform CA',
        ],
      },
      {
        file: 'test/attestation/tdx/collateral-checks.test.ts',
        names: [
          'verification of TCB info, QE identity and revocation lists refuses a signer under a root of another key that the trusted one signed',
        ],
      },
    ],
  },
  {
    defence: 'the status of a platform: it may be out of date',
    file: 'lib/attestation/tdx/collateral-checks.ts',
    edits: [{ find: 'finding(level?.status === UP_TO_DATE,', replace: 'finding(level !== undefined,' }],
    tests: [
      {
        file: 'test/attestation/tdx/tcb-checks.test.ts',
        names: [
          'verification of the state of platform, TDX module and quoting enclave refuses a platform level OutOfDate',
          'verification of the state of platform, TDX module and quoting enclave refuses a module level OutOfDate',
          'verification of the state of platform, TDX module and quoting enclave refuses a quoting enclave OutOfDate',
          'verification of the state of platform, TDX module and quoting enclave refuses a platform level SWHardeningNeeded',
        ],
      },
    ],
  },
  {
    defence: 'the attributes of a trust domain: it may be under debug',
    file: 'lib/attestation/tdx/policy-checks.ts',
    edits: [{ find: 'oneOf(body.tdAttributes, [TD_ATTRIBUTES])', replace: "finding(true, '')" }],
    tests: [
      {
        file: 'test/attestation/tdx/policy-checks.test.ts',
        names: [
          'the policy of a TDX reference value refuses a domain under debug',
          'the policy of a TDX reference value refuses a domain without SEPT_VE_DISABLE',
        ],
      },
    ],
  },
  {
    defence: 'the revocation lists: what is on them counts all the same',
    file: 'lib/attestation/tdx/collateral-checks.ts',
    edits: [{ find: '.filter((serial) => crl.revoked.has(serial))', replace: '.filter(() => false)' }],
    tests: [
      {
        file: 'test/attestation/tdx/collateral-checks.test.ts',
        names: [
          'verification of TCB info, QE identity and revocation lists refuses a revoked platform CA',
          'verification of TCB info, QE identity and revocation lists refuses a revoked signer of TCB info',
          'verification of TCB info, QE identity and revocation lists refuses a revoked signer of the QE identity',
          'verification of TCB info, QE identity and revocation lists refuses a revoked PCK certificate',
        ],
      },
    ],
  },
  {
    defence: 'the identity of the secret service: any workload may give the secret',
    file: 'lib/attestation/mesh.ts',
    edits: [
      {
        find: "const found = value && Buffer.from(readOctetString(parseDer(value))).toString('utf8');",
        replace: 'const found = expected;',
      },
    ],
    tests: [
      {
        file: 'test/attestation/mesh.test.ts',
        names: [
          'mesh certificates are refused with no WorkloadSecretID',
          'mesh certificates are refused with the WorkloadSecretID of another workload',
        ],
      },
    ],
  },
  {
    defence: 'the verdict: checks that were never made may be missing',
    file: 'lib/attestation/check.ts',
    edits: [
      {
        find: 'return rows.length > 0 && rows.every(holds) && firstFailure(checks) === undefined;',
        replace: 'return firstFailure(checks) === undefined;',
      },
    ],
    tests: [
      {
        file: 'test/attestation/checks.test.ts',
        names: [
          'running checks accepts only a list that has a pass for each row of the table and no other entry',
          'running checks accepts "not-applicable" only from a conditional check, and "not-evaluated" from no check',
        ],
      },
    ],
  },
  {
    defence: 'the verdict: what forged evidence leaves out keeps it from being rejected',
    file: 'lib/attestation/check.ts',
    edits: [{ find: 'checks.find(isRefuted) ??', replace: '' }],
    tests: [
      {
        file: 'test/attestation/tdx/collateral-checks.test.ts',
        names: [
          'collateral of TDX that is missing does not decide where what has come shows something wrong',
        ],
      },
    ],
  },
  {
    defence: 'what AMD is asked: strangers have it asked for any chip',
    file: 'lib/attestation/snp/verify-snp.ts',
    edits: [
      {
        find: 'if (entry === undefined || !holds) {',
        replace: 'if (entry === undefined) {',
      },
    ],
    tests: [
      {
        file: 'test/attestation/stages.test.ts',
        names: [
          'verify asks for no collateral before it is known who signed, nor if the manifest is another one',
        ],
      },
    ],
  },
  {
    defence: 'a message of the evidence: it may have any number of fields, which fill the memory',
    file: 'lib/attestation/protobuf.ts',
    edits: [{ find: 'if (count === MAX_FIELDS) throw', replace: 'if (count === -1) throw' }],
    tests: [
      {
        file: 'test/attestation/protobuf.test.ts',
        names: ['readWireFields takes a thousand fields and no more'],
      },
    ],
  },
  {
    defence: "what AMD's host sends: the service is blamed for an unreadable list",
    file: 'lib/attestation/snp/endorsement.ts',
    edits: [
      {
        find: '...collateral.readFetchedList(await fetch())',
        replace: '...collateral.readRevocationList(await fetch())',
      },
    ],
    tests: [
      {
        file: 'test/attestation/snp/forged-evidence.test.ts',
        names: [
          'the revocation list of AMD leads to a rejection with the code collateral_unavailable if it cannot be fetched',
        ],
      },
    ],
  },
  {
    defence: 'a revocation list: it may hold a part of the revocations only',
    file: 'lib/attestation/x509.ts',
    edits: [
      { find: 'for (const oid of PARTIAL)', replace: 'for (const oid of PARTIAL.slice(PARTIAL.length))' },
    ],
    tests: [
      {
        file: 'test/attestation/crl.test.ts',
        names: [
          'CRLs are refused with a critical extension, another version or no number, or as a delta or partial list',
        ],
      },
    ],
  },
  {
    defence: 'a revocation list: extensions that nobody understands may change what it means',
    file: 'lib/attestation/x509.ts',
    edits: [{ find: '    refuseCritical(extensions);\n    for', replace: '    for' }],
    tests: [
      {
        file: 'test/attestation/crl.test.ts',
        names: [
          'CRLs are refused with a critical extension, another version or no number, or as a delta or partial list',
        ],
      },
    ],
  },
  {
    defence: 'a field of the evidence that comes twice: the first one counts',
    file: 'lib/attestation/protobuf.ts',
    edits: [{ find: 'values.length > 1)', replace: 'values.length > 2)' }],
    tests: [
      {
        file: 'test/attestation/protobuf.test.ts',
        names: [
          'readWireFields refuses a singular field twice, a wrong type and a wrong length (docs/protocol/attestation.md 13.13)',
        ],
      },
    ],
  },
  {
    defence: 'the fetched manifest: a JSON error counts as one, and the service as replaced',
    file: 'lib/attestation/manifest.ts',
    edits: [{ find: "name.toLowerCase() === 'policies'", replace: "name !== ''" }],
    tests: [
      {
        file: 'test/session/manifest-source.test.ts',
        names: [
          'managed manifest is unavailable if the host sends something that cannot be a manifest, such as an error page',
        ],
      },
    ],
  },
  {
    defence: 'JSON without ambiguities: a member may come twice',
    file: 'lib/json/names.ts',
    edits: [{ find: 'if (taken.has(name))', replace: 'if (Date.now() < 0)' }],
    tests: [
      {
        file: 'test/attestation/document.test.ts',
        names: ['attestation documents are refused with a repeated member'],
      },
    ],
  },
  {
    defence: 'an element of a certificate: bytes may follow it',
    file: 'lib/crypto/der.ts',
    edits: [
      { find: 'if (element.full.length !== bytes.length) throw', replace: 'if (bytes.length === 0) throw' },
    ],
    tests: [
      {
        file: 'test/crypto/der.test.ts',
        names: ['the reader of DER elements refuses bytes after the element'],
      },
    ],
  },
  {
    defence: 'an element of a certificate: it may hold others to any depth, which fill the stack',
    file: 'lib/crypto/der.ts',
    edits: [{ find: 'if (depth > MAX_DEPTH) throw', replace: 'if (depth < 0) throw' }],
    tests: [
      {
        file: 'test/crypto/der.test.ts',
        names: ['the reader of DER elements allows an element inside 24 others, and no deeper'],
      },
    ],
  },
  {
    defence: 'the length of a tag: less than one is taken for a message',
    file: 'lib/crypto/node.ts',
    edits: [{ find: 'if (!isHex || sizeOf(body) < 0) return', replace: 'if (!isHex) return' }],
    tests: [
      {
        file: 'test/crypto/aead.test.ts',
        names: ['AES-256-GCM refuses what is not hex of an iv, a ciphertext and a whole tag, short and long'],
      },
    ],
  },
  {
    defence: 'the length of an iv: OpenSSL accepts any other',
    file: 'lib/crypto/node.ts',
    edits: [{ find: "if (iv.length !== IV_BYTES) throw internal('the iv is not 12 bytes');", replace: '' }],
    tests: [
      {
        file: 'test/crypto/aead.test.ts',
        names: ['AES-256-GCM refuses keys and ivs of every other length in Wycheproof'],
      },
    ],
  },
  {
    defence: 'the length of a signature: one without its leading zeros is good',
    file: 'lib/crypto/signature.ts',
    edits: [
      {
        find: ' || 8 * signature.length !== rsa?.modulusBits) return false;',
        replace: ') return false;',
      },
    ],
    tests: [
      {
        file: 'test/crypto/signature.test.ts',
        names: ['RSASSA-PSS with SHA-384 refuses a signature without its leading zero (RFC 8017 8.1.2)'],
      },
    ],
  },
  {
    defence: 'the tag of a short message: what was changed on the way is opened',
    file: 'lib/crypto/node.ts',
    edits: [{ find: 'return difference === 0;', replace: 'return difference >= 0;' }],
    tests: [
      {
        file: 'test/crypto/aead.test.ts',
        names: [
          'AES-256-GCM refuses all messages if one bit is flipped in the iv, AAD, ciphertext or tag of any of them',
          'AES-256-GCM refuses a message under another key, and with the AAD of another message',
        ],
      },
    ],
  },
];
