#!/usr/bin/env bash
# Runs examples/slurm/train.sbatch on a Slurm of this machine alone: make check_slurm. As root, on Debian with slurmctld, slurmd and munge
# (apt-get install slurmctld slurmd munge). The cluster is made for this, says that it has four processors, and ends with the script.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build/release}
for program in slurmctld slurmd munged sbatch; do
  command -v "$program" >/dev/null || { echo "check_slurm: no $program: apt-get install slurmctld slurmd slurm-client munge" >&2; exit 2; }
done
[ "$(id -u)" -eq 0 ] || { echo "check_slurm: Slurm's daemons start as root" >&2; exit 2; }
home=$(mktemp -d /tmp/check_slurm.XXXXXX)
host=$(hostname -s)
chmod 755 "$home"
finish() {
  for name in slurmd slurmctld munged; do
    [ ! -f "$home/$name.pid" ] || kill "$(cat "$home/$name.pid")" 2>/dev/null || true
  done
  rm -rf "$home"
}
trap finish EXIT

dd if=/dev/urandom of="$home/munge.key" bs=1024 count=1 status=none
chmod 400 "$home/munge.key"
# As root and with files of its own, beside a munged that the machine may have.
munged --force --key-file="$home/munge.key" --socket="$home/munge.socket" --pid-file="$home/munged.pid" \
  --log-file="$home/munged.log" --seed-file="$home/munge.seed"
cat > "$home/slurm.conf" <<END
ClusterName=check
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=27817
SlurmdPort=27818
AuthType=auth/munge
AuthInfo=socket=$home/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$home/state
SlurmdSpoolDir=$home/spool
SlurmctldPidFile=$home/slurmctld.pid
SlurmdPidFile=$home/slurmd.pid
SlurmctldLogFile=$home/slurmctld.log
SlurmdLogFile=$home/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=4
PartitionName=all Nodes=$host Default=YES
END
export SLURM_CONF=$home/slurm.conf
mkdir "$home/state" "$home/spool"
slurmctld
slurmd
for _ in $(seq 60); do sinfo -h -o %T 2>/dev/null | grep -q idle && break; sleep 1; done
sinfo -h -o %T | grep -q idle || { cat "$home"/*.log >&2; echo "check_slurm: the node did not come up" >&2; exit 1; }

log=$home/job.log
BUILD=$build sbatch --wait --output="$log" examples/slurm/train.sbatch || { cat "$log" "$home"/slurm*.log >&2; exit 1; }
grep -E 'known from Slurm|Optimization Done|accuracy' "$log" | tail -n 5
accuracy=$(sed -n 's/.*Test net output #[0-9]*: accuracy = \([0-9.e-]*\).*/\1/p' "$log" | tail -n 1)
awk -v a="${accuracy:-0}" 'BEGIN { exit !(a >= 0.98) }' || { echo "check_slurm: accuracy ${accuracy:-unknown}, at least 0.98 was expected" >&2; exit 1; }
echo "check_slurm: four tasks of $(slurmd -V) reached $accuracy"
