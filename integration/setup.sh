#!/usr/bin/env bash
# Installs what `go test -tags clients ./integration/...` drives: kcat, the Python clients, kafkajs, and the clients
# and tools of Kafka 4.4.0, 3.9.1 and 0.8.2.2. For a Debian 12 machine that has Go, as root. Run again it only looks whether
# all is there. OTTLA_CLIENTS names the folder that takes it (default: ottla-clients in the user's cache folder).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
clients=${OTTLA_CLIENTS:-${XDG_CACHE_HOME:-$HOME/.cache}/ottla-clients}
mkdir -p "$clients"

say() { printf 'setup: %s\n' "$*"; }

# again CMD...: a registry that does not answer once often does a moment later
again() {
  "$@" && return
  say "failed, once more: $*"
  sleep 5
  "$@"
}

# fresh PART FILE...: whether PART was built from these very files; built PART FILE... says that it is now
sum() { cat "${@:2}" "$here/setup.sh" | sha256sum | cut -d' ' -f1; }
fresh() { [ "$(cat "$clients/$1/.built" 2>/dev/null)" = "$(sum "$@")" ]; }
built() { sum "$@" >"$clients/$1/.built"; }

debian() {
  local wanted=(kcat busybox-static docker.io docker-compose iptables) missing=() p
  command -v python3 >/dev/null && python3 -c 'import ensurepip, venv' 2>/dev/null || wanted+=(python3 python3-venv)
  command -v node >/dev/null || wanted+=(nodejs)
  command -v npm >/dev/null || wanted+=(npm)
  command -v javac >/dev/null || wanted+=(openjdk-17-jdk-headless)
  command -v mvn >/dev/null || wanted+=(maven)
  command -v gcc >/dev/null || wanted+=(gcc libc6-dev) # go test -race
  for p in "${wanted[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "apt-get install ${missing[*]}"
  # a service that a package would start is not wanted here, and could not start in a container
  printf '#!/bin/sh\nexit 101\n' >"$clients/no-services" && chmod +x "$clients/no-services"
  local rc=0
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    cp "$clients/no-services" /usr/sbin/policy-rc.d
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  fi
  again apt-get -qq update >"$clients/apt.log" 2>&1 || rc=$?
  [ $rc -ne 0 ] || DEBIAN_FRONTEND=noninteractive again apt-get -qq install -y --no-install-recommends "${missing[@]}" >>"$clients/apt.log" 2>&1 || rc=$?
  [ $rc -eq 0 ] || { tail -n 20 "$clients/apt.log" >&2; return $rc; }
}

python() {
  fresh python "$here/clients/requirements.txt" && return
  say "Python clients"
  rm -rf "$clients/python"
  python3 -m venv "$clients/python"
  again "$clients/python/bin/pip" -q install --disable-pip-version-check -r "$here/clients/requirements.txt"
  built python "$here/clients/requirements.txt"
}

node_modules() {
  fresh node "$here/clients/package.json" && return
  say "kafkajs"
  rm -rf "$clients/node" && mkdir -p "$clients/node"
  cp "$here/clients/package.json" "$clients/node/"
  (cd "$clients/node" && again npm install --ignore-scripts --no-package-lock --no-audit --no-fund --loglevel=error >/dev/null)
  built node "$here/clients/package.json"
}

java_release() { # java_release VERSION FOLDER: its jars, and the programs in the folder compiled against them
  local part=kafka-$1 pom=$2/pom.xml sources=("$2"/*.java)
  if ! fresh "$part" "$pom"; then
    say "Kafka $1"
    rm -rf "${clients:?}/$part" && mkdir -p "$clients/$part"
    again mvn -q -B -f "$pom" -Dkafka.version="$1" dependency:copy-dependencies -DoutputDirectory="$clients/$part/libs" >"$clients/mvn.log" 2>&1 ||
      { cat "$clients/mvn.log" >&2; return 1; }
    built "$part" "$pom"
  fi
  if ! fresh "$part/classes" "${sources[@]}"; then
    rm -rf "$clients/$part/classes" && mkdir -p "$clients/$part/classes"
    javac -nowarn -XDsuppressNotes -d "$clients/$part/classes" -cp "$clients/$part/libs/*" "${sources[@]}"
    built "$part/classes" "${sources[@]}"
  fi
}

debian
python
node_modules
java_release 4.4.0 "$here/java"
java_release 3.9.1 "$here/java"
java_release 0.8.2.2 "$here/java/old"
say "all there, in $clients"
