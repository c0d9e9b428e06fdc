# nats-server with our configuration, not as root.
ARG NATS_BASE=nats:2.15-alpine
FROM ${NATS_BASE}
COPY deploy/nats.conf /etc/admittance/nats.conf
RUN mkdir -p /data/nats && chown -R 65532:65532 /data
USER 65532:65532
ENTRYPOINT ["nats-server"]
CMD ["-c", "/etc/admittance/nats.conf"]
