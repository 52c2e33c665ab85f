#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# prefix.sh [DIR] - the libraries that Lockstep needs, without root.
#
# Downloads the Debian packages of libyaml, utf8proc, pcre2, zlib, zstd and
# cmocka with apt-get and unpacks them in DIR (default: ~/.local/lockstep);
# nothing is installed. A compiler and make must be there. Then, in each shell:
#
#     . ~/.local/lockstep/env && make
set -eu
prefix=${1:-$HOME/.local/lockstep}
wanted="libyaml-dev libutf8proc-dev libpcre2-dev zlib1g-dev libzstd-dev
    libcmocka-dev"

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || {
    echo "prefix: this system has no apt-get; docs/install.md says what" \
        "conda and Homebrew do" >&2
    exit 1
}
mkdir -p "$prefix/packages"
prefix=$(cd "$prefix" && pwd)
cd "$prefix/packages"

# With the libraries themselves, on which the packages of headers depend.
# shellcheck disable=SC2086
packages=$(for package in $wanted; do
    echo "$package"
    apt-cache depends --important "$package" |
        sed -n 's/^ *Depends: \(lib[a-z0-9.-]*\|zlib1g\)$/\1/p'
done | grep -v '^libc6' | sort -u)
# Lists of packages that only root may refresh can be refreshed in DIR.
# shellcheck disable=SC2086
apt-get -q download $packages || {
    mkdir -p "$prefix/lists/partial" "$prefix/cache"
    own="-o Dir::State::Lists=$prefix/lists -o Dir::Cache=$prefix/cache"
    apt-get -q $own update
    apt-get -q $own download $packages
}
for package in *.deb; do dpkg-deb -x "$package" "$prefix"; done

# Links to places of a system in which the package is installed.
find "$prefix" -type l | while read -r link; do
    target=$(readlink "$link")
    [ "${target#/}" = "$target" ] || ln -sf "$prefix$target" "$link"
done

triplet=$(gcc -dumpmachine 2>/dev/null || cc -dumpmachine)
libs=$prefix/usr/lib/$triplet:$prefix/lib/$triplet
cat >"$prefix/env" <<END
export CPATH="$prefix/usr/include:$prefix/usr/include/$triplet\${CPATH:+:\$CPATH}"
export LIBRARY_PATH="$libs\${LIBRARY_PATH:+:\$LIBRARY_PATH}"
export LD_LIBRARY_PATH="$libs\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
END
echo "prefix: in each shell: . $prefix/env"
