#!/usr/bin/env bash
# run.sh [ROUNDS]: the load of ../../../shared/bench on ottla, on Kafka 4.4.0 and on others in turn, and beside them what no broker can
# avoid (../../../shared/bench/limit), ROUNDS times (default 3); then start-up and memory. Writes RESULTS.md beside this file.
# Needs what ../setup.sh installs. The others: kfake (franz-go's fake cluster, from ./kfake), and klite where KLITE names its binary
# (go build ./cmd/klite in a clone of github.com/klaudworks/klite).
# Env: SCALE (0.05 is a smoke run), CASES (as bench.sh takes it), STARTS (of each kind, default 5), OUT (another file than RESULTS.md).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
shared=$(cd "$root/../shared" && pwd)
clients=${OTTLA_CLIENTS:-${XDG_CACHE_HOME:-$HOME/.cache}/ottla-clients}
rounds=${1:-3}
out=${OUT:-$here/RESULTS.md}
starts=(-rounds "${STARTS:-5}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export KAFKA4_LIBS=$clients/kafka-4.4.0/libs NO_JAVA=${NO_JAVA:-1} SCALE=${SCALE:-1}
export LOADGEN=$work/loadgen

(cd "$root" && go build -o "$work/ottla" . && go build -o "$work/bench" ./integration/bench)
(cd "$here/kfake" && go build -o "$work/kfake" .)
(cd "$shared/bench/loadgen" && go build -o "$LOADGEN" .)
(cd "$shared/bench/limit" && go build -o "$work/limit" .)

# peer NAME COMMAND PORT: a line for interleave.sh; each start is on fresh data, and prints the pid last.
peer() {
  local dir=$work/data-$3
  cat >"$work/up-$3" <<P
rm -rf "$dir"
nohup $2 >"$work/log-$3" 2>&1 &
echo \$!
P
  printf '%s\t127.0.0.1:%s\tbash %s/up-%s\n' "$1" "$3" "$work" "$3" >>"$work/peers.tsv"
}
peer ottla "'$work/ottla' --data-dir '$work/data-19192' --listen 127.0.0.1:19192 --http ''" 19192
peer 'Kafka 4.4.0' "'$shared/kafka/bin/kafka4-up' 19292 '$work/data-19292'" 19292
peer kfake "'$work/kfake' 19392 '$work/data-19392'" 19392
if [ -n "${KLITE:-}" ]; then
  peer klite "'$KLITE' --data-dir '$work/data-19492' --listen 127.0.0.1:19492 --log-level warn" 19492
else
  echo 'run.sh: KLITE names no binary, so klite is not measured' >&2
fi

# limit OPERATION UNIT NAME: one row. What serves prints its CPU seconds a GiB, what asks its MiB a second.
limit() {
  local bytes speed cpu
  bytes=$(awk -v s="$SCALE" -v u="$2" 'BEGIN{printf "%d", int(307200000*s/u+1)*u}')
  speed=$("$work/limit" "$1" 127.0.0.1:19592 "$bytes" "$2" | awk '{print $2}')
  served=$((served + 1))
  for _ in $(seq 100); do
    cpu=$(awk -v n="$served" 'NR==n{print $2}' "$work/limit.out")
    [ -z "$cpu" ] || break
    sleep 0.02
  done
  awk -v n="$3" -v s="$speed" -v c="$cpu" -v b="$bytes" \
    'BEGIN{printf "limit\t%s\tlimit\t\t%.2f\t\t%.1f\t\t\t\t\t%.2f\t%.2f\t\n", n, b/s/1048576, s*1.048576, c*b/1073741824, c/1.073741824}'
}

# limits: the floors. 1 MiB is what a producer to one partition sends at once and what a consumer gets, 4 MiB what goes to six.
limits() {
  "$work/limit" serve 127.0.0.1:19592 "$work/limit.file" >"$work/limit.out" &
  local pid=$! served=0
  for _ in $(seq 100); do (exec 3<>/dev/tcp/127.0.0.1/19592) 2>/dev/null && break; sleep 0.05; done
  limit produce 1048576 limit.produce.1MiB
  limit produce 4194304 limit.produce.4MiB
  limit fetch 1048576 limit.fetch.1MiB
  kill "$pid"
  wait "$pid" 2>/dev/null || true
  rm -f "$work/limit.file"
}

# Whoever writes first would pay for memory that the machine has not touched yet.
head -c "$(awk -v s="$SCALE" 'BEGIN{printf "%d", 8e9*s}')" /dev/zero >"$work/touched"
rm "$work/touched"

for _ in $(seq "$rounds"); do
  bash "$shared/bench/interleave.sh" 1 "$work/peers.tsv"
  limits
done | tee "$work/rows.tsv"

cp "$work/rows.tsv" "${TMPDIR:-/tmp}/ottla-bench-rows.tsv" # what a failure further on must not cost
{
  echo '# Figures'
  echo
  echo "Written by run.sh: $rounds interleaved rounds, all brokers in one run, clients on the same machine"
  echo "($(nproc) cores, $(awk '/^MemTotal/{printf "%d", $2/1048576}' /proc/meminfo) GiB, $(uname -sr), $(go version | cut -d' ' -f3))."
  echo 'On a machine this small throughput measures the load generator as much as the broker: compare cpu_s_per_GB first.'
  echo 'limit does only what no broker can avoid: it reads a frame, checksums it and writes it, or sends a piece of a file.'
  echo 'kfake never syncs and has no segments; klite, where it is shown, has one log for all partitions.'
  python3 "$shared/bench/summary.py" "$work/rows.tsv" cpu_s_per_GB MB_s p50_ms p99_ms 'p99.9_ms' rss_MiB
  echo
  echo '## Before any load'
  echo
  echo 'From process start to the answer to ApiVersions; resident memory idle and with idle connections, each of which has asked once.'
  echo 'The existing directory has 10 topics of six partitions, 10,000 records and a group.'
  echo
  "$work/bench" -header
  "$work/bench" "${starts[@]}" ottla "$work/ottla" --data-dir '$DIR' --listen '127.0.0.1:$PORT' --http ''
  "$work/bench" "${starts[@]}" 'Kafka 4.4.0' "$shared/kafka/bin/kafka4-up" '$PORT' '$DIR'
  "$work/bench" "${starts[@]}" kfake "$work/kfake" '$PORT' '$DIR'
  [ -z "${KLITE:-}" ] || "$work/bench" "${starts[@]}" klite "$KLITE" --data-dir '$DIR' --listen '127.0.0.1:$PORT' --log-level warn
  echo
  echo '## Compaction'
  echo
  echo 'A log of 512 MB without compression, 10,000 keys, 16 MiB a segment, cleaned in one round: from the change of cleanup.policy'
  echo 'until the old segments are gone.'
  echo
  "$work/bench" -compact -header
  for _ in $(seq "$rounds"); do
    "$work/bench" -compact ottla "$work/ottla" --data-dir '$DIR' --listen '127.0.0.1:$PORT' --http ''
    "$work/bench" -compact 'Kafka 4.4.0' "$shared/kafka/bin/kafka4-up" '$PORT' '$DIR'
  done
  echo
  echo '## Groups and transactions'
  echo
  echo 'By groups.sh. Members and producers are plain connections, which send what a client sends. A group of 200 joins at one time, the'
  echo 'members with heartbeats as Java sends them. A transaction is measured from its first request until EndTxn is answered.'
  echo
  OTTLA=$work/ottla BENCH=$work/bench bash "$here/groups.sh" "$rounds"
  echo
  echo '## Many partitions and a large log'
  echo
  echo 'A start is measured until the answer to ApiVersions. Before each, a record is written to every partition.'
  echo
  "$work/bench" -large -header
  "$work/bench" "${starts[@]}" -large ottla "$work/ottla" --data-dir '$DIR' --listen '127.0.0.1:$PORT' --http ''
} >"$work/RESULTS.md"
mv "$work/RESULTS.md" "$out"
! grep -q 'FAIL' "$work/rows.tsv" || { echo "run.sh: a case failed, see $out" >&2; exit 1; }
