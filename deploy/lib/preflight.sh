# What a machine must have free before a long run: read by deploy/check.
# shellcheck shell=bash

# port_holder PORT [ADDRESS]: the program that listens on a TCP port of ADDRESS (default 127.0.0.1),
# or on this port of all addresses; fails if there is none.
port_holder() {
    local line
    command -v ss >/dev/null || return 1
    line=$(ss -ltnpH "sport = :$1" 2>/dev/null | awk -v own="${2:-127.0.0.1}:$1" -v port="$1" '
        $4 == own || $4 == "0.0.0.0:" port || $4 == "*:" port || $4 == "[::]:" port' | head -n 1)
    [ -n "$line" ] || return 1
    # users:(("name",pid=1,fd=3)); another user's program is shown to root only.
    sed -nE 's/.*users:\(\("([^"]*)",pid=([0-9]+).*/\1 (process \2)/p; t; s/.*/a program of another user/p' \
        <<<"$line"
}

# free_mebibytes FOLDER: space left where FOLDER is, or would be made.
free_mebibytes() {
    local folder=$1
    until [ -d "$folder" ]; do folder=$(dirname "$folder"); done
    df --output=avail -BM "$folder" | tail -n 1 | tr -dc 0-9
}

# used_mebibytes FOLDER: what FOLDER holds already.
used_mebibytes() {
    if [ -d "$1" ]; then du -sm "$1" | cut -f1; else echo 0; fi
}

# lacks_space FOLDER MEBIBYTES WHAT: prints what is missing; fails if the space is there.
lacks_space() {
    local free
    free=$(free_mebibytes "$1")
    [ "$free" -lt "$2" ] || return 1
    echo "disk: $3 need $2 MiB more below $1, where $free MiB are free"
}

# lacks_loop_device: prints so if root finds no free one; fails if there is one.
lacks_loop_device() {
    command -v losetup >/dev/null || return 1
    ! losetup --find >/dev/null 2>&1 || return 1
    echo "loop devices: none is free (losetup --list shows those in use)"
}
