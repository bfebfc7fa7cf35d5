FROM debian:bookworm-slim
RUN apt-get update && apt-get install --yes --no-install-recommends nftables && rm -rf /var/lib/apt/lists/*
COPY box.nft /box.nft
# Whoever starts in this namespace finds the rules in force: the health check waits for them.
CMD ["/bin/sh", "-c", "nft --file /box.nft && exec sleep infinity"]
