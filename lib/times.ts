/**
 * Every wait, time limit and interval of the product, in ms. The composition root passes these times on with
 * the clock (lib/clock.ts), so that a test can advance the clock or use other times. No flag and no
 * environment variable changes a time. test/times.test.ts states how the times relate to each other.
 */
export const TIMES = Object.freeze({
  // Times of the secret (lib/session)
  /**
   * A secret is renewed this long after its exchange, at three quarters of the hour for which the service
   * keeps the secret (docs/protocol/inference.md 10). In the reference proxy, requests wait for this renewal.
   */
  secretRenew: 2_700_000,
  /** The most by which a renewal may come earlier: a random time separates proxies started together. */
  secretJitter: 120_000,
  /**
   * A secret is used for this long, and not in the last five minutes of its hour. The service looks up the
   * secret only when a request has arrived. A large upload takes minutes, and clocks drift apart.
   */
  secretUsable: 3_300_000,
  /** How long a request waits for a verified service: during its upload, after it, and before a retry. */
  epochWait: 30_000,
  /**
   * A second rejection of the service counts only after this pause, because an attacker on the network can
   * send one rejection. This is also the least time between attempts of a waiting request, and between two
   * tries of a denied secret.
   */
  confirmAfter: 6_000,
  /** How long a request waits for a renewal while the service is refused: it may have been repaired. */
  refusedWait: 5_000,
  /** How long a request waits for the next secret after the service denied its secret. */
  deniedWait: 30_000,
  /** The least pause between renewals that denials force. Anybody can forge a denial of a secret. */
  deniedPause: 10_000,
  /** The pause after the first failed renewal. Each further failure doubles the pause. */
  firstBackoff: 1_000,
  longestBackoff: 60_000,
  /** How long an API key is not tried again after the service refused the API key. */
  refusedKeyKept: 30_000,
  /** The longest timer of an alarm. The wall clock may jump, so the alarm reads it after each timer. */
  alarmLook: 30_000,

  // Times of the requests that the session sends
  /** Time limits for requesting an attestation document or a secret, and for requesting a manifest. */
  controlTimeout: 30_000,
  manifestTimeout: 30_000,
  /** Time limits for AMD's and Intel's collateral. If there is a stored copy, the second limit applies. */
  collateralTimeout: 20_000,
  collateralAgainTimeout: 5_000,
  /**
   * A host that sends 429 without Retry-After gets no identical request for this long, because AMD allows
   * about one request in this time.
   */
  usualPause: 10_000,
  /** The longest pause that a host can demand, because a hostile host may demand any pause. */
  longestPause: 60_000,

  // Times of connections to the service (lib/network)
  /** The time limit for opening a connection, including the TLS handshake. */
  connectTimeout: 10_000,
  /**
   * A connection that was opened in advance is replaced after it has been idle for this long. Services, and
   * the routers in front of services, keep idle connections for longer.
   */
  warmRenew: 45_000,
  /** For how long no connection is opened in advance after one of them has failed or was closed. */
  warmPause: 10_000,
  /** The interval between checks of the connections that are kept ready. */
  warmLook: 1_000,
  /**
   * A reused connection that fails within this time was closed while it was idle. If a connection fails
   * later, the service was alive and working on the request.
   */
  staleWithin: 2_000,
  /** The pause before a request is sent again after its connection was reset. */
  resetPause: 50,
  /** How long the service may still send after a complete response, so that its connection is reused. */
  upstreamLinger: 5_000,
  /** The idle time after which the operating system probes a connection to the service. */
  keepAliveProbe: 1_000,

  // Times of one request of an application (lib/gateway)
  /** The period over which the rate of an upload is measured repeatedly. */
  uploadSpan: 10_000,
  /** A client that reads nothing of its response for this long loses its connection. */
  readerWait: 600_000,
  /** How long the rest of an upload is still read after its response is complete. */
  discardWait: 1_000,
  /** How long the translation of a request may run before other requests get a turn. */
  turn: 5,

  // Defaults of the client library. The defaults of the program are in lib/config/flags.ts.
  firstByteWait: 600_000,
  streamIdleWait: 300_000,

  // Times of the listener (lib/listener)
  /** The time limit for the headers of a request, and for a TLS handshake. */
  headTimeout: 15_000,
  /** The interval at which Node checks for connections whose request headers are late. */
  headLook: 1_000,
  keepAliveTimeout: 75_000,
  /** The time for the error event of a response to reach the client when a shutdown ends the response. */
  farewell: 2_000,
  /** How long a connection without a request may take to send a request while the listener drains. */
  firstRequest: 1_000,
  /** How long closing a connection that does not speak HTTP may take. */
  strangerLinger: 1_000,
  /** The least interval between log lines about clients that confuse http and https. */
  wrongSchemePause: 60_000,
  certificateLook: 10_000,
  /** How long before the expiry of a certificate a notice about the expiry appears. */
  expirySoon: 14 * 86_400_000,
  /** The time limit for a message to the service manager, systemd. */
  managerTimeout: 10_000,

  // Times of the start and the end of the program
  /** The interval between checks of the state of the session. */
  standingLook: 10_000,
  /** The time for error events, receipts and log to finish after a second stop signal. */
  lastWork: 5_000,
  /** The process ends itself this long after the grace period for its last responses. */
  stopMargin: 15_000,
  /** How long the ended program stays alive to write a log that nobody reads. */
  unreadLog: 1_000,
  /** How long the start waits silently for the service, and how often a terminal then shows the wait. */
  startPatience: 3_000,
  startLook: 1_000,

  // Times of files
  /** A disk that has not responded within this time counts as failed. */
  diskPatience: 10_000,
  /** The interval between writes of batches of lines, such as receipts. */
  batchPause: 250,
  keyFileLook: 5_000,
  manifestFileLook: 5_000,
  clientsFileLook: 500,
  /** How long the command `clients` waits until a change of the clients file is in force. */
  clientsInForceWait: 10_000,
  clientsInForceLook: 100,

  // Times of limits
  /** How long a request waits for one of the places of --max-in-flight. */
  placeWait: 10_000,
  storeReply: 1_000,
  storeConnect: 2_000,
  storeFirstRetry: 100,
  storeLongestRetry: 2_000,
  /** How long a place in the limits store belongs to a replica that does not renew its lease. */
  storeLease: 60_000,
  /** The interval between checks of the limits store. Each check renews the leases. */
  storeLook: 20_000,
  /** A connection to the limits store that is silent for this long hangs in its handshake and is closed. */
  storeSilence: 30_000,
  /** The interval between writes of the counts into the workspace. */
  countsPause: 1_000,

  // Times for operators
  /** The time limit for a request to the admin listener. */
  adminTimeout: 10_000,
  /** Consecutive failures that all happen within this time say that the service cannot be reached. */
  failuresWithin: 60_000,
  /** How long after a failure load balancers should send requests again, to test the service. */
  servingAgain: 30_000,
  /** The interval between samples of the traffic. */
  trafficSample: 1_000,

  // Times of commands
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

/** The type of `TIMES` with any numbers as values, so that a test can use other times. */
export type Times = { readonly [Name in keyof typeof TIMES]: number };
