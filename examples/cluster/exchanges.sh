#!/usr/bin/env bash
# Trains an fc-heavy net, and LeNet on MNIST if its data are there, by each exchange: processes of this machine whose links are held to 1 Gbit/s.
# Prints a table: the median seconds of an iteration, the bytes that process 0 sends in one, and the loss or accuracy at the end; behind AUTO's
# lines what it predicted. About four minutes.
# usage: exchanges.sh [PROCESSES], default 2. THROTTLE=... (bytes a second), EXCHANGES=... and BUILD=... change the rate, the list and the build folder.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
processes=${1:-2}
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh train
out=build/cluster/exchanges
mkdir -p "$out"

# run NAME EXCHANGE SOLVER FLAGS...: trains and prints a line of the table
run() {
  local name=$1 exchange=$2 solver=$3 log=$out/$1_$2.log metrics=$out/$1_$2
  shift 3
  if ! scripts/launch.py --local="$processes" --log_dir="$out/logs" -- "$tools/train" --solver="$solver" --threads=1 \
    --throttle="${THROTTLE:-125000000}" --exchange="$exchange" --metrics="$metrics" "$@" >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    echo "FAILED: the log is $log" >&2
    exit 1
  fi
  # worker 0's measures of the iterations behind the third, so that the first numbers' way to all is not counted
  python3 - "$name" "$exchange" "$metrics/metrics.0.jsonl" "$log" <<'END'
import json, re, statistics, sys
name, exchange, path, log = sys.argv[1:]
lines = [json.loads(line) for line in open(path)]
clocks = [line for line in lines if line['kind'] == 'clock']
seconds = statistics.median(b['time'] - a['time'] for a, b in zip(clocks[2:], clocks[3:]))
sent = statistics.mean(line['bytes_sent'] for line in clocks[3:])
accuracy = re.findall(r'Test net output.*accuracy = ([0-9.e-]+)', open(log).read())
end = f'accuracy {accuracy[-1]}' if accuracy else 'loss %.6g' % [line['loss'] for line in lines if line['kind'] == 'display'][-1]
forecast = re.findall(r'an iteration took ([0-9.]+) ms.*predicted: ([0-9.]+) ms', open(log).read())
if forecast:
    took, predicted = map(float, forecast[-1])
    end += f'; took {took:.1f} ms on average, {predicted:.1f} ms were predicted ({100 * (predicted / took - 1):+.0f} %)'
print(f'{name:10} {exchange:16} {seconds:11.4f} {sent:12.0f}   {end}')
END
}

exchanges=${EXCHANGES:-TABLE FACTORS TREE RING HALVING_DOUBLING DIRECT AUTO}
printf '%-10s %-16s %11s %12s   %s\n' net exchange s/iteration 'bytes sent' 'at the end'
for exchange in $exchanges; do
  run fc_heavy "$exchange" examples/cluster/fc_heavy_solver.prototxt
done
if [ -d examples/mnist/mnist_train_lmdb ]; then
  for exchange in $exchanges; do
    run lenet "$exchange" examples/cluster/solver.prototxt --maxIter=300 --test=300
  done
else
  echo "LeNet is left out: examples/mnist/create_mnist.sh makes its data"
fi
