#!/usr/bin/env bash
# A real distributed file system on one machine: MooseFS (Debian: moosefs-master moosefs-chunkserver
# moosefs-client iproute2) in a network namespace of its own, mounted by FUSE.
#   moosefs_lab.sh hold DIR                   start, print DIR/mnt, stop at the end of the input
#   moosefs_lab.sh start DIR | stop DIR
#   moosefs_lab.sh signal DIR SERVER SIGNAL   SERVER: master, chunkserver, or a mount's NAME
#   moosefs_lab.sh run DIR SERVER             start a server that has ended
#   moosefs_lab.sh mount DIR NAME [OPTION...] | unmount DIR NAME
#   moosefs_lab.sh tool DIR COMMAND...        run a tool of the client, as mfssetquota
# Needs root, /dev/fuse and network namespaces. The chunkserver refuses 127.0.0.1, hence the
# namespace. `stop` ends everything that was started for DIR, whatever state it is in.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin
verb=$1 dir=$(mkdir -p "$2" && cd "$2" && pwd) ip=10.77.0.1
ns=mfs$(printf %s "$dir" | cksum | cut -d' ' -f1)
shift 2

in_ns() { nsenter --net="/var/run/netns/$ns" "$@"; }
pids() { # SERVER
  case $1 in
  master | chunkserver) cat "$dir/$1/.mfs$1.lock" 2>/dev/null || true ;;
  *) pgrep -f "^mfsmount \(mounted on: $dir/$1\)" || true ;;
  esac
}
mounts() { awk -v dir="$dir/" 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo; }
run() { # SERVER
  local more=()
  [ "$1" != master ] || more=(-a) # a killed master's last changes are in its change logs
  for _ in $(seq 150); do # a killed one holds its lock file until the kernel has ended it
    in_ns "mfs$1" "${more[@]}" -c "$dir/etc/mfs$1.cfg" start >>"$dir/$1.log" 2>&1 </dev/null && return
    sleep 0.2
  done
  return 1
}
mount_at() { # NAME [OPTION...]
  local name=$1
  shift
  mkdir -p "$dir/$name"
  for _ in $(seq 150); do
    in_ns mfsmount "$dir/$name" -H $ip "$@" >>"$dir/mount.log" 2>&1 </dev/null && break
    sleep 0.2
  done
  for _ in $(seq 150); do # a chunkserver is there
    [ "$(df --output=avail "$dir/$name" | tail -1)" -le 0 ] || return 0
    sleep 0.2
  done
  return 1
}
start() {
  mkdir -p "$dir"/{etc,master,chunkserver,hdd}
  [ -e "$dir/master/metadata.mfs" ] || cp /var/lib/mfs/metadata.mfs.empty "$dir/master/metadata.mfs"
  ip netns add "$ns"
  in_ns sh -c "ip link set lo up; ip link add v0 type veth peer name v1
    ip addr add $ip/24 dev v0; ip link set v0 up; ip link set v1 up"
  echo "10.77.0.0/24 / rw,alldirs,admin,maproot=0" >"$dir/etc/mfsexports.cfg"
  : >"$dir/etc/mfstopology.cfg"
  echo "$dir/hdd" >"$dir/etc/mfshdd.cfg"
  printf '%s\n' "WORKING_USER = root" "WORKING_GROUP = root" "DATA_PATH = $dir/master" \
    "EXPORTS_FILENAME = $dir/etc/mfsexports.cfg" "TOPOLOGY_FILENAME = $dir/etc/mfstopology.cfg" \
    "MATOML_LISTEN_HOST = $ip" "MATOCS_LISTEN_HOST = $ip" "MATOCL_LISTEN_HOST = $ip" \
    "LOCK_MEMORY = 0" >"$dir/etc/mfsmaster.cfg"
  printf '%s\n' "WORKING_USER = root" "WORKING_GROUP = root" "DATA_PATH = $dir/chunkserver" \
    "HDD_CONF_FILENAME = $dir/etc/mfshdd.cfg" "MASTER_HOST = $ip" "CSSERV_LISTEN_HOST = $ip" \
    "HDD_LEAVE_SPACE_DEFAULT = 0.1GiB" "MASTER_RECONNECTION_DELAY = 1" \
    >"$dir/etc/mfschunkserver.cfg"
  run master
  run chunkserver
  mount_at mnt
  echo "$dir/mnt"
}
stop() {
  local mount pid
  for mount in $(mounts); do # its calls end with an error as soon as the client has ended
    for pid in $(pids "${mount#"$dir/"}"); do kill -KILL "$pid" 2>/dev/null || true; done
    umount -l "$mount" 2>/dev/null || true
  done
  for pid in $(pids chunkserver) $(pids master); do
    grep -qa "$dir" "/proc/$pid/cmdline" 2>/dev/null || continue # long gone
    kill -KILL "$pid" 2>/dev/null || true
  done
  ip netns del "$ns" 2>/dev/null || true
}

case $verb in
hold)
  trap '' HUP INT TERM
  trap stop EXIT
  start
  cat >/dev/null ;;
start) start ;;
stop) stop ;;
signal) for pid in $(pids "$1"); do kill "-$2" "$pid"; done ;;
run) run "$1" ;;
mount) mount_at "$@" ;;
tool) in_ns "$@" ;;
unmount) umount -l "$dir/$1" ;;
*)
  echo "unknown verb $verb" >&2
  exit 2 ;;
esac
