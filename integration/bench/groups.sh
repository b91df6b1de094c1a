#!/usr/bin/env bash
# groups.sh [ROUNDS]: groups, transactions and the loading of offsets, on ottla and on Kafka 4.4.0 in turn, ROUNDS times
# (default 3). Prints a table in Markdown. Needs what ../setup.sh installs. Env: LOAD (default 10s), how long each load is
# measured; OTTLA and BENCH, where they are built already; ROWS, a file that keeps the rows of the rounds.
# Kafka's rule prolongs group.initial.rebalance.delay.ms once where members join during it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
shared=$(cd "$root/../shared" && pwd)
clients=${OTTLA_CLIENTS:-${XDG_CACHE_HOME:-$HOME/.cache}/ottla-clients}
export KAFKA4_LIBS=$clients/kafka-4.4.0/libs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ottla=${OTTLA:-$work/ottla}
bench=${BENCH:-$work/bench}
rows=${ROWS:-$work/rows}
[ -x "$ottla" ] || (cd "$root" && go build -o "$ottla" .)
[ -x "$bench" ] || (cd "$root" && go build -o "$bench" ./integration/bench)

# both MODE [SETTING...]: a mode of bench, with what belongs to it, on ottla, then on Kafka.
both() {
  local mode set=() s
  read -ra mode <<<"$1"
  shift
  for s in "$@"; do set+=(--set "$s"); done
  "$bench" "${mode[@]}" -load "${LOAD:-10s}" ottla "$ottla" --data-dir '$DIR' --listen '127.0.0.1:$PORT' --http '' "${set[@]}"
  "$bench" "${mode[@]}" -load "${LOAD:-10s}" 'Kafka 4.4.0' "$shared/kafka/bin/kafka4-up" '$PORT' '$DIR' "$@"
}

: >"$rows"
for _ in $(seq "${1:-3}"); do
  both -groups group.initial.rebalance.delay.ms=3000
  both '-groups -cases=classic' group.initial.rebalance.delay.ms=0
  both -txn
  both -offsets offsets.topic.num.partitions=1 log.cleaner.enable=false
done | tee "$rows" >&2
"$bench" -pivot <"$rows"
