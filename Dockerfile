# The command with all features, CUDA kernels and nvJPEG, for machines with an NVIDIA card and without:
#
#   docker build -t warpfeed .
#   docker run --rm warpfeed                     # the demo on the CPU
#   docker run --rm --gpus all warpfeed          # on the GPU; needs the NVIDIA Container Toolkit
#   docker run --rm -v "$PWD/photos:/photos:ro" warpfeed run /photos --limit 1000

FROM rust:1-bookworm AS build
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends nasm python3-venv
WORKDIR /warpfeed
COPY . .
# The CUDA version of the oldest driver that it shall run on: --build-arg CUDA=12.8
ARG CUDA=13.0
RUN WARPFEED_DRIVER_CUDA=$CUDA scripts/setup && cargo build --release --locked --package warpfeed-cli --features full
RUN mkdir /out && cp target/release/warpfeed .cuda/lib/python3*/site-packages/nvidia/*/lib/libnvjpeg.so.* /out/

FROM debian:bookworm-slim
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/warpfeed /usr/local/bin/
COPY --from=build /out/libnvjpeg.so.* /usr/local/lib/
RUN ldconfig
# What of the driver is mounted: CUDA, and NVML for the experiments.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENTRYPOINT ["warpfeed"]
CMD ["demo"]
