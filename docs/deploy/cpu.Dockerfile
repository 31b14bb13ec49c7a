# Oasgate on the CPU. One image: a gateway by default, a worker with the command `worker ...`.
#
#   docker build -f docs/deploy/cpu.Dockerfile -t oasgate:cpu .
#
# The packages are those of requirements/cpu.txt, by their hashes, without the tools of development. The lock names
# PyTorch's CPU build: where pip finds only the CUDA build, give PyTorch's CPU wheel index with
# --build-arg PIP_EXTRA_INDEX_URL=...
#
# What changes seldom comes first: PyTorch and vLLM are one layer, the other packages one, our own code one.
# There is no HEALTHCHECK, because a worker has no port: compose.yaml and the chart check gateways.
ARG PYTHON=3.11-slim-bookworm

FROM python:${PYTHON} AS lock
WORKDIR /lock
COPY docs/deploy/runtime_lock.py pyproject.toml requirements/cpu.txt ./
RUN python runtime_lock.py pyproject.toml cpu.txt

FROM python:${PYTHON} AS base
ARG PIP_EXTRA_INDEX_URL=""
ENV PIP_CACHE_DIR=/pip-cache PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_COMPILE=1
RUN python -m venv --without-pip /venv

FROM base AS engines
COPY --from=lock /lock/engines.txt /lock/
# compileall ends with 1 when a package brings a file of another Python
# hadolint ignore=DL3042  # the cache is a mount, so no layer has it
RUN --mount=type=cache,target=/pip-cache \
    pip --python /venv/bin/python install --no-deps --require-hashes -r /lock/engines.txt \
    && { python -m compileall -q -j 0 /venv/lib || [ $? -eq 1 ]; }

FROM base AS rest
COPY --from=lock /lock/rest.txt /lock/
# hadolint ignore=DL3042  # the cache is a mount, so no layer has it
RUN --mount=type=cache,target=/pip-cache \
    pip --python /venv/bin/python install --no-deps --require-hashes --prefix /rest -r /lock/rest.txt \
    && { python -m compileall -q -j 0 -s /rest -p /venv /rest/lib || [ $? -eq 1 ]; }

FROM python:${PYTHON}
# hadolint ignore=DL3008  # Debian keeps one version of a package, the one with its security fixes
RUN apt-get update \
    && apt-get install -y --no-install-recommends libnuma1 \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --system --gid 10001 oasgate \
    && useradd --system --uid 10001 --gid oasgate --home-dir /var/lib/oasgate --create-home oasgate
COPY --from=engines /venv /venv
COPY --from=rest /rest /venv
WORKDIR /srv/oasgate
COPY app.py LICENSE ./
COPY engines engines
COPY handlers handlers
COPY generated generated
RUN python -m compileall -q .
# weights, compiled kernels and prepared models: a volume, when they are to outlive the container
ENV PATH=/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/var/lib/oasgate \
    SIE_CACHE_DIR=/var/lib/oasgate/prepared \
    SIE_LOG_FORMAT=json
USER 10001:10001
EXPOSE 8000
ENTRYPOINT ["litestar"]
CMD ["run", "--host", "0.0.0.0", "--port", "8000"]
