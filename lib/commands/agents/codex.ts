/** How `run` starts Codex: with settings in `-c`. These settings win over Codex's config.toml. */
import { type Agent, literal, PROVIDER } from './agent.ts';

const CODEX_KEY = 'LOCAL_PROXY_KEY';

export const CODEX: Agent = {
  install: 'npm install -g @openai/codex',
  needs: ['POST /v1/responses', '--responses-api'],
  env: ({ key }) => ({ [CODEX_KEY]: key }),
  args: ({ url, model: { name: model, limits } }) => {
    const api = { name: PROVIDER, base_url: `${url}/v1`, wire_api: 'responses', env_key: CODEX_KEY };
    const provider = Object.entries(api).map(([member, value]) => `${member}=${literal(value)}`);
    const settings = {
      model: literal(model),
      ...(limits !== undefined && { model_context_window: `${limits.context}` }),
      model_provider: literal(PROVIDER),
      [`model_providers.${PROVIDER}`]: `{${provider.join(',')}}`,
      'analytics.enabled': 'false',
      check_for_update_on_startup: 'false',
      // Telemetry can be configured to send prompts.
      'otel.log_user_prompt': 'false',
      'otel.exporter': '"none"',
      'otel.trace_exporter': '"none"',
      'otel.metrics_exporter': '"none"',
    };
    return Object.entries(settings).flatMap(([setting, value]) => ['-c', `${setting}=${value}`]);
  },
  // In `-c NAME=VALUE` Codex reads NAME as names joined by dots. The names may be quoted, and white space
  // around them is ignored.
  refused:
    /^(?:--(?:oss|local-provider|remote)|(?:-c|--config)=?[\p{White_Space}"']*(?:model_providers?|profiles?|otel)[\p{White_Space}"']*)(?=[.=]|$)/u,
  goOn: 'resume --last',
};
