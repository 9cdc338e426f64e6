# The service as an image: its arguments choose the job; the chart starts scripts/provision.py from it, too.
# checkov:skip=CKV_DOCKER_2:a job that ends by itself has no health to ask for; Kubernetes ignores HEALTHCHECK
ARG PYTHON=docker.io/library/python:3.13-slim-trixie
ARG DIGEST=

FROM ${PYTHON}${DIGEST:+@$DIGEST} AS base

FROM base AS build
COPY locks/service.txt /build/
RUN python3 -m venv --without-pip /opt/venv \
 && python3 -m pip --python /opt/venv/bin/python install --quiet --disable-pip-version-check --no-cache-dir \
    --no-compile --only-binary :all: --require-hashes -r /build/service.txt
COPY scripts/trim_image.py /build/
COPY collectors /app/collectors
COPY common /app/common
COPY fleetgauge /app/fleetgauge
COPY scripts/run_collector.py scripts/provision.py scripts/datadog_documents.py scripts/marked.py /app/scripts/
# Compiled once and never checked again: nothing in the image changes. Readable for all, however it was
# checked out. The directory is where state can be mounted.
RUN python3 /build/trim_image.py /opt/venv/lib/python3.*/site-packages /app \
 && /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/venv/lib /app \
 && chmod -R a+rX /opt/venv /app \
 && mkdir /state

FROM base
ARG PYTHON
ARG DIGEST
ARG VERSION=
ARG REVISION=
ARG SOURCE=
LABEL org.opencontainers.image.title="fleetgauge" \
      org.opencontainers.image.description="Reads what a machine-learning fleet knows about itself and puts it on Datadog" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.base.name="${PYTHON}" \
      org.opencontainers.image.base.digest="${DIGEST}"
COPY --from=build /opt/venv /opt/venv
COPY --from=build /app /app
COPY --from=build --chown=10001:10001 /state /state
USER 10001:10001
ENTRYPOINT ["/opt/venv/bin/python", "/app/scripts/run_collector.py"]
CMD ["--help"]
