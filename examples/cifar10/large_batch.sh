#!/usr/bin/env bash
# FireCaffe's recipe: trains a small net with batch normalization at batch 100, and as 16 simulated workers at batch 1,600 with batch_scaling in the
# same number of epochs plus 15 %, and prints the accuracy of both on the test images. EPOCHS (15): about 12 minutes on two cores. RULE: of
# batch_scaling. NET, RATE and DECAY: another net, its base_lr and weight_decay. Needs create_cifar10.sh first.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh simulate
out=${BUILD:-build/release}/large_batch
epochs=${EPOCHS:-15}
mkdir -p "$out"

train() { # name, workers, iterations, lines of the solver
  cat > "$out/$1.prototxt" <<SOLVER
net: "${NET:-examples/cifar10/batch_norm_net.prototxt}"
test_iter: 100
test_interval: 100000
base_lr: ${RATE:-0.02}
momentum: 0.9
weight_decay: ${DECAY:-0.0005}
lr_policy: "poly"
power: 0.5
display: 100
max_iter: $3
random_seed: 1
snapshot_after_train: false
$4
SOLVER
  echo "worker { count: $2 compute { ms: 100 } }" > "$out/$1_cluster.prototxt"
  "$tools/simulate" --solver="$out/$1.prototxt" --cluster="$out/$1_cluster.prototxt" --test_every=1000000 --out="$out/$1" > "$out/$1.log" 2>&1
  echo "$1: $3 updates of $2 x 100 images; $(grep -o 'accuracy = [0-9.]*' "$out/$1.log" | tail -1)"
}

train batch_100 1 $((500 * epochs)) ""
updates=$((500 * epochs * 115 / 1600))
train batch_1600 16 $updates "batch_scaling { rule: ${RULE:-LINEAR} warmup_iterations: $((updates * 7 / 100)) base_batch: 100 }"
