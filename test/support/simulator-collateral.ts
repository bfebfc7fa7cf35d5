/** Certificate collateral from a simulator's own vendor endpoints, as the proxy would fetch it from AMD and Intel. */
import type { CollateralSource, SignedCollateral } from '../../lib/attestation/verify.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import type { Simulator } from '../../simulator/simulator.ts';
import { type Answer, call } from './simulator.ts';

export function collateralFrom(simulator: Pick<Simulator, 'port' | 'caPem'>): CollateralSource {
  const get = async (path: string): Promise<Answer> => {
    const answer = await call(simulator, 'GET', path);
    if (answer.status === 200) return answer;
    throw new PrivatemodeError('collateral_unavailable', `${path} answered ${answer.status}`);
  };
  const der = async (path: string): Promise<Uint8Array> => new Uint8Array((await get(path)).body);
  const chainOf = ({ headers }: Answer, header: string): string =>
    decodeURIComponent(String(headers[header]));
  const signed = async (path: string, header: string): Promise<SignedCollateral> => {
    const answer = await get(path);
    return { body: answer.body.toString('utf8'), issuerChain: chainOf(answer, header) };
  };

  return {
    amdVcek: ({ product, chipId, bootloader, tee, snp, microcode }) =>
      der(
        `/vcek/v1/${product}/${chipId}?blSPL=${bootloader}&teeSPL=${tee}&snpSPL=${snp}&ucodeSPL=${microcode}`,
      ),
    amdCrl: async ({ product }) => ({ crl: await der(`/vcek/v1/${product}/crl`) }),
    intelTcbInfo: ({ fmspc, evaluationDataNumber }) =>
      signed(
        `/tdx/certification/v4/tcb?fmspc=${fmspc}${
          evaluationDataNumber === undefined ? '' : `&tcbEvaluationDataNumber=${evaluationDataNumber}`
        }`,
        'tcb-info-issuer-chain',
      ),
    intelQeIdentity: ({ evaluationDataNumber }) =>
      signed(
        `/tdx/certification/v4/qe/identity${
          evaluationDataNumber === undefined ? '' : `?tcbEvaluationDataNumber=${evaluationDataNumber}`
        }`,
        'sgx-enclave-identity-issuer-chain',
      ),
    async intelPckCrl() {
      const answer = await get('/sgx/certification/v4/pckcrl?ca=platform&encoding=der');
      return { crl: new Uint8Array(answer.body), issuerChain: chainOf(answer, 'sgx-pck-crl-issuer-chain') };
    },
    intelRootCrl: async ({ url }) => ({ crl: await der(new URL(url).pathname) }),
  };
}
