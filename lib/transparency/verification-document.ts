/** What `GET /verification` says: what protects requests now, and how that was established. Its schema: docs/verification.schema.json. */

/** A verdict with all its checks, as `privatemode-proxy verify --json` prints it. */
export interface VerdictReport {
  readonly outcome: string;
  readonly tee: 'snp' | 'tdx' | null;
  readonly manifestSha256: string | null;
  /** RFC 3339 in UTC: the moment that all dates were compared with. */
  readonly at: string;
  /** `custom`: the roots are not those of AMD and Intel, so nothing is said about real hardware. */
  readonly roots: 'vendor' | 'custom';
  readonly checks: readonly {
    readonly id: string;
    readonly outcome: string;
    readonly expected: string;
    readonly found: string;
    readonly source: string;
    readonly age?: number | undefined;
    readonly code?: string | undefined;
  }[];
  readonly failure: {
    readonly id: string | null;
    readonly code: string;
    readonly expected: string | null;
    readonly found: string;
    readonly source: string | null;
  } | null;
}

/** One difference between two manifests. `path`: JSON pointer (RFC 6901); a value that is not there is undefined. */
export interface ManifestChange {
  readonly path: string;
  readonly concerns: 'policies' | 'measurements' | 'tcb' | 'other';
  readonly before?: unknown;
  readonly after?: unknown;
}

/** A manifest that was enforced, with what changed against the one before it in the log. */
export interface EnforcedManifest {
  /** RFC 3339, as it stands in the log. */
  readonly since: string;
  /** Null where the file cannot be read. */
  readonly sha256: string | null;
  /** Name of the file below `<workspace>/manifests`. */
  readonly file: string;
  /** Undefined for the first one, and where one of the two cannot be read. */
  readonly changes?: readonly ManifestChange[] | undefined;
}

/**
 * One link of the chain of trust, from the hardware to the secret: each is vouched for by the one before it. `outcome`: `pass` where every
 * check that applies held, `fail` where one did not, `unknown` where it did not come to that.
 */
export interface ChainLink {
  readonly id: 'hardware' | 'manifest' | 'coordinator' | 'mesh' | 'secret';
  /** For a person: what the link is, and what its checks establish. */
  readonly title: string;
  readonly meaning: string;
  readonly outcome: 'pass' | 'fail' | 'unknown';
  /** Its checks, which stand in the verdict under the same ids. */
  readonly checks: readonly { readonly id: string; readonly title: string }[];
}

export interface VerificationDocument {
  readonly version: string;
  readonly protocol: string;
  /** When the document was made, RFC 3339 in UTC. */
  readonly now: string;
  readonly verified: boolean;
  readonly epoch: {
    readonly secretId: string;
    readonly manifestSha256: string;
    readonly verdictSha256: string;
    readonly attestedAt: string;
    readonly renewAt: string;
    readonly expiresAt: string;
  } | null;
  /** The last one, accepted or not; null before the first. */
  readonly verdict: VerdictReport | null;
  /** In the order of trust; empty before the first verdict. */
  readonly chain: readonly ChainLink[];
  /** Newest first. */
  readonly manifests: readonly EnforcedManifest[];
}
