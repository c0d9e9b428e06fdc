# nats-server with our configuration, not as root.
ARG NATS_BASE=nats:2.15-alpine
FROM ${NATS_BASE}
ARG NATS_BASE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="admittance-nats" \
      org.opencontainers.image.description="nats-server with the configuration of Admittance" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="${NATS_BASE}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# Of one server; a cluster has other names.
ENV NATS_NAME=admittance
COPY deploy/nats.conf deploy/cluster.conf /etc/admittance/
COPY deploy/nats.sh /usr/local/bin/admittance-nats
RUN mkdir -p /data/nats && chown -R 65532:65532 /data
USER 65532:65532
ENTRYPOINT ["admittance-nats"]
CMD ["-c", "/etc/admittance/nats.conf"]
