#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fresh.sh - both commands of the README on a machine that has only git and make.
#
#     tools/fresh.sh              make demo with 20 steps, part of make test
#     FRESH_ALL=1 tools/fresh.sh  all of make test
#
# The machine is a chroot of Debian bookworm (debootstrap, minbase), made anew
# from a base that is kept in build-ci/fresh-base; the tree is a clone of the
# last commit, compiled with less optimisation and without AVX-512, which takes
# half as long; other parts of CI compile it as it is shipped. Where packages
# come from: as this machine's apt has it. Needs root and debootstrap; ends with 77 and "not run: WHY" where something is missing.
set -u
cd "$(dirname "$0")/.." || exit 1
mkdir -p build-ci
base=$PWD/build-ci/fresh-base
root=$PWD/build-ci/fresh-root

not_run() {
    echo "not run: $1"
    exit 77
}

[ "$(id -u)" -eq 0 ] || not_run "a chroot needs root"
command -v debootstrap >/dev/null || not_run "there is no debootstrap"
unshare --mount --pid --fork true 2>/dev/null ||
    not_run "this root may not make name spaces"

# The first source of this machine's apt that has the release.
mirror=$(apt-get indextargets --format '$(SITE) $(CODENAME)' \
    'Created-By: Packages' 2>/dev/null | awk '$2 == "bookworm" { print $1; exit }')
[ -n "$mirror" ] || not_run "apt of this machine knows no bookworm"
proxy=$(apt-config shell proxy Acquire::http::Proxy | sed "s/^proxy='\(.*\)'/\1/")
[ -z "$proxy" ] || export http_proxy=$proxy

if [ ! -e "$base/etc/debian_version" ]; then
    rm -rf "$base" "$base.part"
    echo "fresh: a base of Debian bookworm"
    debootstrap --variant=minbase --include=git,make,ca-certificates bookworm \
        "$base.part" "$mirror" >build-ci/fresh-base.log 2>&1 || {
        tail -n 3 build-ci/fresh-base.log
        rm -rf "$base.part"
        not_run "debootstrap fails; the network or its mirror"
    }
    mv "$base.part" "$base"
fi
rm -rf "$root"
cp -a --reflink=auto "$base" "$root" || exit 1
trap 'rm -rf "$root"' EXIT

# Names, certificates and sources of packages are this machine's.
cp --remove-destination /etc/resolv.conf /etc/hosts "$root/etc/"
rm -rf "$root/etc/apt"
cp -aL /etc/apt "$root/etc/apt"
# (links of the base point to places of this machine from here: never into them)
rm -rf "$root/usr/share/keyrings" "$root/etc/ssl/certs"
cp -aL /usr/share/keyrings "$root/usr/share/keyrings"
cp -aL /etc/ssl/certs "$root/etc/ssl/certs"
git clone -q "file://$PWD" "$root/lockstep" || exit 1

quick="OPT=-O1 DEBUG=-g0"
[ "$(uname -m)" != x86_64 ] || quick+=" ISAS='plain avx2'"

# A name space of processes of its own: all that was begun ends with it.
inside() { # COMMAND
    unshare --mount --pid --fork --kill-child \
        --mount-proc="$root/proc" chroot "$root" \
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        ${http_proxy:+http_proxy="$http_proxy"} \
        bash -c "mount -t devpts devpts /dev/pts -o newinstance,ptmxmode=0666 \
            2>/dev/null; cd /lockstep && export $quick && $1" </dev/null
}

# A part: every kind of script, those that need what is not there, and one each
# of the others. UNITS: nothing else is built of the unit tests.
subset="PARTS='unit scripts drills ranks table'"
subset+=" UNITS='base comm cli'"
subset+=" ONLY='cli mpi mpi_signals runner effects large terminal launched"
subset+=" data_ranks signals hash'"
[ -z "${FRESH_ALL:-}" ] || subset=

failed=0
inside 'make demo STEPS=20' || { failed=1; echo "FAILED make demo"; }
[ $failed -eq 1 ] || echo "ok make demo"
inside "make test $subset" || { failed=1; echo "FAILED make test"; }
[ $failed -eq 0 ]
