# One executable, the libraries it needs, and certificate authorities; nothing else, and no shell.
#   docker buildx build --platform linux/amd64,linux/arm64 --tag REGISTRY/privatemode-proxy:VERSION .
# A release pins the base by digest: --build-arg NODE_IMAGE=node:26.10.0-bookworm-slim@sha256:...
ARG NODE_IMAGE=node:26.10.0-bookworm-slim

# Builds on the machine's own architecture, for the one that is asked for.
FROM --platform=$BUILDPLATFORM ${NODE_IMAGE} AS build
ARG TARGETARCH
WORKDIR /build
COPY package.json package-lock.json ./
RUN npm ci
COPY LICENSE tsconfig.json ./
COPY bin ./bin
COPY lib ./lib
COPY scripts ./scripts
RUN npm run build:binary -- --arch "$TARGETARCH" --out out/privatemode-proxy
COPY simulator ./simulator
RUN node scripts/build.ts privatemode-simulator
RUN node --print 'require("node:tls").rootCertificates.join("\n")' > out/ca-certificates.crt

# Picks the libraries of that architecture.
FROM ${NODE_IMAGE} AS assemble
WORKDIR /assemble
COPY --from=build /build/out ./out
COPY scripts/image-root.sh ./
RUN sh image-root.sh out/privatemode-proxy out/ca-certificates.crt image

# The simulator, for who writes integrations (docs/simulator.md); nothing of it is in the image below.
#   docker buildx build --target simulator --tag REGISTRY/privatemode-simulator:VERSION .
FROM ${NODE_IMAGE} AS simulator
COPY --from=build /build/dist/simulator /simulator
COPY --from=assemble --chown=65532:0 /assemble/writable/workspace /sim
VOLUME /sim
USER 65532:0
EXPOSE 8443
ENTRYPOINT ["node", "/simulator/privatemode-simulator.js", "--host", "0.0.0.0", "--port", "8443", "--dir", "/sim"]

FROM scratch
LABEL org.opencontainers.image.title="privatemode-proxy"
LABEL org.opencontainers.image.description="A local encrypting gateway for LLM traffic"
LABEL org.opencontainers.image.licenses="MIT"
COPY --from=assemble /assemble/image/ /
# What is writable for the user below, and for any other that runs in group 0: /workspace, and /app/privatemode-proxy, where
# command lines written for the reference mount their workspace.
COPY --from=assemble --chown=65532:0 /assemble/writable/ /
WORKDIR /workspace
VOLUME /workspace
# Says that this is a container: listening on every interface is meant, and its network decides who reaches it.
ENV container=oci
USER 65532:0
EXPOSE 8080
STOPSIGNAL SIGTERM
# Asks http://…:8080/readyz; give a container with another --port or with TLS a --health-cmd of its own.
HEALTHCHECK --interval=30s --timeout=6s --start-period=60s --retries=3 CMD ["/bin/privatemode-proxy", "healthcheck"]
ENTRYPOINT ["/bin/privatemode-proxy"]
