#!/usr/bin/env bash
# Build the image and run gpgc demo in it as its own user: deploy/build.sh [TAG] [options of the build]
# With buildah where it is installed (no daemon; ISOLATION=chroot by default), else with docker.
#   BASE=…                         another base image (Debian with python3 >= 3.11 and venv)
#   SBOM=image.cdx.json            write the list of what the image holds (/opt/gpgc/sbom.cdx.json in it)
#   --secret id=pip,src=pip.conf   where packages come from another index
set -euo pipefail
cd "$(dirname "$0")/.."
version="$(sed -n 's/^__version__ = "\(.*\)"/\1/p' gpgc_dask/__init__.py)"
tag="gpgc_dask:$version"
if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then tag="$1"; shift; fi
options=(--file deploy/Dockerfile --tag "$tag" ${BASE:+--build-arg "BASE=$BASE"} "$@")

if command -v buildah >/dev/null; then
  isolation="${ISOLATION:-chroot}"
  buildah build --isolation "$isolation" "${options[@]}" .
  container="$(buildah from --pull-never "$tag")"
  trap 'buildah rm "$container" >/dev/null' EXIT
  run() { buildah run --isolation "$isolation" "$container" -- "$@"; }
else
  docker build "${options[@]}" .
  run() { docker run --rm --read-only --tmpfs /tmp "$tag" "$@"; }
fi

echo "== as whom"
run sh -c 'id && [ "$(id -u)" = 10001 ] && getent passwd 10001'
echo "== the programs are there"
run dask scheduler --version
run dask worker --version
echo "== gpgc demo"
run gpgc demo --out /tmp/demo
if [ -n "${SBOM:-}" ]; then
  echo "== what it holds: $SBOM"
  run cat /opt/gpgc/sbom.cdx.json > "$SBOM"
fi
echo "built $tag"
