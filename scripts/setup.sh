# Sourced by the other scripts: finds or installs what they need, and says in one line what it
# cannot get. Sets ROOT, CACHE and CARGO_TARGET_DIR. Defines install_packages, need_compilers,
# need_cargo, need_python, need_guests, need_counted_guest, venv and ferry_prefix.

set -eu
ROOT=$(cd "$(dirname "$0")/.." && pwd)
CACHE=${FERRY_CACHE:-$ROOT/.cache}
: "${CARGO_TARGET_DIR:=$ROOT/target}"
export CARGO_TARGET_DIR
mkdir -p "$CACHE"

die() {
    echo "$*" >&2
    exit 1
}

# install_packages PACKAGE...: Debian packages, if this user may install them; else says what to
# type.
install_packages() {
    if [ "$(id -u)" = 0 ]; then
        as_root=
    elif sudo -n true 2>/dev/null; then
        as_root="sudo -n"
    else
        die "These Debian packages are needed; as root type: apt-get install $*"
    fi
    echo "Installing by apt: $*"
    { $as_root apt-get update && $as_root apt-get install -y --no-install-recommends "$@"; } \
        >"$CACHE/apt.log" 2>&1 ||
        die "apt-get could not install $*; see $CACHE/apt.log"
}

need_compilers() {
    { command -v cc && command -v g++ && command -v make; } >/dev/null 2>&1 ||
        install_packages build-essential
}

# Rust: any cargo of at least 1.90. Debian 12's own is too old, so it comes by rustup.
need_cargo() {
    need_compilers
    PATH=$PATH:$HOME/.cargo/bin
    export PATH
    if command -v cargo >/dev/null; then
        found=$(cargo --version | sed -n 's/^cargo \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
        set -- $found
        if [ "${1:-0}" -gt 1 ] || [ "${2:-0}" -ge 90 ]; then
            return
        fi
        found=$(cargo --version)
        die "Ferry needs cargo 1.90 or newer, and this is $found. Type: rustup update stable"
    fi
    die "Ferry needs Rust's cargo, 1.90 or newer; Debian 12's package is older." \
        "Install it from https://rustup.rs, then come back."
}

need_python() {
    python3 -c 'import sys; assert sys.version_info >= (3, 9)' 2>/dev/null ||
        install_packages python3
    python3 -c 'import venv, ensurepip' 2>/dev/null || install_packages python3-venv
    headers=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
    [ -e "$headers/Python.h" ] || install_packages python3-dev
}

# Kernels with TIPC and what sets it up, for tests/tipc.
need_guests() {
    PATH=$PATH:/usr/sbin:/sbin
    export PATH
    { command -v linux.uml && command -v tipc && command -v tc; } >/dev/null 2>&1 ||
        install_packages user-mode-linux iproute2
}

# What bench/tipc boots: QEMU, tools for the guest, and Debian's kernel, unpacked in the cache.
need_counted_guest() {
    PATH=$PATH:/usr/sbin:/sbin
    export PATH
    for program in qemu-system-x86_64 busybox tipc tc ethtool dpkg; do
        command -v "$program" >/dev/null || {
            install_packages qemu-system-x86 busybox-static iproute2 ethtool
            break
        }
    done
    if ! ls "$CACHE"/kernel/boot/vmlinuz-* >/dev/null 2>&1; then
        kernel=$(apt-cache depends linux-image-amd64 |
            sed -n 's/.*Depends: *\(linux-image-[0-9][^ ]*\)$/\1/p' | head -n 1)
        [ -n "$kernel" ] ||
            die "apt knows no linux-image-amd64; as root type: apt-get update"
        (cd "$CACHE" && rm -f linux-image-*.deb && apt-get download "$kernel" &&
            rm -rf kernel && dpkg-deb -x linux-image-*.deb kernel && rm linux-image-*.deb) \
            >"$CACHE/kernel.log" 2>&1 ||
            die "The package $kernel does not come or does not unpack; see $CACHE/kernel.log"
    fi
}

# venv NAME PACKAGE...: a virtual environment under the cache with these packages. Prints its
# folder.
venv() {
    folder=$CACHE/$1
    shift
    if [ "$(cat "$folder/packages" 2>/dev/null)" != "$*" ]; then
        rm -rf "$folder"
        python3 -m venv "$folder" >&2
        "$folder/bin/python" -m pip install -q --disable-pip-version-check "$@" >&2 ||
            die "pip could not install $* into $folder"
        echo "$*" >"$folder/packages"
    fi
    echo "$folder"
}

# Builds the library and the commands, and installs them under FERRY_PREFIX or target/prefix.
# Prints nothing if all is well.
ferry_prefix() {
    need_cargo
    PREFIX=${FERRY_PREFIX:-$CARGO_TARGET_DIR/prefix}
    (cd "$ROOT" && cargo build -q --release -p ferry-abi -p ferry-abi-mpich -p ferry-abi-openmpi \
        -p ferry-cli -p ferry-mx) ||
        die "Ferry does not build."
    "$CARGO_TARGET_DIR/release/ferry" install --prefix "$PREFIX" >/dev/null
}
