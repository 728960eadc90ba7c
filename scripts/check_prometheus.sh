#!/usr/bin/env bash
# Lets Prometheus scrape the status page of a run that trains, and asks it what it has seen: make check_prometheus. Needs Debian's prometheus.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools=${1:-build/release}/tools
command -v prometheus >/dev/null || { echo "check_prometheus: no prometheus: apt-get install prometheus" >&2; exit 2; }
home=$(mktemp -d /tmp/check_prometheus.XXXXXX)
finish() {
  kill $(jobs -p) 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$home"
}
trap finish EXIT

"$tools/draw_digits" --train=500 --test=100 "$home" >/dev/null
sed -e "s|build/quickstart/|$home/|" -e 's/^max_iter: .*/max_iter: 100000000/' -e 's/^display: .*/display: 10/' \
  examples/quickstart/solver.prototxt > "$home/solver.prototxt"
openssl rand -hex 16 > "$home/token"
"$tools/train" --solver="$home/solver.prototxt" --threads=1 --status_port=28080 --status_token_file="$home/token" 2> "$home/log" &
for _ in $(seq 60); do grep -q 'The run is shown at' "$home/log" && break; sleep 1; done
port=$(sed -n 's|.*The run is shown at http://[^:]*:\([0-9]*\)/.*|\1|p' "$home/log")
[ -n "$port" ] || { cat "$home/log" >&2; exit 1; }
cat > "$home/prometheus.yml" <<END
global: {scrape_interval: 1s}
scrape_configs:
  - job_name: shoal
    authorization: {credentials_file: $home/token}
    static_configs: [{targets: ['127.0.0.1:$port']}]
END
prometheus --config.file="$home/prometheus.yml" --storage.tsdb.path="$home/data" --web.listen-address=127.0.0.1:28090 2> "$home/prometheus.log" &
ask() { curl -s -m 5 --data-urlencode "query=$1" http://127.0.0.1:28090/api/v1/query; }
for _ in $(seq 60); do ask 'increase(shoal_samples_total[5s]) > 0' | grep -q '"value"' && break; sleep 1; done
for query in up 'increase(shoal_samples_total[5s])' shoal_iteration 'shoal_value{name="train/total_loss"}' 'shoal_seconds_total{part="compute"}'; do
  answer=$(ask "$query")
  grep -q '"value"' <<< "$answer" || { echo "check_prometheus: no answer to $query: $answer" >&2; tail "$home"/*log >&2; exit 1; }
  echo "$query: $(sed 's/.*"value":\[[^,]*,"\([^"]*\)".*/\1/' <<< "$answer")"
done
echo "check_prometheus: $(prometheus --version 2>&1 | head -n 1) scraped a run"
