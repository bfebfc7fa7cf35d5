/** Hardware roots to trust, by product line; PEM. Production roots are embedded in ./roots. */
export interface TrustRoots {
  readonly snp: Readonly<Partial<Record<'Milan' | 'Genoa', { readonly ark: string; readonly ask: string }>>>;
  readonly tdx: { readonly root: string } | undefined;
}
