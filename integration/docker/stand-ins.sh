#!/usr/bin/env bash
# Makes stand-ins for the base images that ../../Dockerfile names, for a machine that can pull none: alpine from
# busybox-static, golang from this machine's Go and the modules of go.mod. They go to the daemon of DOCKER_HOST.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT

name() { sed -n "s/^FROM \($1:[^ ]*\).*/\1/p" "$root/Dockerfile"; }

base=$work/base
mkdir -p "$base"/{bin,dev,etc,home,proc,sbin,sys,tmp,usr/bin,usr/local/bin,usr/sbin,var}
chmod 1777 "$base/tmp"
cp "$(command -v busybox)" "$base/bin/busybox"
for a in $(busybox --list); do
  [ "$a" = busybox ] || ln -s busybox "$base/bin/$a"
done
echo 'root:x:0:0:root:/:/bin/sh' >"$base/etc/passwd"
echo 'root:x:0:' >"$base/etc/group"
tar -C "$base" -c . | docker import - "$(name alpine)" >/dev/null

goroot=$(go env GOROOT)
GOMODCACHE=$work/mod GOFLAGS=-modcacherw go -C "$root" mod download
{
  tar -C "$base" -c --format=gnu . | cat
} >"$work/go.tar"
tar -C "$goroot" --transform 's,^\./,usr/local/go/,' -rf "$work/go.tar" --exclude=./test --exclude=./.git .
tar -C "$work/mod" --transform 's,^\./,go/pkg/mod/,' -rf "$work/go.tar" .
docker import --change 'ENV PATH=/usr/local/go/bin:/bin:/usr/bin GOPATH=/go GOPROXY=off GOSUMDB=off GOFLAGS=-mod=mod GOTOOLCHAIN=local HOME=/tmp' \
  "$work/go.tar" "$(name golang)" >/dev/null
