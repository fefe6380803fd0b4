# The proxy, and with `prefold engine` the small engine to try it with.
#   docker build -t prefold .
#   docker run --rm -p 8000:8000 prefold serve --host 0.0.0.0 --backend http://ENGINE:8080

FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
# src/prefold holds links to these.
COPY proxy ./proxy
COPY prefix_index ./prefix_index
COPY backends ./backends
COPY compression ./compression
COPY measurement ./measurement
RUN python -m venv /prefold \
 && /prefold/bin/python -m pip install --no-cache-dir '.[events,redis,otel,masks,dashboard]' \
 # Of the charting library the page needs one file in 60 MB.
 && find /prefold/lib -path '*/site-packages/plotly/*' -type f ! -name plotly.min.js -delete

FROM python:3.12-slim
# What `prefold engine` needs of the system: llama.cpp is built with OpenMP.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libgomp1 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /prefold /prefold
# /cache holds tokenizers, and the small engine with its model; a volume keeps them between runs.
RUN groupadd --gid 10001 prefold \
 && useradd --uid 10001 --gid prefold --no-create-home --shell /usr/sbin/nologin prefold \
 && install -d -o prefold -g prefold /cache
ENV PATH=/prefold/bin:$PATH PYTHONUNBUFFERED=1 PREFOLD_CACHE=/cache HF_HOME=/cache/huggingface
USER 10001:10001
EXPOSE 8000 8001
# By the exec form, so that SIGTERM reaches it: it drains.
ENTRYPOINT ["prefold"]
CMD ["serve"]
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s CMD ["python", "-c", \
  "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health', timeout=2)"]
