FROM node:26-bookworm-slim
# Installed while the image is built: the box lets nothing in later.
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates git ripgrep && rm -rf /var/lib/apt/lists/*
RUN npm install --global @anthropic-ai/claude-code@2.1.331
USER node
