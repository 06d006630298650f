# SPDX-License-Identifier: Apache-2.0
# What the scripts of dev/ share; sourced after `cd` to the project's root.

say() {
    printf '%s\n' "$*"
}

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# packages_missing GROUP...: those of dev/packages that are not installed, one a line.
packages_missing() {
    for group; do
        while read -r has name command; do
            [ "$has" = "$group" ] || continue
            if [ -n "$command" ] && command -v "$command" >/dev/null 2>&1; then
                continue
            fi
            # One look at dpkg's own list is 100 times as fast as a dpkg-query for each.
            case "$installed" in
            *" $name "*) ;;
            *) say "$name" ;;
            esac
        done <dev/packages
    done
}

# packages_install GROUP...: installs what is missing, and nothing else. Needs root only then.
packages_install() {
    command -v apt-get >/dev/null || die "this is not Debian: install the packages of dev/packages by hand"
    installed=" $(dpkg-query -W -f '${db:Status-Status} ${Package}\n' 2>/dev/null |
        sed -n 's/^installed //p' | tr '\n' ' ') "
    missing=$(packages_missing "$@" | tr '\n' ' ')
    [ -n "$missing" ] || return 0
    [ "$(id -u)" = 0 ] || die "run as root, or install: $missing"
    say "installing: $missing"
    log=$(mktemp)
    # On a new machine unattended upgrades may hold dpkg's lock for a while.
    wait="-o DPkg::Lock::Timeout=300"
    # shellcheck disable=SC2086 # lists of words
    if ! { apt-get $wait update && DEBIAN_FRONTEND=noninteractive apt-get $wait install -y \
        --no-install-recommends $missing; } >"$log" 2>&1 </dev/null; then
        tail -n 30 "$log" >&2
        rm -f "$log"
        die "apt-get could not install: $missing"
    fi
    rm -f "$log"
}
