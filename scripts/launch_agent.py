"""The shell script that runs beside each process of a job, on its machine."""

# Runs on each machine, given: folder, job, rank, grace in seconds, "founds" or "joins", the command.
# A process that founds the job gets the machinefile and its rank behind the command's words. On its
# stdin: the job's token, the machinefile up to a line with a full stop, then names of signals for
# the command's process group, one a line. Its end (the launcher is gone) counts as TERM.
AGENT = r'''
cd -- "$1" || exit 125
folder=${SHOAL_JOBS:-$HOME/.shoal/jobs}/$2; rank=$3; grace=$4; how=$5; shift 5
mask=$(umask)
umask 077
machines=$folder/machinefile.$rank
# A process of the job that ends already may remove the folder before there is a file in it.
for try in 1 2 3 4 5; do mkdir -p "$folder" && (: > "$machines") 2> /dev/null && break; done
IFS= read -r SHOAL_JOB_TOKEN || exit 125
export SHOAL_JOB_TOKEN
while IFS= read -r line && [ "$line" != . ]; do printf '%s\n' "$line"; done > "$machines" || exit 125
default=$(env --default-signal=INT,QUIT true 2>/dev/null && echo env --default-signal=INT,QUIT)   # sh has them ignored behind an &
umask "$mask"                                                  # the job's files are as the user's other files
[ "$how" = joins ] || set -- "$@" --machinefile="$machines" --client_id="$rank"
$default setsid "$@" < /dev/null &
pid=$!
start=$(cut -d ' ' -f 22 "/proc/$pid/stat" 2>/dev/null)
echo "$pid $start" > "$folder/$rank.pid"
exec 3<&0
{
  while IFS= read -r name; do kill -s "$name" -- "-$pid" 2>/dev/null; done
  kill -s TERM -- "-$pid" 2>/dev/null
  for i in $(seq "$grace"); do kill -0 "$pid" 2>/dev/null || exit; sleep 1; done
  kill -s KILL -- "-$pid" 2>/dev/null
} <&3 > /dev/null 2>&1 &
listener=$!
exec < /dev/null 3<&-
while :; do wait "$pid"; code=$?; kill -0 "$pid" 2>/dev/null || break; done
kill -s KILL -- "-$pid" 2>/dev/null
kill "$listener" 2>/dev/null
# A process that was started in the place of this one has files of its own.
{ read -r latest rest < "$folder/$rank.pid"; } 2>/dev/null && [ "$latest" = "$pid" ] &&
  rm -f "$folder/$rank.pid" "$machines"
rmdir "$folder" 2>/dev/null
exit "$code"
'''
