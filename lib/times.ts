/**
 * Every wait, time limit and interval of the product, in ms, with its meaning. The composition root hands
 * them in as part of the clock (lib/clock.ts), so that a test can advance the clock or hand in other times.
 * No flag and no environment variable changes a row; test/times.test.ts states how the rows relate to each
 * other.
 */
export const TIMES = Object.freeze({
  // The secret (lib/session)
  /**
   * A secret is renewed this long after its exchange: after three quarters of the hour for which the service
   * keeps it (docs/protocol/inference.md 10), where the reference makes requests wait.
   */
  secretRenew: 2_700_000,
  /** Up to so much earlier, at random: proxies that were started together must not renew together. */
  secretJitter: 120_000,
  /**
   * A secret is used for this long. The last five minutes stay unused, because the service looks the secret
   * up when a request has arrived, which for a large upload is minutes later, and because clocks drift apart.
   */
  secretUsable: 3_300_000,
  /** A request waits this long for a verified service: during its upload, after it, and before a retry. */
  epochWait: 30_000,
  /**
   * A second rejection counts only this long after the first, since anybody on the way can send one. Requests
   * that wait begin an attempt so long after the last one began, and try a denied secret so long after the
   * last try.
   */
  confirmAfter: 6_000,
  /** A request waits this long for a renewal while the service is refused: it may have been repaired. */
  refusedWait: 5_000,
  /** A request whose secret was denied waits this long for the next secret. */
  deniedWait: 30_000,
  /** Between two renewals that denials force. A denial is not authenticated. */
  deniedPause: 10_000,
  /** The pause after the first failed renewal; it doubles with each further one. */
  firstBackoff: 1_000,
  longestBackoff: 60_000,
  /** A key that the service refused is not tried again for this long. */
  refusedKeyKept: 30_000,
  /** The longest timer of an alarm: then it reads the wall clock again, which may have jumped. */
  alarmLook: 30_000,

  // Calls that the session makes
  /** For an attestation document, a secret exchange, and a manifest. */
  controlTimeout: 30_000,
  manifestTimeout: 30_000,
  /** For collateral of AMD and Intel, and for a second try whose result only replaces what is there. */
  collateralTimeout: 20_000,
  collateralAgainTimeout: 5_000,
  /**
   * A host that sends 429 without Retry-After gets no call for this long: AMD allows about one identical
   * request in that time.
   */
  usualPause: 10_000,
  /** Nor for longer than this, because a hostile host may ask for any time. */
  longestPause: 60_000,

  // Connections to the service (lib/network)
  /** To connect, including TLS. */
  connectTimeout: 10_000,
  /**
   * A connection that was opened ahead is replaced after idling for this long: services, and the routers
   * before them, keep idle connections for longer.
   */
  warmRenew: 45_000,
  /** No connection is opened ahead for this long after one could not be opened, or was closed. */
  warmPause: 10_000,
  /** Between two looks at the connections that are kept ready. */
  warmLook: 1_000,
  /**
   * A reused connection that fails so soon was closed while it was idle. If it fails later, the service was
   * alive and working on the request.
   */
  staleWithin: 2_000,
  /** A request that met a reset connection is sent again after this pause. */
  resetPause: 50,
  /** The rest of a complete response has this long, so that its connection can be used again. */
  upstreamLinger: 5_000,
  /** The system probes idle connections to the service after this time. */
  keepAliveProbe: 1_000,

  // One request of an application (lib/gateway)
  /** The rate of an upload is measured over this time, again and again. */
  uploadSpan: 10_000,
  /** A client that takes nothing of its response for this long loses it. */
  readerWait: 600_000,
  /** The rest of an upload is read for this long once its response is complete. */
  discardWait: 1_000,
  /** A long translation runs this long before other work gets its turn. */
  turn: 5,

  // Defaults of the client library; those of the program stand in lib/config/flags.ts
  firstByteWait: 600_000,
  streamIdleWait: 300_000,

  // The listener (lib/listener)
  /** For the head of a request, and for a TLS handshake. */
  headTimeout: 15_000,
  /** Between two looks of Node at the connections whose head is late. */
  headLook: 1_000,
  keepAliveTimeout: 75_000,
  /** The error event of a response that a shutdown ends has this long to reach its client. */
  farewell: 2_000,
  /** A connection without a request has this long for one while the listener drains. */
  firstRequest: 1_000,
  /** The end of a connection that does not speak HTTP may take this long. */
  strangerLinger: 1_000,
  /** Between two log lines about clients that speak the wrong scheme. */
  wrongSchemePause: 60_000,
  certificateLook: 10_000,
  /** The expiry of a certificate becomes a condition this long before it. */
  expirySoon: 14 * 86_400_000,
  /** For a message to the service manager. */
  managerTimeout: 10_000,

  // Start and end of the program
  /** Between two looks at the state of the session. */
  standingLook: 10_000,
  /** Error events, receipts and log have this long after a second signal. */
  lastWork: 5_000,
  /** The process ends by itself this long after the grace of its responses. */
  stopMargin: 15_000,
  /** The end of a log that nobody reads has this long once the program has ended. */
  unreadLog: 1_000,
  /** Until the log says that it waits for the service, and between two such lines on a terminal. */
  startPatience: 3_000,
  startLook: 1_000,

  // Files
  /** A disk that has not answered within this time counts as failed. */
  diskPatience: 10_000,
  /** Between two batches of lines that are written, such as receipts. */
  batchPause: 250,
  keyFileLook: 5_000,
  manifestFileLook: 5_000,
  clientsFileLook: 500,
  /** Until a change of the clients file is in force, for `clients`. */
  clientsInForceWait: 10_000,
  clientsInForceLook: 100,

  // Limits
  /** A request waits this long for one of the places of --max-in-flight. */
  placeWait: 10_000,
  storeReply: 1_000,
  storeConnect: 2_000,
  storeFirstRetry: 100,
  storeLongestRetry: 2_000,
  /** How long a place in the store belongs to its replica, unless that renews it. */
  storeLease: 60_000,
  /** Between two looks at the store, each of which renews the leases. */
  storeLook: 20_000,
  /** A connection on which nothing goes to and fro for this long hangs in its handshake, and is given up. */
  storeSilence: 30_000,
  /** Between two writings of the counts in the workspace. */
  countsPause: 1_000,

  // Operators
  /** For a request of the admin listener. */
  adminTimeout: 10_000,
  /** So many failures in a row, no further apart than this, say that the service cannot be reached. */
  failuresWithin: 60_000,
  /** After the last of them, load balancers should send requests again, to find out. */
  servingAgain: 30_000,
  /** Between two samples of the traffic. */
  trafficSample: 1_000,

  // Commands
  statusInterval: 1_000,
  statusTimeout: 5_000,
  healthcheckTimeout: 5_000,
  /** For the models of the proxy that `run` has started, and of a service behind it. */
  ownModelsTimeout: 5_000,
  serviceModelsTimeout: 30_000,
  /** For the version of an agent. */
  agentTimeout: 20_000,
  relayKeepAlive: 75_000,
});

/** The rows with other values: a test hands them in. */
export type Times = { readonly [Name in keyof typeof TIMES]: number };
