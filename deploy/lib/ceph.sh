# A Ceph cluster of one node in a folder of its own: a monitor, a manager, an OSD and an MDS without
# systemd. Read by deploy/ceph-check and bench/ceph-figures.
# shellcheck shell=bash

# What it takes, by Debian's names.
# shellcheck disable=SC2034 # For the scripts that read this file.
ceph_packages=(ceph-mon ceph-mgr ceph-osd ceph-mds ceph-common libcephfs-dev)

# ceph_free_base: the first of a hundred ports in a row that no program listens on.
ceph_free_base() {
    python3 -c '
import random, socket
for base in random.sample(range(21000, 31000, 100), 100):
    try:
        for port in range(base, base + 100):
            with socket.socket() as one:
                one.bind(("127.0.0.1", port))
    except OSError:
        continue
    print(base)
    break
else:
    raise SystemExit("no hundred free ports in a row")'
}

# ceph_daemon FOLDER PROGRAM ARGUMENT...: starts one in the background, in a session of its own, so
# that Ctrl-C does not end it before its clients.
ceph_daemon() {
    local folder=$1
    shift
    CEPH_CONF=$folder/ceph.conf nice setsid "$@" </dev/null >>"$folder/log/$1.out" 2>&1 &
}

# ceph_write_conf FOLDER BASE FSID
ceph_write_conf() {
    cat >"$1/ceph.conf" <<CONF
[global]
fsid = $3
mon_host = [v2:127.0.0.1:$2/0,v1:127.0.0.1:$(($2 + 1))/0]
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
keyring = $1/keyring
log_file = $1/log/\$name.log
mon_cluster_log_file = $1/log/cluster.log
admin_socket = $1/run/\$name.\$pid.asok
pid_file = $1/run/\$name.pid
public_addr = 127.0.0.1
ms_bind_port_min = $(($2 + 10))
ms_bind_port_max = $(($2 + 99))
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_allow_pool_delete = true
[mon]
mon_data = $1/mon
[mgr]
mgr_data = $1/mgr
[osd]
osd_data = $1/osd
osd_objectstore = bluestore
bluestore_block_size = 8589934592
# A sole OSD does not renew read leases (0.8 of this) that it has let pass, and stays laggy.
osd_heartbeat_grace = 600
osd_memory_target = 939524096
[mds]
mds_data = $1/mds
mds_defer_session_stale = false
CONF
}

# ceph_make FOLDER: makes and starts a cluster with the file system `fs`. Clients `gateway` and
# `admin` have their keys in FOLDER/keyring. Takes about ten seconds.
ceph_make() {
    local folder=$1 base fsid osd deadline
    base=$(ceph_free_base)
    fsid=$(cat /proc/sys/kernel/random/uuid)
    mkdir -p "$folder"/{mon,mgr,osd,mds,run,log}
    ceph_write_conf "$folder" "$base" "$fsid"
    export CEPH_CONF=$folder/ceph.conf
    local key=(ceph-authtool "$folder/keyring" --gen-key -n)
    {
        ceph-authtool -C "$folder/keyring" --gen-key -n mon. --cap mon 'allow *'
        "${key[@]}" client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mds 'allow *' --cap mgr 'allow *'
        "${key[@]}" osd.0 --cap mon 'allow profile osd' --cap osd 'allow *' --cap mgr 'allow profile osd'
        "${key[@]}" mds.a --cap mon 'allow profile mds' --cap osd 'allow rwx' --cap mds 'allow' --cap mgr 'allow profile mds'
        "${key[@]}" mgr.x --cap mon 'allow profile mgr' --cap osd 'allow *' --cap mds 'allow *'
        "${key[@]}" client.gateway --cap mon 'allow r' --cap osd 'allow rw tag cephfs data=fs' --cap mds 'allow rwp'
        chmod 600 "$folder/keyring"
        monmaptool --create --clobber --addv a "[v2:127.0.0.1:$base,v1:127.0.0.1:$((base + 1))]" \
            --fsid "$fsid" "$folder/monmap"
        ceph-mon --mkfs -i a --monmap "$folder/monmap" --keyring "$folder/keyring"
        ceph_daemon "$folder" ceph-mon -f -i a
        osd=$(cat /proc/sys/kernel/random/uuid)
        ceph osd new "$osd"
        ceph-osd --mkfs -i 0 --osd-uuid "$osd"
        ceph_daemon "$folder" ceph-mgr -f -i x
        ceph_daemon "$folder" ceph-osd -f -i 0
        ceph osd crush add osd.0 1.0 root=default host=localhost
        ceph osd pool create meta 8
        ceph osd pool create data 8
        ceph fs new fs meta data
        # 30 seconds are the least. A gateway that died holds others up for as long.
        ceph fs set fs session_timeout 30
        ceph fs set fs session_autoclose 30
        ceph_daemon "$folder" ceph-mds -f -i a
    } >>"$folder/log/make.out" 2>&1 || { tail -n 5 "$folder/log/make.out" >&2; return 1; }
    deadline=$((SECONDS + 90))
    until ceph mds stat 2>/dev/null | grep -q up:active; do
        [ "$SECONDS" -lt "$deadline" ] || { echo "no MDS became active in 90 s" >&2; return 1; }
        sleep 0.3
    done
}

# ceph_pid FOLDER DAEMON: such as osd.0
ceph_pid() { cat "$1/run/$2.pid" 2>/dev/null; }

# ceph_stop FOLDER: ends the daemons, clients of others first. A daemon that does not answer SIGTERM
# within ten seconds is killed.
ceph_stop() {
    local daemon pid deadline
    for daemon in mds.a mgr.x osd.0 mon.a; do
        pid=$(ceph_pid "$1" "$daemon") || continue
        # One that a test has stopped would not end.
        kill -CONT "$pid" 2>/dev/null || continue
        # SIGTERM takes an MDS ten seconds, and SIGKILL loses nothing.
        if [ "$daemon" = mds.a ]; then kill -KILL "$pid"; else kill -TERM "$pid"; fi
        deadline=$((SECONDS + 10))
        while kill -0 "$pid" 2>/dev/null; do
            [ "$SECONDS" -lt "$deadline" ] || kill -KILL "$pid" 2>/dev/null || true
            sleep 0.1
        done
    done
}
