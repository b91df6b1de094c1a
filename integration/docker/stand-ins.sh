#!/usr/bin/env bash
# Makes stand-ins for the base images that ../../Dockerfile names, for a machine that can pull none: alpine from
# busybox-static, golang from this machine's Go and the modules of go.mod. They go to the daemon of DOCKER_HOST.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
tree=$(mktemp -d)
trap 'chmod -R u+w "$tree"; rm -rf "$tree"' EXIT

# load IMAGE [CHANGE...]: what is in the tree becomes the image that the Dockerfile calls IMAGE
load() {
  tar -C "$tree" -c . | docker import "${@:2}" - "$(sed -n "s/^FROM \($1:[^ ]*\).*/\1/p" "$root/Dockerfile")" >/dev/null
}

mkdir -p "$tree"/{bin,dev,etc,home,proc,sbin,sys,tmp,usr/bin,usr/local/bin,usr/sbin,var}
chmod 755 "$tree"
chmod 1777 "$tree/tmp"
cp "$(command -v busybox)" "$tree/bin/busybox"
for applet in $("$tree/bin/busybox" --list); do
  [ "$applet" = busybox ] || ln -s busybox "$tree/bin/$applet"
done
echo 'root:x:0:0:root:/:/bin/sh' >"$tree/etc/passwd"
echo 'root:x:0:' >"$tree/etc/group"
load alpine

cp -a "$(go env GOROOT)" "$tree/usr/local/go"
rm -rf "$tree/usr/local/go"/{test,doc,.git}
GOMODCACHE=$tree/go/pkg/mod GOFLAGS=-modcacherw go -C "$root" mod download
load golang --change 'ENV PATH=/usr/local/go/bin:/bin:/usr/bin GOPATH=/go GOPROXY=off GOSUMDB=off GOFLAGS=-mod=mod GOTOOLCHAIN=local HOME=/tmp'
