/**
 * Every wait, time limit and interval of the product, in ms. The composition root passes them on as part of
 * the clock (lib/clock.ts), so that a test can advance the clock or use other times. No flag and no
 * environment variable changes a row. test/times.test.ts states how the rows relate to each other.
 */
export const TIMES = Object.freeze({
  // The secret (lib/session)
  /**
   * A secret is renewed this long after its exchange, at three quarters of the hour for which the service
   * keeps it (docs/protocol/inference.md 10). In the reference proxy, requests wait at that time.
   */
  secretRenew: 2_700_000,
  /** How much earlier, at random, a renewal may come: proxies started together must not renew together. */
  secretJitter: 120_000,
  /**
   * A secret is used for this long, and not in the last five minutes of its hour. The service looks the
   * secret up when a request has arrived, minutes later for a large upload, and clocks drift apart.
   */
  secretUsable: 3_300_000,
  /** How long a request waits for a verified service: during its upload, after it, and before a retry. */
  epochWait: 30_000,
  /**
   * A second rejection of the service counts only this long after the first, because anybody on the way can
   * send one. A waiting request begins an attempt no earlier than this after the last one began. It tries a
   * denied secret no earlier than this after the last try.
   */
  confirmAfter: 6_000,
  /** How long a request waits for a renewal while the service is refused, as it may have been repaired. */
  refusedWait: 5_000,
  /** How long a request whose secret the service denied waits for the next secret. */
  deniedWait: 30_000,
  /** The least pause between renewals that denials of a secret force, as a denial is not authenticated. */
  deniedPause: 10_000,
  /** The pause after the first failed renewal. Each further failure doubles the pause. */
  firstBackoff: 1_000,
  longestBackoff: 60_000,
  /** How long a key that the service refused is not tried again. */
  refusedKeyKept: 30_000,
  /** The longest timer of an alarm, which then reads the wall clock again, since that clock may jump. */
  alarmLook: 30_000,

  // Calls that the session makes
  /** Time limits for an attestation document or a secret exchange, and for a manifest. */
  controlTimeout: 30_000,
  manifestTimeout: 30_000,
  /** Time limits for collateral of AMD and Intel; the second if a stored copy would do as well. */
  collateralTimeout: 20_000,
  collateralAgainTimeout: 5_000,
  /**
   * A host that sends 429 without Retry-After gets no identical request for this long, because AMD allows
   * about one in that time.
   */
  usualPause: 10_000,
  /** The longest pause that a host can demand, because a hostile host may demand any. */
  longestPause: 60_000,

  // Connections to the service (lib/network)
  /** The time limit for opening a connection, including its TLS handshake. */
  connectTimeout: 10_000,
  /**
   * A connection that was opened ahead is replaced after it has been idle for this long. Services, and the
   * routers before them, keep idle connections for longer.
   */
  warmRenew: 45_000,
  /** After a connection could not be opened ahead, or was closed, none is opened ahead for this long. */
  warmPause: 10_000,
  /** The interval between looks at the connections that are kept ready. */
  warmLook: 1_000,
  /**
   * A reused connection that fails within this time was closed while it was idle. If the connection fails
   * later, the service was alive and working on the request.
   */
  staleWithin: 2_000,
  /** The pause before a request that met a reset connection is sent again. */
  resetPause: 50,
  /** How long the rest of a complete response may take, so that its connection can be used again. */
  upstreamLinger: 5_000,
  /** The idle time after which the operating system probes a connection to the service. */
  keepAliveProbe: 1_000,

  // One request of an application (lib/gateway)
  /** The span over which the rate of an upload is measured, again and again. */
  uploadSpan: 10_000,
  /** A client that reads nothing of its response for this long loses its connection. */
  readerWait: 600_000,
  /** How long the rest of an upload is still read once its response is complete. */
  discardWait: 1_000,
  /** How long a translation of a request runs before other requests get a turn. */
  turn: 5,

  // Defaults of the client library. The defaults of the program stand in lib/config/flags.ts.
  firstByteWait: 600_000,
  streamIdleWait: 300_000,

  // The listener (lib/listener)
  /** The time limit for the head of a request, and for a TLS handshake. */
  headTimeout: 15_000,
  /** The interval at which Node looks for connections whose request head is late. */
  headLook: 1_000,
  keepAliveTimeout: 75_000,
  /** When a shutdown ends a response, its error event has this long to reach the client. */
  farewell: 2_000,
  /** How long a connection without a request has to send one while the listener drains. */
  firstRequest: 1_000,
  /** How long closing a connection that does not speak HTTP may take. */
  strangerLinger: 1_000,
  /** The least pause between log lines about clients that use http in place of https, or the reverse. */
  wrongSchemePause: 60_000,
  certificateLook: 10_000,
  /** How long before the end of a certificate a notice about its expiry appears. */
  expirySoon: 14 * 86_400_000,
  /** The time limit for a message to the service manager, systemd. */
  managerTimeout: 10_000,

  // Start and end of the program
  /** The interval between looks at the state of the session. */
  standingLook: 10_000,
  /** How long error events, receipts and log have to finish after a second signal to stop. */
  lastWork: 5_000,
  /** The process ends itself this long after the grace period for its last responses. */
  stopMargin: 15_000,
  /** How long the ended program stays alive to write a log that nobody reads. */
  unreadLog: 1_000,
  /** How long the start waits for the service in silence, and how often a terminal shows the wait. */
  startPatience: 3_000,
  startLook: 1_000,

  // Files
  /** A disk that has not answered within this time counts as failed. */
  diskPatience: 10_000,
  /** The interval between batches of lines that are written, such as receipts. */
  batchPause: 250,
  keyFileLook: 5_000,
  manifestFileLook: 5_000,
  clientsFileLook: 500,
  /** How long the command `clients` waits until a change of the clients file is in force. */
  clientsInForceWait: 10_000,
  clientsInForceLook: 100,

  // Limits
  /** How long a request waits for one of the places of --max-in-flight. */
  placeWait: 10_000,
  storeReply: 1_000,
  storeConnect: 2_000,
  storeFirstRetry: 100,
  storeLongestRetry: 2_000,
  /** How long a place in the store of limits belongs to a replica that does not renew its lease. */
  storeLease: 60_000,
  /** The interval between looks at the store, each of which renews the leases. */
  storeLook: 20_000,
  /** A connection to the store that is silent for this long hangs in its handshake and is given up. */
  storeSilence: 30_000,
  /** The interval between writes of the counts into the workspace. */
  countsPause: 1_000,

  // Operators
  /** The time limit for a request to the admin listener. */
  adminTimeout: 10_000,
  /** Failures in a row, all within this span, say that the service cannot be reached. */
  failuresWithin: 60_000,
  /** How long after a failure load balancers should send requests again, to try the service. */
  servingAgain: 30_000,
  /** The interval between samples of the traffic. */
  trafficSample: 1_000,

  // Commands
  statusInterval: 1_000,
  statusTimeout: 5_000,
  healthcheckTimeout: 5_000,
  /** Time limits for the models of the proxy that `run` started, and of the service behind that proxy. */
  ownModelsTimeout: 5_000,
  serviceModelsTimeout: 30_000,
  /** The time limit for asking an agent for its version. */
  agentTimeout: 20_000,
  relayKeepAlive: 75_000,
});

/** The same rows with any values, so that a test can use other times. */
export type Times = { readonly [Name in keyof typeof TIMES]: number };
