#!/usr/bin/env bash
# What `./dev run` shows: unmodified RDMA programs at work on a machine without RDMA hardware.
#
# usage: demo.sh [WEFT]    the program to show; by default the one that ./dev builds
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
weft=${1:-build/dev/bin/weft}

# An ordinary user is enough: become one if that user can read the build.
nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups)
if ((EUID == 0)) && "${nobody[@]}" test -x "$weft" -a -r "$0" 2>/dev/null; then
  exec "${nobody[@]}" bash "$0" "$weft"
fi

scratch=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$scratch"' EXIT
export HOME=$scratch XDG_CONFIG_HOME=$scratch  # tshark needs a place for its settings

bold='' dim='' plain=''
if [[ -t 1 && -z ${NO_COLOR:-} ]]; then bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'; fi
title() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
command_line() { printf '%s  $ %s%s\n' "$dim" "$*" "$plain"; }

# need PROGRAM PACKAGE: prints where the program comes from; fails if it is not installed.
need() {
  local version
  command -v "$1" >/dev/null || { echo "  $1 is not installed (package $2): left out"; return 1; }
  version=$(dpkg-query -W -f '${Version}' "$2" 2>/dev/null) || return 0
  echo "  $1 is the unmodified program of the package $2 $version"
}

# A port without a listener.
free_port() {
  local port
  while port=$((11000 + RANDOM % 17000)) && listens "$port"; do :; done
  echo "$port"
}

# The state 0A in /proc/net/tcp is LISTEN.
listens() {
  cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
    awk -v port="$(printf ':%04X$' "$1")" \
      '$2 ~ port && $4 == "0A" { found = 1 } END { exit !found }'
}

# pair FILTER OPTIONS PROGRAM...: a server and then, as soon as it listens, a client, both with
# `-p PORT`. The words of PROGRAM that begin with server: or client: are for that side only. OPTIONS
# are weft's, for the client. The output of both goes through FILTER.
pair() {
  local filter=$1 options=$2 port word server=() client=()
  shift 2
  port=$(free_port)
  for word in "$@" -p "$port"; do
    [[ $word == client:* ]] || server+=("${word#server:}")
    [[ $word == server:* ]] || client+=("${word#client:}")
  done
  command_line "weft run -- ${server[*]}"
  # shellcheck disable=SC2086
  command_line "weft run ${options:+${options/$scratch\//} }-- ${client[*]}"
  "$weft" run -- "${server[@]}" >"$scratch/server" 2>&1 &
  until listens "$port"; do
    kill -0 $! 2>/dev/null || { cat "$scratch/server"; return 1; }
    sleep 0.01
  done
  # shellcheck disable=SC2086
  timeout 60 "$weft" run $options -- "${client[@]}" >"$scratch/client" 2>&1 ||
    { cat "$scratch/client"; return 1; }
  wait $! || { cat "$scratch/server"; return 1; }
  "$filter" <"$scratch/server" | sed 's/^/  server | /'
  "$filter" <"$scratch/client" | sed 's/^/  client | /'
}

pings() { grep -v -e DISCONNECT -e '^wait for' | cut -c1-70; }
results() { expand | grep -E '^weft:|#bytes|^ *[0-9]+ +[0-9]+ ' | sed 's/^ *//; s/   */   /g'; }

# What tshark, an independent program, finds in a capture.
judge() {
  local read=(tshark -n -2 -r "$1" --disable-protocol rpcordma -o tcp.try_heuristic_first:TRUE
    -o tcp.check_checksum:TRUE)
  "${read[@]}" -Y iwarp_rdma.opcode -T fields -e iwarp_rdma.opcode 2>/dev/null | tr ',' '\n' |
    awk 'BEGIN { split("Write,Read Request,Read Response,Send,Send with Invalidate,Send with SE,"\
                       "Send with SE and Invalidate,Terminate", name, ",") }
         { count[index("0123456789ab", substr($1, length($1))) - 1]++ }
         END { for (code = 0; code < 8; code++) if (count[code])
                 printf "  %8d  %s\n", count[code], name[code + 1] }'
  "${read[@]}" -O iwarp_mpa -Y iwarp_mpa.fpdu 2>/dev/null |
    awk '/CRC check/ { if (/Good CRC32/) good++; else bad++ }
         END { printf "  %8d  right CRCs\n  %8d  wrong CRCs\n", good, bad }'
  printf '  %8d  malformed frames\n' "$("${read[@]}" -Y _ws.malformed 2>/dev/null | wc -l)"
  echo "  rping posts fewer reads: the empty ones prove that writes and sends have arrived."
}

title "RDMA on a machine without RDMA hardware"
devices=$(ls /sys/class/infiniband 2>/dev/null | wc -l) || true
echo "  $(uname -sr), $(nproc) processors; RDMA devices in the kernel: $devices;" \
  "user: $(id -un 2>/dev/null || id -u)"
if ((EUID == 0)); then echo "  (as root only because another user cannot read this directory)"; fi

title "1. The device, as ibv_devinfo sees it"
if need ibv_devinfo ibverbs-utils; then
  command_line "weft run -- ibv_devinfo"
  "$weft" run -- ibv_devinfo 2>&1 | grep -E 'hca_id|transport|fw_ver|state|mtu|link' | sed 's/^/  /'
fi

title "2. rping: ten pings by RDMA Read and Write, each one compared with what was sent"
if need rping rdmacm-utils; then
  pair pings "--capture $scratch/rping.pcapng" rping server:-s client:-c -a 127.0.0.1 -C 10 -v -V
fi

title "3. ib_write_bw: the bandwidth of RDMA Writes"
if need ib_write_bw perftest; then
  pair results "" ib_write_bw -R -F -s 1048576 -n 1000 client:127.0.0.1
  title "4. ib_read_lat: the time of an RDMA Read, there and back"
  pair results "" ib_read_lat -R -F -s 64 -n 1000 client:127.0.0.1
fi

title "5. What tshark sees in the capture of the rping client"
if [[ -s $scratch/rping.pcapng ]] && need tshark tshark; then judge "$scratch/rping.pcapng"; fi

title "What to try next"
try() { printf '  %-60s %s\n' "$1" "$2"; }
# printf counts bytes, so these have ASCII only.
try "$weft run -- PROGRAM..." "your own program; its peer in another terminal"
try "$weft run --capture out.pcapng -- PROGRAM..." "look at out.pcapng in Wireshark"
try "$weft help environment" "what changes how the device behaves"
try "./dev build" "the rest: weft dissect, weft run --sockets, C++ libraries"
try "README.md, docs/architecture.md" "what it is, and how it works"
