# Shared by the scripts of this folder: messages, and installation of what is missing.
# shellcheck shell=bash

set -euo pipefail

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# A crate folder is called `target`: never let cargo build (or clean) there.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$project/build}"

say() { printf '\n==> %s\n' "$*"; }
note() { printf '    %s\n' "$*"; }
die() {
    printf '\n%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# Runs a command with root's rights: directly as root, else through sudo.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        die "needs root's rights for: $* (run as root, or install sudo)"
    fi
}

# require_packages PACKAGE...: installs those Debian packages that are missing.
require_packages() {
    local package missing=()
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
            missing+=("$package")
    done
    [ "${#missing[@]}" -eq 0 ] && return 0
    command -v apt-get >/dev/null 2>&1 ||
        die "missing packages: ${missing[*]} (this is no Debian; install them by hand)"
    note "installing: ${missing[*]}"
    as_root apt-get update -qq || die "apt-get update failed: is a package mirror reachable?"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "${missing[@]}" >/dev/null || die "could not install: ${missing[*]}"
}

# What the cargo feature `verbs` (RDMA devices) takes.
rdma_build_packages=(libibverbs-dev librdmacm-dev libclang1-14 libclang-common-14-dev pkg-config)

# require_rdma_build: these packages have to be there. The crate below the feature makes its bindings
# with libclang, of version 15 at most: with a newer one its generator ends in a panic (`... is not a
# valid Ident`). Where several are there, LIBCLANG_PATH says which; .cargo/config.toml sets it to
# Debian 12's. Where a library is missing, the crate itself names one package of all these.
require_rdma_build() {
    local packages=("${rdma_build_packages[@]}") needed
    needed="RDMA devices (cargo feature verbs) need: ${rdma_build_packages[*]}"
    if [ -n "${LIBCLANG_PATH:-}" ]; then
        packages=(libibverbs-dev librdmacm-dev pkg-config)
        compgen -G "$LIBCLANG_PATH/libclang*.so*" >/dev/null ||
            die "$needed; there is no libclang in LIBCLANG_PATH=$LIBCLANG_PATH"
    elif command -v apt-cache >/dev/null 2>&1 && [ ! -d /usr/lib/llvm-14/lib ] &&
        ! apt-cache show libclang1-14 >/dev/null 2>&1; then
        die "$needed; this system has no libclang1-14, and version 16 and later do not do: set" \
            "LIBCLANG_PATH to a folder with libclang 14 or 15, or build without --features verbs"
    fi
    require_packages "${packages[@]}"
}

# require_rust: the toolchain named in rust-toolchain.toml has to be usable.
require_rust() {
    if ! command -v cargo >/dev/null 2>&1 && [ -f "$HOME/.cargo/env" ]; then
        # shellcheck disable=SC1091
        . "$HOME/.cargo/env"
    fi
    command -v cargo >/dev/null 2>&1 ||
        die "cargo is missing: install Rust $(sed -n 's/^channel = "\(.*\)"/\1/p' "$project/rust-toolchain.toml") (rustup) first"
    (cd "$project" && cargo --version >/dev/null) ||
        die "the toolchain named in rust-toolchain.toml cannot be used"
}

# build_programs PROFILE: builds millraced, millracectl and millrace-bench (PROFILE: release, quick or
# debug). PROGRAM_FEATURES names their cargo features. Scripts that run after each other with the
# same features share one build.
build_programs() {
    local options=(--locked --profile "${1/#debug/dev}" --bin millraced --bin millracectl --bin millrace-bench)
    [ -z "${PROGRAM_FEATURES:-}" ] || options+=(--features "$PROGRAM_FEATURES")
    (cd "$project" && cargo build "${options[@]}")
}

# The features of programs that serve RDMA devices.
# shellcheck disable=SC2034 # For the scripts that read this file.
verbs_features=millrace/verbs,millrace-bench/verbs
# The same of all crates.
# shellcheck disable=SC2034
all_verbs_features=millrace-reactor/verbs,$verbs_features

# require_cargo_tool COMMAND CRATE: installs a cargo subcommand from crates.io if it is missing.
require_cargo_tool() {
    command -v "$1" >/dev/null 2>&1 && return 0
    [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/$1" ] && return 0
    note "installing $2 (compiles for a minute or two, once)"
    # Without optimization, which costs more time here than it wins.
    (cd / && CARGO_PROFILE_DEV_DEBUG=none CARGO_TARGET_DIR="$CARGO_TARGET_DIR/tools" \
        cargo install --quiet --locked --debug "$2") ||
        die "could not install $2"
}

# require_miri: the interpreter that finds undefined behaviour, of the nightly toolchain. Fails where
# that cannot be had.
require_miri() {
    command -v rustup >/dev/null 2>&1 || return 1
    if ! cargo +nightly miri --version >/dev/null 2>&1 ||
        ! rustup component list --toolchain nightly --installed 2>/dev/null | grep -q '^rust-src'; then
        note "installing Miri (once)"
        timeout 600 rustup --quiet toolchain install nightly --profile minimal \
            --component miri --component rust-src --no-self-update || return 1
    fi
    cargo +nightly miri setup >/dev/null 2>&1
}

# free_ports COUNT: TCP ports of loopback that no program listens on, chosen by the kernel.
free_ports() {
    python3 -c '
import socket, sys
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
ports = [one.getsockname()[1] for one in sockets]
for one in sockets:  # Before the reader goes on.
    one.close()
print(*ports)' "$1"
}

# with_ports RDMA RPC ADMIN FILE: prints a configuration with these ports instead of the usual ones,
# so that a script can run beside a server.
with_ports() {
    sed -e "s/:20049/:$1/; s/:2049/:$2/; s/:9620/:$3/" "$4"
}

# reserve_hugepages MEBIBYTES: free ones, beside those that other programs use. Best effort, never
# fatal.
reserve_hugepages() {
    local want=$(($1 / 2)) total free
    read -r total free < <(awk '/^HugePages_(Total|Free):/ { printf "%s ", $2 }' /proc/meminfo) || true
    [ "${free:-0}" -ge "$want" ] && return 0
    if as_root sysctl -q -w "vm.nr_hugepages=$((${total:-0} - ${free:-0} + want))" 2>/dev/null; then
        free=$(awk '/^HugePages_Free:/ {print $2}' /proc/meminfo)
    fi
    if [ "${free:-0}" -ge "$want" ]; then
        note "hugepages: $free of 2 MiB free"
    else
        note "hugepages: only ${free:-0} of $want could be reserved; ordinary pages serve for the rest"
    fi
}
