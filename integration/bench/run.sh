#!/usr/bin/env bash
# run.sh [ROUNDS]: the load of ../../../shared/bench on ottla and on Kafka 4.4.0 in turn, ROUNDS times (default 3), then start-up
# and memory of both; writes RESULTS.md beside this file. Needs what ../setup.sh installs. SCALE=0.1 is a smoke run.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
shared=$(cd "$root/../shared" && pwd)
clients=${OTTLA_CLIENTS:-${XDG_CACHE_HOME:-$HOME/.cache}/ottla-clients}
rounds=${1:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export KAFKA4_LIBS=$clients/kafka-4.4.0/libs NO_JAVA=${NO_JAVA:-1}
export LOADGEN=$work/loadgen

(cd "$root" && go build -o "$work/ottla" . && go build -o "$work/bench" ./integration/bench)
(cd "$shared/bench/loadgen" && go build -o "$LOADGEN" .)

# each start on fresh data; the line's last word is the pid
cat >"$work/ottla-up" <<P
rm -rf "$work/data-ottla"
nohup "$work/ottla" --data-dir "$work/data-ottla" --listen 127.0.0.1:19192 --http "" >"$work/ottla.log" 2>&1 &
echo \$!
P
cat >"$work/kafka-up" <<P
rm -rf "$work/data-kafka"
nohup "$shared/kafka/bin/kafka4-up" 19292 "$work/data-kafka" >"$work/kafka.log" 2>&1 &
echo \$!
P
printf 'ottla\t127.0.0.1:19192\tbash %s/ottla-up\nKafka 4.4.0\t127.0.0.1:19292\tbash %s/kafka-up\n' "$work" "$work" >"$work/peers.tsv"
bash "$shared/bench/interleave.sh" "$rounds" "$work/peers.tsv" | tee "$work/rows.tsv"

cp "$work/rows.tsv" "${TMPDIR:-/tmp}/ottla-bench-rows.tsv" # what a failure further on must not cost
{
  echo '# Figures'
  echo
  echo "Written by run.sh: $rounds interleaved rounds, both brokers in one run, clients on the same machine"
  echo "($(nproc) cores, $(awk '/^MemTotal/{printf "%d", $2/1048576}' /proc/meminfo) GiB, $(uname -sr), $(go version | cut -d' ' -f3))."
  echo 'On a machine this small throughput measures the load generator as much as the broker: compare cpu_s_per_GB first.'
  python3 "$shared/bench/summary.py" "$work/rows.tsv" cpu_s_per_GB MB_s p50_ms p99_ms 'p99.9_ms' rss_MiB
  echo
  echo '## Before any load'
  echo
  echo 'From process start to the answer to ApiVersions; resident memory idle and with idle connections, each of which has asked once.'
  echo 'The existing directory has 10 topics of six partitions, 10,000 records and a group.'
  echo
  "$work/bench" -header
  "$work/bench" ottla "$work/ottla" --data-dir '$DIR' --listen '127.0.0.1:$PORT' --http ''
  "$work/bench" 'Kafka 4.4.0' "$shared/kafka/bin/kafka4-up" '$PORT' '$DIR'
} >"$work/RESULTS.md"
mv "$work/RESULTS.md" "$here/RESULTS.md"
! grep -q 'FAIL' "$work/rows.tsv" || { echo 'run.sh: a case failed, see RESULTS.md' >&2; exit 1; }
