# Oasgate on NVIDIA GPUs. One image: a gateway by default, a worker with the command `worker ...`.
#
#   docker build -f docs/deploy/cuda.Dockerfile -t oasgate:cuda .
#
# The extra `gpu` of pyproject.toml: the official vLLM, and PyTorch's CUDA build, which brings CUDA's libraries itself.
# The host gives the driver (NVIDIA's container runtime). For another CUDA than PyPI's wheels are built for, give
# PyTorch's wheel index of it with --build-arg UV_EXTRA_INDEX_URL=...
#
# Packages are one layer, our own code one. There is no HEALTHCHECK, because a worker has no port: compose.yaml and the
# chart check gateways.
ARG PYTHON=3.11-slim-bookworm

FROM python:${PYTHON} AS packages
ARG UV_EXTRA_INDEX_URL=""
ARG UV=0.13.9
ENV UV_CACHE_DIR=/uv-cache UV_LINK_MODE=copy UV_INDEX_STRATEGY=unsafe-best-match
RUN pip install --no-cache-dir --disable-pip-version-check "uv==${UV}" && uv venv --python "$(command -v python)" /venv
COPY pyproject.toml requirements/overrides.txt /project/
WORKDIR /project
RUN --mount=type=cache,target=/uv-cache \
    uv pip install --python /venv/bin/python --override overrides.txt --extra gpu -r pyproject.toml \
    && { python -m compileall -q -j 0 /venv/lib || [ $? -eq 1 ]; }

FROM python:${PYTHON}
# Triton compiles the part of its kernels that runs on the host when they are first used
# hadolint ignore=DL3008  # Debian keeps one version of a package, the one with its security fixes
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --system --gid 10001 oasgate \
    && useradd --system --uid 10001 --gid oasgate --home-dir /var/lib/oasgate --create-home oasgate
COPY --from=packages /venv /venv
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
    SIE_LOG_FORMAT=json \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
EXPOSE 8000
ENTRYPOINT ["litestar"]
CMD ["run", "--host", "0.0.0.0", "--port", "8000"]
