#!/bin/bash
# deps.sh [list | PART...]: what building and testing need on a Debian machine, where it is missing.
#
#   build   compiler, Rust toolchain of rust-toolchain.toml with the static target
#   node    containerd, runc, network plugins, busybox: a node to run pods on
#   cluster a control plane and the reference kubelet, built with Go into the cache (once, ten minutes)
#   twin    what comparing with records of the reference needs
#   guest   the kernel of the cgroup v2 guest (a package that is unpacked into the cache, not installed)
#
# Without a part: all. `list` prints the packages. Quick when all is there: it asks dpkg before apt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cache=${STEPLET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/steplet}
say() { echo "deps: $*"; }

build=(gcc libc6-dev make musl-tools python3 util-linux)
cluster=(ca-certificates curl dpkg openssl)
twin=(curl python3-yaml)
node=(busybox-static containerd containernetworking-plugins iproute2 iptables runc util-linux)
guest=(busybox-static cpio dbus libpam-systemd systemd xz-utils)

packages() {
    local missing=() name
    for name; do
        # Another vendor's packages of these conflict with Debian's and do as well.
        case $name in containerd | runc) ! command -v "$name" >/dev/null || continue ;; esac
        [[ $(dpkg-query -Wf '${db:Status-Status}' "$name" 2>/dev/null) == installed ]] || missing+=("$name")
    done
    ((${#missing[@]})) || return 0
    command -v apt-get >/dev/null || { say "install these packages first: ${missing[*]}" >&2; exit 1; }
    ((UID == 0)) || { say "run as root: apt-get install ${missing[*]}" >&2; exit 1; }
    say "installing ${missing[*]}"
    # Lists may be old or absent; a failing mirror shows in the install that follows.
    apt-get update -qq || say "apt-get update failed, trying with the lists at hand"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

rust() {
    export PATH=$HOME/.cargo/bin:$PATH
    local target installed
    if ! command -v rustup >/dev/null; then
        packages ca-certificates curl
        # Debian 13 has a package; it would push out a cargo that is a package itself.
        if ! command -v cargo >/dev/null && LC_ALL=C apt-cache policy rustup | grep 'Candidate: [^(]' >/dev/null; then
            packages rustup
        else
            say "no package rustup here: running its official installer, sh.rustup.rs"
            curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
                sh -s -- -y -q --no-modify-path --profile minimal --default-toolchain none
        fi
    fi
    # Read from rust-toolchain.toml: rustup does not always install by itself.
    local channel
    channel=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
    target=$(uname -m)-unknown-linux-musl
    if ! rustup toolchain list | grep -q "^$channel-"; then
        say "installing Rust $channel"
        rustup -q toolchain install "$channel" --profile minimal --no-self-update
    fi
    installed=$(rustup component list --installed --toolchain "$channel")
    for part in clippy rustfmt; do
        grep -q "^$part" <<<"$installed" && continue
        say "adding $part"
        rustup -q component add --toolchain "$channel" "$part"
    done
    if ! grep -q "^rust-std-$target" <<<"$installed"; then
        say "adding the static target $target"
        rustup -q target add --toolchain "$channel" "$target"
    fi
}

# Any Go since 1.21 fetches the one that go.mod asks for. Where there is none (Debian 12 has 1.19), it is
# the same one from the module proxy: an archive that never changes, so its checksum can stand here.
golang() {
    local version=v0.0.1-go1.26.8 arch sum proxy
    [[ ! $(go env GOVERSION 2>/dev/null) =~ ^go1\.(2[1-9]|[3-9][0-9]) ]] || return 0
    [[ ! -x $cache/go/bin/go ]] || return 0
    case $(uname -m) in
        x86_64) arch=amd64 sum=30c2b1bf7dcc88d3eb0a1364e47ddd9128edb3110a30e8a0ef61cd5856b31de7 ;;
        aarch64) arch=arm64 sum=02b36b6787b3ac767668f630e2998df45a3b1f9ffee08d1bf3ef6487cd658d99 ;;
        *) say "no Go for $(uname -m): install 1.26" >&2; exit 1 ;;
    esac
    say "fetching Go ${version#*-} into the cache"
    mkdir -p "$cache"
    rm -rf "$cache/go.new"
    proxy=${GOPROXY:-https://proxy.golang.org}
    curl -sSfL -o "$cache/go.zip" "${proxy%%[,|]*}/golang.org/toolchain/@v/$version.linux-$arch.zip"
    echo "$sum  $cache/go.zip" | sha256sum --check --quiet
    python3 -m zipfile -e "$cache/go.zip" "$cache/go.new"
    rm -rf "$cache/go" "$cache/go.zip"
    mv "$cache/go.new/golang.org/toolchain@$version.linux-$arch" "$cache/go"
    rm -r "$cache/go.new"
    chmod +x "$cache"/go/pkg/tool/*/* "$cache"/go/bin/*
}

# The kernel is a Debian package of 40 MB: a program, so it needs no installation and no privileges.
kernel() {
    compgen -G "$cache/guest/user-mode-linux_*.deb" >/dev/null && return
    mkdir -p "$cache/guest"
    say "fetching the guest's kernel (user-mode-linux)"
    (cd "$cache/guest" && apt-get download -qq user-mode-linux 2>/dev/null) ||
        { apt-get update -qq; (cd "$cache/guest" && apt-get download -qq user-mode-linux); }
}

[[ ${1:-} != list ]] || { printf '%s\n' "${build[@]}" "${node[@]}" "${guest[@]}" "${cluster[@]}" "${twin[@]}" | sort -u; exit; }
(($#)) || set -- build node guest cluster
for part; do
    case $part in
        build) packages "${build[@]}"; rust ;;
        node) packages "${node[@]}" ;;
        guest) packages "${guest[@]}"; kernel ;;
        twin) python3 -c 'import yaml' 2>/dev/null || packages "${twin[@]}" ;;
        cluster) packages "${cluster[@]}"; golang; tests/e2e/cluster/build >/dev/null ;;
        *) say "no part $part: build, node, guest, cluster or twin" >&2; exit 2 ;;
    esac
done
