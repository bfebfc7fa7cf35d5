/** Opens what decides who may come in: the certificate of the gateway and its names, and the clients. */

import { createCertificates } from './access/certificates.ts';
import { type Clients, openClients } from './access/clients.ts';
import { type Clock, every } from './clock.ts';
import type { Config } from './config/config.ts';
import { type CorsPolicy, ownNames } from './gateway/cors.ts';
import { firstToEnd, noteExpiry } from './listener/certificate-expiry.ts';
import type { Listener } from './listener/listen.ts';
import {
  type ClientCas,
  loadClientCas,
  loadTls,
  type TlsMaterial,
  watchClientCas,
  watchTls,
} from './listener/tls.ts';
import { type ConditionSink, whileUnusable } from './observe/conditions.ts';
import type { Logger } from './observe/log.ts';

interface FrontDeps {
  readonly log: Logger;
  readonly conditions: ConditionSink;
  readonly clock: Clock;
}

export type Front = ReturnType<typeof openFront>;

/**
 * Reads the certificate, its key and the CAs of clients. `follow` makes the listener use new ones. Throws
 * config_invalid.
 */
export function openFront(config: Config, { log, conditions, clock }: FrontDeps) {
  const { tlsCertPath: certPath, tlsKeyPath: keyPath, tlsClientCa } = config;
  const files = certPath === undefined || keyPath === undefined ? undefined : { certPath, keyPath };
  const certificates = tlsClientCa === undefined ? undefined : createCertificates();
  let tls = files && loadTls(files);
  let clientCas = tlsClientCa === undefined ? undefined : loadClientCas(tlsClientCa);
  let cors = corsPolicy(config, tls);
  let watches: readonly { reload(): void; close(): void }[] = [];
  const lookAtExpiry = (): void => {
    if (tls !== undefined)
      noteExpiry(conditions, 'tls_certificate_expiry', { path: certPath, ...firstToEnd(tls.cert) }, clock);
    if (clientCas !== undefined)
      noteExpiry(
        conditions,
        'client_ca_expiry',
        { path: tlsClientCa, ...firstToEnd(clientCas.join('\n')) },
        clock,
      );
  };
  lookAtExpiry();
  const endLooks = tls && every(clock, clock.times.expiryLook, lookAtExpiry);

  function follow(listener: Listener): void {
    const replaced = (): void => {
      listener.replaceTls(tls as TlsMaterial, clientCas);
      lookAtExpiry();
    };
    const ofTls =
      files &&
      watchTls(files, tls as TlsMaterial, {
        changed(material) {
          tls = material;
          cors = corsPolicy(config, material);
          replaced();
          const { subject, ends } = firstToEnd(material.cert);
          log.info({ subject, expires: ends.toISOString() }, 'The TLS certificate was replaced');
        },
        ...whileUnusable(conditions, 'tls_pair_unusable'),
        clock,
      });
    const ofCas =
      tlsClientCa &&
      watchClientCas(tlsClientCa, clientCas as ClientCas, {
        changed(cas) {
          clientCas = cas;
          replaced();
          log.info({ certificates: cas.length }, 'The CAs of client certificates were replaced');
        },
        ...whileUnusable(conditions, 'client_cas_unusable'),
        clock,
      });
    watches = [ofTls, ofCas].filter((watch) => typeof watch === 'object');
  }

  return {
    /** Undefined: without TLS. */
    tls,
    /** Remembers which connection showed which certificate; undefined: clients are not asked for any. */
    certificates,
    clientCertificates: certificates && clientCas && { ...certificates, cas: clientCas },
    cors: (): CorsPolicy => cors,
    certificateEnds: (): number | undefined => tls && firstToEnd(tls.cert).ends.getTime(),
    /** Makes the listener use the new files whenever they change. */
    follow,
    reload(): void {
      for (const watch of watches) watch.reload();
    },
    close(): void {
      endLooks?.();
      for (const watch of watches) watch.close();
    },
  };
}

function corsPolicy(config: Config, tls: TlsMaterial | undefined): CorsPolicy {
  const names = [...ownNames(config.listenAddress, tls?.cert), ...config.allowedHosts];
  return { allowedOrigins: config.corsAllowedOrigins, ownNames: names };
}

/**
 * Opens the table of clients that may use the gateway; undefined without --clients. Throws config_invalid.
 */
export async function openFrontClients(
  { clients: path }: Config,
  {
    key,
    sharedSalt,
    log,
    conditions,
    clock,
    front: { certificates },
    keysReplaced,
  }: FrontDeps & {
    readonly front: Front;
    readonly key: { readonly value: () => string | undefined };
    readonly sharedSalt: string | undefined;
    /** Called when the clients may have other keys of their own. */
    readonly keysReplaced: () => void;
  },
): Promise<Clients | undefined> {
  if (path === undefined) return undefined;
  return openClients({
    path,
    clock,
    // The key, once configured, never goes away: a bad key file leaves the old one.
    needsKeys: key.value() === undefined,
    tokensOptional: certificates !== undefined,
    certificateOf: certificates?.of,
    sharedSalt,
    changed(count) {
      log.info({ clients: count }, 'The clients file, or a key in it, was read again');
      keysReplaced();
    },
    ...whileUnusable(conditions, 'clients_file_unusable'),
    keyFailed(of, error) {
      if (error === undefined) conditions.clear('client_key_unusable', { of });
      else conditions.set('client_key_unusable', error.message, { of });
    },
  });
}
