/** Faults in what keeps and shows what was verified: session, receipts, manifest log, verify. */
import type { Mutation } from './mutation.ts';

export const TRUST: readonly Mutation[] = [
  {
    defence:
      'the suspension of a denied secret: everything goes on saying "verified" under a secret that the service has not',
    file: 'lib/session/state.ts',
    edits: [
      {
        find: "secretAt(secret, at) === 'good' ? secret : undefined;",
        replace: "['good', 'suspended'].includes(secretAt(secret, at)) ? secret : undefined;",
      },
    ],
    tests: [
      {
        file: 'test/session/suspended-secret.test.ts',
        names: [
          'a session with a denied secret or API key suspends the secret at the first rejection; requests get attestation_failed at the second one, after six seconds',
          'a session with a denied secret or API key suspends the secret if the renewal takes longer than requests wait',
        ],
      },
    ],
  },
  {
    defence: 'the fetched manifest: an error page counts as one, and the service as rejected',
    file: 'lib/session/manifest-source.ts',
    edits: [{ find: 'if (reason !== undefined) throw', replace: 'if (body.length === 0) throw' }],
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
    defence: 'the fetched manifest: a JSON error counts as one, and the service as replaced',
    file: 'lib/attestation/manifest.ts',
    edits: [{ find: 'return missing && `', replace: 'return missing && undefined && `' }],
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
    defence: 'the end of a process: a denial and the evidence of a rented machine end a pinned proxy',
    file: 'lib/session/decide.ts',
    edits: [
      {
        find: 'if (secret !== undefined && livesAt(secret, at)) return undefined;',
        replace: 'if (secretInForce(state, at) !== undefined) return undefined;',
      },
    ],
    tests: [
      {
        file: 'test/session/suspended-secret.test.ts',
        names: [
          'a session with a denied secret or API key says manifest_mismatch after two mismatches with a pinned manifest; the proxy ends when the secret expires',
          'a session with a denied secret or API key replaces the secret at the next accepted verdict, and keeps no trace of earlier rejections',
        ],
      },
    ],
  },
  {
    defence: 'the checks of a secret: it may come from anywhere',
    file: 'lib/session/secret-exchange.ts',
    edits: [
      {
        find: 'if (refused === undefined && checks.length > 0) return;',
        replace: 'if (checks.length >= 0) return;',
      },
    ],
    tests: [
      {
        file: 'test/session/secret-exchange.test.ts',
        names: [
          'secret exchange derives nothing unless every check passed',
          'secret exchange with the vectors of attestation/synthetic, judged by the rules of the mesh refuses secret_cert_other_ca.json',
        ],
      },
    ],
  },
  {
    defence: 'the private key of an exchange: it may be used twice',
    file: 'lib/session/secret-exchange.ts',
    edits: [{ find: '      privateKey = undefined;\n      if (recipient', replace: '      if (recipient' }],
    tests: [
      {
        file: 'test/session/secret-exchange.test.ts',
        names: ['secret exchange refuses to use its private key twice, even if the first use failed'],
      },
    ],
  },
  {
    defence: 'the pause that a host wants: its limiter is asked again at once',
    file: 'lib/network/control-call.ts',
    edits: [{ find: 'if (known !== undefined) return known;', replace: '' }],
    tests: [
      {
        file: 'test/network/control-call.test.ts',
        names: [
          'the pause that a host wants is granted: until it ends, the same response comes again, whatever the query, and nothing is sent',
        ],
      },
    ],
  },
  {
    defence: 'the pause that a host wants: whoever waits cuts it short',
    file: 'lib/session/decide.ts',
    edits: [{ find: 'Math.max(HURRY_INTERVAL, wantedPause(error))', replace: 'HURRY_INTERVAL' }],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: [
          'a session that fails asks a host that wants a pause again after that pause, in no second round, and not because a request waits',
        ],
      },
    ],
  },
  {
    defence: 'the longest pause: a host may keep the proxy waiting for as long as it likes',
    file: 'lib/network/control-call.ts',
    edits: [{ find: 'Math.min(Math.max(seconds, 1), LONGEST_PAUSE)', replace: 'Math.max(seconds, 1)' }],
    tests: [
      {
        file: 'test/network/control-call.test.ts',
        names: [
          'the pause that a host wants is 60 seconds after status 429 with Retry-After 99999999999999999999, and up to a fifth longer',
        ],
      },
    ],
  },
  {
    defence: 'ids in evidence: what nobody has verified yet is put into a URL',
    file: 'lib/session/collateral-cache.ts',
    edits: [{ find: 'if (!fits) throw', replace: 'if (Date.now() < 0) throw' }],
    tests: [
      {
        file: 'test/session/collateral-cache.test.ts',
        names: ['collateral cache refuses malformed ids and numbers instead of putting them into a URL'],
      },
    ],
  },
  {
    defence: 'the age of a revocation list: an older one may take the place of a newer one',
    file: 'lib/session/collateral-cache.ts',
    edits: [{ find: 'if (isOlder(url, kind, fetched))', replace: 'if (Date.now() < 0)' }],
    tests: [
      {
        file: 'test/session/collateral-cache.test.ts',
        names: [
          'collateral cache never replaces a revocation list by an older one, even if a rejected verdict made it forget the newer',
        ],
      },
    ],
  },
  {
    defence:
      'TCB info: firmware that Intel calls outdated since counts as up to date until the kept one expires',
    file: 'lib/session/collateral-cache.ts',
    edits: [{ find: 'kind.issued === undefined) return', replace: "!kind.name.endsWith('CRL')) return" }],
    tests: [
      {
        file: 'test/session/collateral-cache.test.ts',
        names: [
          'collateral: TCB info is fetched from its URL each time, and the stored copy is used if that fails',
          'collateral: QE identity is fetched from its URL each time, and the stored copy is used if that fails',
        ],
      },
    ],
  },
  {
    defence: 'the date of TCB info: one that Intel did not sign keeps out every later one',
    file: 'lib/session/collateral-cache.ts',
    edits: [{ find: 'if (isForged) newest.delete(url);', replace: '' }],
    tests: [
      {
        file: 'test/session/collateral-cache.test.ts',
        names: [
          'collateral cache never replaces TCB info by an older one, unless its date came from somebody else than Intel',
          'collateral cache never replaces a revocation list by an older one, even if a rejected verdict made it forget the newer',
        ],
      },
    ],
  },
  {
    defence: 'the size of a revocation list: the date of one that no verdict reads is believed',
    file: 'lib/session/collateral-cache.ts',
    edits: [
      {
        find: 'expiry: ({ body: crl }) => readRevocationList({ crl })',
        replace: 'expiry: ({ body: crl }) => readRevocationList({ crl }, 2 ** 23)',
      },
      {
        find: 'issued: ({ body: crl }) => readRevocationList({ crl })',
        replace: 'issued: ({ body: crl }) => readRevocationList({ crl }, 2 ** 23)',
      },
    ],
    tests: [
      {
        file: 'test/session/collateral-cache.test.ts',
        names: [
          'collateral cache does not believe the date of a revocation list that is too large to be judged',
        ],
      },
    ],
  },
  {
    defence: 'the keys that were rejected: each request asks the service again',
    file: 'lib/session/client-keys.ts',
    edits: [{ find: 'if (age >= 0 && age < REMEMBER_REJECTION) {', replace: 'if (Date.now() < 0) {' }],
    tests: [
      {
        file: 'test/session/client-keys.test.ts',
        names: [
          'session without a configured key tries a rejected key again only 30 s after the rejection',
          'the queue of client keys remembers the last 1,024 rejections',
        ],
      },
    ],
  },
  {
    defence: 'the end of a secret: a wall clock that is set back keeps it in use',
    file: 'lib/session/lifetimes.ts',
    edits: [
      {
        find: 'now < expiresAt && monotonic < expiresMonotonic',
        replace: 'now < expiresAt',
      },
    ],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: [
          'an attested secret expires by the monotonic clock, even if the wall clock is set back meanwhile',
        ],
      },
    ],
  },
  {
    defence: 'the manifest log: a manifest is enforced that could not be logged',
    file: 'lib/session/epoch.ts',
    edits: [
      {
        find: 'const { appended, path } = await manifestLog.record(manifest, clock.now());',
        replace:
          "const { appended, path } = await manifestLog.record(manifest, clock.now()).catch(() => ({ appended: true, path: '' }));",
      },
    ],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: ['the start of a session uses no secret until its manifest is logged'],
      },
    ],
  },
  {
    defence: 'a disk that hangs: the renewals wait for the manifest log for ever',
    file: 'lib/manifest-log/manifest-log.ts',
    edits: [{ find: 'return inTime(appended).catch(', replace: 'return appended.catch(' }],
    tests: [
      {
        file: 'test/manifest-log/manifest-log.test.ts',
        names: [
          'manifest log waits ten seconds for a disk that neither answers nor fails, and fails unless the manifest is recorded',
        ],
      },
    ],
  },
  {
    defence: 'a disk that hangs: the renewals wait for stored collateral for ever',
    file: 'lib/network/collateral-store.ts',
    edits: [
      { find: "await inTime(readFile(pathOf(url), 'utf8'))", replace: "await readFile(pathOf(url), 'utf8')" },
    ],
    tests: [
      {
        file: 'test/session/collateral-cache.test.ts',
        names: [
          'collateral cache fetches collateral after ten seconds if the disk neither answers nor fails',
        ],
      },
    ],
  },
  {
    defence: 'the state while a key is awaited: a failure of long ago counts for ever',
    file: 'lib/session/standing.ts',
    edits: [{ find: 'monotonic >= until ||', replace: 'monotonic < 0 ||' }],
    tests: [
      {
        file: 'test/session/standing.test.ts',
        names: [
          'a proxy awaits a key again ten minutes after the key of a client brought no verdict, as nobody tries again',
        ],
      },
    ],
  },
  {
    defence: 'the state after a kept key was refused: the renewal passes for repaired',
    file: 'lib/session/decide.ts',
    edits: [{ find: '? unrenewable(state, error, at)', replace: '? undefined' }],
    tests: [
      {
        file: 'test/session/standing.test.ts',
        names: [
          'a proxy is not renewable after the key that it kept was refused, and awaits a key once the secret has ended',
        ],
      },
    ],
  },
  {
    defence: 'the verdict that is shown: evidence without a secret passes for a service that was accepted',
    file: 'lib/session/renewals.ts',
    edits: [{ find: "event.type !== 'attested' && !isSilence(", replace: '!isSilence(' }],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: [
          'the start of a session gives no verdict that accepts while checks of the secret are missing; if it does not come, the verdict is unavailable, with a row for each of them',
        ],
      },
    ],
  },
  {
    defence: 'the pause between renewals: requests under a good secret cut it short',
    file: 'lib/session/waiting.ts',
    edits: [
      { find: 'clock.now() >= (state().due ?? ready.renewAt)', replace: 'clock.now() >= ready.renewAt' },
    ],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: [
          'a session that fails does not try more often because requests come while the secret is good',
        ],
      },
    ],
  },
  {
    defence: 'a lost renewal: every later request waits for it',
    file: 'lib/session/renewals.ts',
    edits: [{ find: 'watched === renewal && watched.signs === signs', replace: 'watched !== renewal' }],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: [
          'a session in a runtime that ends a renewal together with the request that began it begins another renewal for a request that has waited three seconds, and shares no fetch with the lost one',
          'a session in a runtime that ends a renewal together with the request that began it begins another renewal where the service denied the secret',
        ],
      },
    ],
  },
  {
    defence: 'a slow renewal: it passes for lost, and never ends',
    file: 'lib/session/renewals.ts',
    edits: [{ find: 'watched === renewal && watched.signs === signs', replace: 'watched === renewal' }],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: [
          'a session in a runtime that ends a renewal together with the request that began it waits for a renewal that is slow',
        ],
      },
    ],
  },
  {
    defence: 'a lost renewal: its secret is used if it comes back',
    file: 'lib/session/renewals.ts',
    edits: [{ find: 'if (!signal.aborted) use(epoch, number);', replace: 'use(epoch, number);' }],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: [
          'a session in a runtime that ends a renewal together with the request that began it uses nothing of a lost renewal that comes back',
        ],
      },
    ],
  },
  {
    defence: 'the recorded exchanges: a flood of one day displaces those of a month',
    file: 'lib/receipts/verdict-store.ts',
    edits: [
      {
        find: 'shareOf(greatest) > DAY_SHARE ? greatest : left',
        replace: 'shareOf(greatest) > 2 ? greatest : left',
      },
    ],
    tests: [
      {
        file: 'test/receipts/receipts.test.ts',
        names: [
          'writing receipts keeps a month of exchanges, however many are forced in a day, and at most 256 MiB of them',
        ],
      },
    ],
  },
  {
    defence: 'the recorded exchanges: padded evidence may take any room on the disk',
    file: 'lib/receipts/verdict-store.ts',
    edits: [{ find: 'bytes: await sizeOf(path)', replace: 'bytes: 0 * (await sizeOf(path))' }],
    tests: [
      {
        file: 'test/receipts/receipts.test.ts',
        names: ['writing receipts counts the bytes of exchanges that are stored'],
      },
    ],
  },
  {
    defence: 'the recorded exchanges: one that cannot be removed ends all receipts',
    file: 'lib/receipts/verdict-store.ts',
    edits: [{ find: '.catch(onUnpruned)', replace: '' }],
    tests: [
      {
        file: 'test/receipts/receipts.test.ts',
        names: [
          'writing receipts goes on while an old exchange cannot be removed, which is reported',
          'writing receipts leaves no part of an old exchange under its name if it crashes while it deletes the exchange',
        ],
      },
    ],
  },
  {
    defence: 'the recorded exchanges: a stray file keeps old ones from being removed',
    file: 'lib/receipts/verdict-store.ts',
    edits: [{ find: 'entry.isDirectory() && (', replace: '(entry.name !== "" || ' }],
    tests: [
      {
        file: 'test/receipts/receipts.test.ts',
        names: ['writing receipts goes on whatever else lies among the exchanges, and leaves it there'],
      },
    ],
  },
  {
    defence: 'the signatures of receipts: anybody may have written them',
    file: 'lib/receipts/receipt.ts',
    edits: [
      {
        find: "return verify(null, Buffer.from(text), key, Buffer.from(signature[1] as string, 'base64'));",
        replace: 'return text.length > 0;',
      },
    ],
    tests: [
      {
        file: 'test/receipts/receipts.test.ts',
        names: [
          'checking receipts names a changed byte',
          'checking receipts names a line signed again with another key',
        ],
      },
    ],
  },
  {
    defence: 'the signatures of receipts: the same signature has several spellings',
    file: 'lib/receipts/receipt.ts',
    edits: [{ find: '{85}[AQgw]==', replace: '{86}==' }],
    tests: [
      {
        file: 'test/receipts/receipts.test.ts',
        names: [
          'a receipt has a signature over every byte before it: a line with any byte changed, also of the signature, is no receipt',
        ],
      },
    ],
  },
  {
    defence: 'the history of manifests: it may begin anew beside its manifests',
    file: 'lib/manifest-log/manifest-log.ts',
    edits: [
      { find: 'if (!names.some((name) => MANIFEST_NAME.test(name))) return', replace: 'if (names) return' },
    ],
    tests: [
      {
        file: 'test/manifest-log/manifest-log.test.ts',
        names: [
          'manifest log refuses to begin a history beside manifests whose log is gone, and advises to keep them',
        ],
      },
    ],
  },
  {
    defence: 'the chain of trust: a link passes though one before it did not',
    file: 'lib/verdict/chain-of-trust.ts',
    edits: [{ find: 'const holds = vouched && isMade && ', replace: 'const holds = isMade && ' }],
    tests: [
      {
        file: 'test/verdict/chain-of-trust.test.ts',
        names: [
          'the chain of trust does not pass a link behind one that failed, because nothing vouches for it',
        ],
      },
    ],
  },
  {
    defence: 'the nonce of an attestation: GET /verification shows what is hashed with it',
    file: 'lib/observe/verification-document.ts',
    edits: [{ find: 'null> = NONCE_DIGESTS', replace: 'null> = new Set()' }],
    tests: [
      {
        file: 'test/observe/verification-document.test.ts',
        names: [
          'the verification document shows, for accepted evidence, neither the nonce nor the digests over it; words say which digest was expected and which was found',
          'the verification document shows, for rejected evidence, neither the nonce nor the digests over it; words say which digest was expected and which was found',
          'the verification document leaves out the digests of the report data of a TDX quote, and says so if that check was not made',
        ],
      },
    ],
  },
  {
    defence: 'a directory that can hold no other: making one there never returns',
    file: 'lib/files/make-directory.ts',
    edits: [
      { find: ' mkdir(path, { mode })', replace: ' mkdir(path, { mode, recursive: true })' },
      { find: ' mkdirSync(path, { mode })', replace: ' mkdirSync(path, { mode, recursive: true })' },
    ],
    tests: [
      {
        file: 'test/files/make-directory.test.ts',
        names: [
          'making a directory fails with ENOENT, and returns, if the working directory was deleted (makeDirectory)',
          'making a directory fails with ENOENT, and returns, if the working directory was deleted (makeDirectorySync)',
        ],
      },
      {
        file: 'test/node-methods.test.ts',
        names: ['methods and private members of Node are replaced or read by lib only in the listed places'],
      },
    ],
  },
  {
    defence: 'half a line of a full disk: the next line is written behind it',
    file: 'lib/files/line-files.ts',
    edits: [{ find: 'if (!clean) await handle.truncate(good);', replace: '' }],
    tests: [
      {
        file: 'test/limits/count-log.test.ts',
        names: [
          'counts of limits that cannot be written wait while the disk is full, which is reported once, and are written completely later',
          'counts of limits that cannot be written are written once if the disk becomes full between two days of one batch',
        ],
      },
    ],
  },
  {
    defence: 'lines of a full disk: they stay behind, and stand in the file of the next day too',
    file: 'lib/files/line-files.ts',
    edits: [{ find: 'await file.restore();', replace: '' }],
    tests: [
      {
        file: 'test/receipts/receipts.test.ts',
        names: ['writing receipts writes each receipt once if the disk is full over midnight'],
      },
      {
        file: 'test/files/line-files.test.ts',
        names: [
          'the writer of lines leaves nothing of a failed write in a file when it goes on in another one',
          'the writer of lines begins no other file as long as it cannot cut off what a failed write left',
        ],
      },
    ],
  },
  {
    defence: 'lines for a file that was moved away: they go on in it',
    file: 'lib/files/line-files.ts',
    edits: [{ find: 'return found?.ino === ino && found.dev === dev;', replace: 'return true;' }],
    tests: [
      {
        file: 'test/files/line-files.test.ts',
        names: [
          'the writer of lines creates the file again if it was deleted',
          'the writer of lines creates the file again if it was deleted and a backup has a hard link to it',
        ],
      },
    ],
  },
  {
    defence: 'the nonce of a saved exchange: files of two attempts go together',
    file: 'lib/commands/verify-files.ts',
    edits: [
      {
        find: "if (nonce !== undefined && stated !== undefined && stated !== Buffer.from(nonce).toString('base64')) {",
        replace: 'if (Date.now() < 0) {',
      },
    ],
    tests: [
      {
        file: 'test/commands/verify-live.test.ts',
        names: [
          'verify of a live service refuses the secret exchange of another attempt under the same mesh CA',
        ],
      },
    ],
  },
  {
    defence:
      'evidence that has outlived its collateral: nothing else is judged by a time when it was in force',
    file: 'lib/commands/outlived-collateral.ts',
    edits: [
      {
        find: "if (at < subject.at && (await judge({ ...subject, at })).outcome === 'accepted') return",
        replace: 'if (at < subject.at) return',
      },
    ],
    tests: [
      {
        file: 'test/commands/verify-files.test.ts',
        names: [
          'verify of a saved exchange rejects an exchange with a secret of another mesh CA, even if its collateral has expired too',
        ],
      },
    ],
  },
  {
    defence: 'a kept exchange: files that were changed pass for it',
    file: 'lib/commands/verify-files.ts',
    edits: [{ find: '/^[0-9a-f]{64}$/.test(name) && name !== digest', replace: 'name === digest' }],
    tests: [
      {
        file: 'test/session/simulated-deployment.test.ts',
        names: [
          'session with a simulated deployment records the snp exchange of each epoch if asked to, and verify --saved comes to the same verdict',
        ],
      },
    ],
  },
  {
    defence: 'receipts: a key that somebody else announces counts',
    file: 'lib/receipts/check-receipts.ts',
    edits: [
      {
        find: 'const { first } = await keyOfChain(directory, names, { instance, keys, find });',
        replace:
          'const { first } = await keyOfChain(directory, names, { instance, keys, find: (name) => keyNamed(directory, name) });',
      },
    ],
    tests: [
      {
        file: 'test/receipts/receipt-keys.test.ts',
        names: [
          'somebody without the key of receipts cannot sign a directory again: neither with a key beside the receipts, nor with a rotation of his own',
        ],
      },
    ],
  },
  {
    defence: 'receipts: a file has the name of another key',
    file: 'lib/receipts/receipt-keys.ts',
    edits: [{ find: 'key !== undefined && keySha256(key) === name ? key : undefined', replace: 'key' }],
    tests: [
      {
        file: 'test/receipts/receipt-keys.test.ts',
        names: [
          'somebody without the key of receipts cannot replace an announced key by his own, because a key is named by its hash',
        ],
      },
    ],
  },
  {
    defence: 'the key of receipts: it does not come back into a directory that was moved away',
    file: 'lib/receipts/receipt-log.ts',
    edits: [{ find: 'if (await putKeyBack(directory, key)) {', replace: 'if (key === undefined) {' }],
    tests: [
      {
        file: 'test/receipts/receipt-keys.test.ts',
        names: [
          'the key of receipts comes back with the verdict in force, which is told, if its directory is moved away from a running proxy',
        ],
      },
    ],
  },
  {
    defence: 'the key of receipts: nobody is told of a chain whose key does not lie there',
    file: 'lib/receipts/receipt-log.ts',
    edits: [{ find: 'hasUnknown ||= chain.unknown !== undefined;', replace: '' }],
    tests: [
      {
        file: 'test/receipts/receipt-keys.test.ts',
        names: ['the key of receipts is reported as changed if a chain names a key that does not lie there'],
      },
    ],
  },
  {
    defence: 'the key of receipts: nobody is told of a retired key that comes back',
    file: 'lib/receipts/receipt-keys.ts',
    edits: [{ find: 'isNew && others : isOther;', replace: 'isNew && others : isNew && isOther;' }],
    tests: [
      {
        file: 'test/receipts/receipt-keys.test.ts',
        names: ['the key of receipts is reported as changed if a retired key comes back'],
      },
    ],
  },
  {
    defence: 'the key of receipts: a rotation that crashed looks like a change of the key',
    file: 'lib/receipts/receipt-log.ts',
    edits: [{ find: 'announced.has(announcement(former, name))', replace: '!name' }],
    tests: [
      {
        file: 'test/receipts/receipt-keys.test.ts',
        names: [
          'the key of receipts is not reported as changed if a rotation crashed before it wrote public.pem',
        ],
      },
    ],
  },
  {
    defence: 'receipts before --since: the end of a chain hides that later days are gone',
    file: 'lib/receipts/check-receipts.ts',
    edits: [{ find: 'if (late !== undefined) edgeFindings.push(late);', replace: '' }],
    tests: [
      {
        file: 'test/receipts/receipt-days.test.ts',
        names: [
          'somebody without the key cannot hide lines from --since by moving the end of a chain to the last line of an earlier file, and deleting the days between',
          'somebody without the key cannot hide lines from --since by renaming the first file of a chain to an earlier day, and cutting a line out of it',
        ],
      },
    ],
  },
  {
    defence: 'receipts before --since: a chain whose later days are gone seems to have ended',
    file: 'lib/receipts/check-chain.ts',
    edits: [
      {
        find: 'isLeftOut && [...deps.numbers].some((seq) => seq >= (last?.members.seq ?? 0))',
        replace: 'isLeftOut',
      },
    ],
    tests: [
      {
        file: 'test/receipts/receipt-days.test.ts',
        names: [
          'somebody without the key cannot hide lines from --since by deleting the days of the newest chain: what is left of it does not end, which is a gap',
        ],
      },
    ],
  },
  {
    defence: 'receipts: an empty file passes for receipts',
    file: 'lib/receipts/check-receipts.ts',
    edits: [{ find: 'chains.every(({ opened }) => opened === undefined)', replace: 'chains.length === 0' }],
    tests: [
      {
        file: 'test/commands/receipts.test.ts',
        names: [
          'receipts verify exits with 10 if the only file with the name of receipts is empty, and shows no check mark with --since',
        ],
      },
    ],
  },
  {
    defence: 'an old exchange: half of it has its name after a crash, and looks changed',
    file: 'lib/files/durable-file.ts',
    edits: [
      {
        find: 'const temporary = temporaryBeside(path);\n  await unless',
        replace: 'const temporary = path;\n  await unless',
      },
    ],
    tests: [
      {
        file: 'test/receipts/receipts.test.ts',
        names: [
          'writing receipts leaves no part of an old exchange under its name if it crashes while it deletes the exchange',
        ],
      },
    ],
  },
  {
    defence: 'receipts: a manifest that was replaced is not missed',
    file: 'lib/receipts/check-references.ts',
    edits: [{ find: '.filter(([sha256]) => !kept.has(sha256))', replace: '.filter(() => false)' }],
    tests: [
      {
        file: 'test/receipts/receipt-keys.test.ts',
        names: ['the manifest of a receipt is reported as missing if it is changed'],
      },
    ],
  },
  {
    defence: 'receipts: a manifest counts as missing once log.txt was rotated away',
    file: 'lib/receipts/check-references.ts',
    edits: [
      {
        find: 'ifThere(readdir(manifests));',
        replace: "readdir(join(manifests, 'log.txt')).catch(() => []);",
      },
    ],
    tests: [
      {
        file: 'test/receipts/receipt-keys.test.ts',
        names: [
          'the manifest of a receipt is found by its bytes after log.txt was emptied',
          'the manifest of a receipt is found by its bytes after log.txt was moved away',
        ],
      },
    ],
  },
  {
    defence: 'the text of a verdict: text of the remote can steer a terminal',
    file: 'lib/verdict/text.ts',
    edits: [{ find: 'printable(found)}`,\n    `  check', replace: 'found}`,\n    `  check' }],
    tests: [
      {
        file: 'test/verdict/text.test.ts',
        names: ['the verdict for a person shows nothing of the remote that could steer a terminal'],
      },
    ],
  },
  {
    defence: 'the text of a verdict: a simulator has the check mark of real hardware',
    file: 'lib/verdict/text.ts',
    edits: [
      { find: "(outcome === 'accepted' || outlived !== undefined) && roots === 'custom'", replace: 'false' },
    ],
    tests: [
      {
        file: 'test/verdict/text.test.ts',
        names: [
          'the first line of the verdict has a check mark only for evidence that was accepted under the roots of AMD and Intel',
        ],
      },
    ],
  },
  {
    defence: 'the verdict on a secret exchange: none of its checks counts',
    file: 'lib/verdict/judge.ts',
    edits: [
      {
        find: 'if (failed === undefined && checks.length > 0) return whole;',
        replace: 'if (checks.length > 0) return whole;',
      },
    ],
    tests: [
      {
        file: 'test/commands/verify-live.test.ts',
        names: [
          'verify of a live service rejects the fault secret-signature by the check secret.signature, live and again from the saved files',
          'verify of a live service rejects the fault secret-foreign-ca by the check mesh.certificate.signature, live and again from the saved files',
        ],
      },
    ],
  },
  {
    defence: 'the texts of others in the status: they may steer the terminal',
    file: 'lib/commands/status-text.ts',
    edits: [
      {
        find: "if (typeof value === 'string') return printable(value, LONGEST_TEXT);",
        replace: "if (typeof value === 'string') return value;",
      },
    ],
    tests: [
      {
        file: 'test/commands/status-text.test.ts',
        names: [
          'the status for a terminal lets no text of the service or of an application steer the terminal',
        ],
      },
    ],
  },
  {
    defence: 'the flags of verify: those of the service are ignored for files',
    file: 'lib/commands/verify-flags.ts',
    edits: [{ find: 'if (stray !== undefined) {', replace: 'if (Date.now() < 0) {' }],
    tests: [
      {
        file: 'test/commands/verify-flags.test.ts',
        names: [
          'the command line of verify is refused with --evidence=e --nonce=n --manifest=m --api-endpoint=x',
          'the command line of verify is refused with --evidence=e --nonce=n --manifest=m --unsafe-trust-roots=x',
        ],
      },
    ],
  },
  {
    defence: 'what is authentic: a report that anybody signed is the hardware speaking',
    file: 'lib/attestation/snp/verify-snp.ts',
    edits: [{ find: ", 'snp.report.signature'", replace: '' }],
    tests: [
      {
        file: 'test/attestation/authentic.test.ts',
        names: ['verify rejects evidence that is signed by another key, and says "authentic: no"'],
      },
    ],
  },
  {
    defence: 'what is authentic: report data that bind something else',
    file: 'lib/attestation/authentic.ts',
    edits: [
      {
        find: 'expectedReportData: reportData({ ...document, nonce, transition }),',
        replace:
          'expectedReportData: reportData({ ...document, nonce: new Uint8Array(32).fill(9), transition }),',
      },
    ],
    tests: [
      {
        file: 'test/attestation/authentic.test.ts',
        names: ['verify rejects evidence that answers another nonce, and says "authentic: no"'],
      },
    ],
  },
  {
    defence: 'what is authentic: evidence without its certificate counts as signed by the hardware',
    file: 'lib/verdict/judge.ts',
    edits: [
      {
        find: "unknown: 'nothing shows which hardware signed this evidence',",
        replace: 'unknown: undefined,',
      },
    ],
    tests: [
      {
        file: 'test/verdict/judge.test.ts',
        names: [
          'the error of a verdict that rejects says who signed the evidence if authentic is unknown, whatever check failed',
        ],
      },
    ],
  },
  {
    defence: 'the advice of verify: forged evidence moves its reader to another manifest',
    file: 'lib/verdict/advice.ts',
    edits: [{ find: "if (verdict.authentic !== 'yes') {", replace: 'if (Date.now() < 0) {' }],
    tests: [
      {
        file: 'test/verdict/text.test.ts',
        names: [
          'the verdict for a person asks nobody to look for another manifest because of evidence that no hardware is shown to have signed',
        ],
      },
      {
        file: 'test/commands/verify-live.test.ts',
        names: [
          'verify of a live service does not ask for another manifest if a mismatch comes with the fault evidence-signature',
        ],
      },
    ],
  },
  {
    defence: "the end of a process: a mismatch that is not the hardware's ends a pinned proxy",
    file: 'lib/session/decide.ts',
    edits: [
      {
        find: "code === 'manifest_mismatch' && verdicts.mismatches)",
        replace: "code === 'manifest_mismatch')",
      },
    ],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: [
          'permanent causes of failure a mismatch that no hardware vouches for (authentic: no) fails requests, but is never reported',
          'permanent causes of failure an authentic mismatch followed by inauthentic ones is not reported, until authentic ones come again',
        ],
      },
    ],
  },
  {
    defence: 'a service that is refused: the newest manifest need not have been tried',
    file: 'lib/session/refusal.ts',
    edits: [{ find: 'newest && (isOwnFault', replace: '(isOwnFault' }],
    tests: [
      {
        file: 'test/session/session.test.ts',
        names: [
          'a service that is rejected is not called rejected while the newest manifest cannot be fetched: requests get not_ready',
        ],
      },
    ],
  },
  {
    defence: 'files of receipts: a link is followed',
    file: 'lib/files/own-files.ts',
    edits: [{ find: 'flags | O_NOFOLLOW | O_NONBLOCK', replace: 'flags | O_NONBLOCK' }],
    tests: [
      {
        file: 'test/files/own-files.test.ts',
        names: ['files of receipts are refused at the start: a key that is a link'],
      },
    ],
  },
  {
    defence: 'receipts: what this user may not read counts as missing or changed',
    file: 'lib/files/own-files.ts',
    edits: [{ find: 'if (SOMETHING_ELSE.has(error.code)) return', replace: 'if (error.code !== "") return' }],
    tests: [
      {
        file: 'test/receipts/receipt-keys.test.ts',
        names: [
          'what this user may not read among receipts is receipts_unreadable with its path, and no finding: a verdict',
          'what this user may not read among receipts is receipts_unreadable with its path, and no finding: a manifest',
        ],
      },
    ],
  },
  {
    defence: 'receipts: a key of another kind signs them',
    file: 'lib/receipts/receipt-keys.ts',
    edits: [
      {
        find: "pem === undefined || key?.asymmetricKeyType === 'ed25519'",
        replace: 'pem === undefined || key !== undefined',
      },
    ],
    tests: [
      {
        file: 'test/files/own-files.test.ts',
        names: ['files of receipts are refused at the start: a key of another kind'],
      },
    ],
  },
  {
    defence: 'a saved exchange: other files in its directory change the digest that names it',
    file: 'lib/commands/save-exchange.ts',
    edits: [
      {
        find: 'const [taken] = names;',
        replace: 'const taken = names.find((name) => name === SAVED.verdict);',
      },
    ],
    tests: [
      {
        file: 'test/commands/verify-live.test.ts',
        names: [
          'verify of a live service refuses to save into a directory that holds an exchange or anything else, before it sends any request',
        ],
      },
    ],
  },
  {
    defence: 'lines of receipts: the chain begins with what nobody signed',
    file: 'lib/receipts/receipt.ts',
    edits: [{ find: 'if (!isSignedBy(line, key)) return', replace: 'if (Date.now() < 0) return' }],
    tests: [
      {
        file: 'test/receipts/receipt-junk.test.ts',
        names: ['junk among receipts is named and breaks no chain: a forged first line'],
      },
    ],
  },
];
