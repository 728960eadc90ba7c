# Shoal in a container, from this folder: docker build -t shoal .
# With GPUs: docker build -t shoal:cuda --build-arg BASE=nvidia/cuda:13.0.1-cudnn-devel-ubuntu24.04 --build-arg CUDA=1 .
ARG BASE=debian:bookworm
FROM ${BASE} AS build
ARG CUDA=0
WORKDIR /src
COPY scripts/install_packages.sh scripts/
RUN scripts/install_packages.sh && apt-get install -y --no-install-recommends dpkg-dev && rm -rf /var/lib/apt/lists/*
COPY . .
RUN make -j"$(nproc)" CUDA=${CUDA} CUDA_ARCHS=all deb

FROM ${BASE}
COPY --from=build /src/build/release/shoal_*.deb /tmp/
RUN apt-get update && \
    apt-get install -y --no-install-recommends openssh-client /tmp/shoal_*.deb && \
    rm -rf /tmp/shoal_*.deb /var/lib/apt/lists/*
COPY scripts/container /usr/local/bin/
# Solver, net and data are mounted here, and snapshots come here.
WORKDIR /work
EXPOSE 29600 8080
ENTRYPOINT ["container"]
CMD ["--help"]
