#!/usr/bin/env bash
# Brings what the conformance tests and the bench need: packages, the go-git
# client, the gix client. Idempotent, and quick when everything is there. What
# can't be had is said loudly; the tests then say which scenarios did not run.
set -u
cd "$(dirname "$0")"

say() { printf 'setup: %s\n' "$*" >&2; }

packages() {
    local missing=()
    command -v git >/dev/null || missing+=(git)
    command -v curl >/dev/null || missing+=(curl)
    command -v strace >/dev/null || missing+=(strace)
    command -v wrk >/dev/null || missing+=(wrk)
    [ -x /usr/sbin/nginx ] || missing+=(nginx-light)
    [ -x /usr/sbin/fcgiwrap ] || missing+=(fcgiwrap)
    [ "${#missing[@]}" -eq 0 ] && return 0
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        say "NOT INSTALLED (needs root and apt): ${missing[*]}"
        return 1
    fi
    # The packages would start their daemons; the tests start their own.
    local policy=/usr/sbin/policy-rc.d made=
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && made=yes
    fi
    say "installing ${missing[*]}"
    local failed=0
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >/dev/null || failed=1
    [ -n "$made" ] && rm -f "$policy"
    [ "$failed" -eq 0 ] || say "NOT INSTALLED: ${missing[*]}"
    return "$failed"
}

# stale PRODUCT SOURCES...: whether the product is missing or older than a source
stale() {
    local product=$1 source
    shift
    [ -x "$product" ] || return 0
    for source in "$@"; do [ "$source" -nt "$product" ] && return 0; done
    return 1
}

gogit() {
    stale go/bin/gogit go/cmd/gogit/main.go go/go.mod go/go.sum || return 0
    if ! command -v go >/dev/null; then
        say "NOT BUILT: the go-git client (no go)"
        return 1
    fi
    say "building the go-git client"
    (cd go && mkdir -p bin && go build -trimpath -o bin/gogit ./cmd/gogit) && return 0
    say "NOT BUILT: the go-git client"
    return 1
}

gixclient() {
    stale gix/bin/gixclient gix/src/main.rs gix/Cargo.toml gix/Cargo.lock || return 0
    say "building the gix client"
    (cd gix && cargo build --quiet --locked --target-dir target && mkdir -p bin &&
        cp target/debug/tidegate-conformance-gix bin/gixclient.next && mv bin/gixclient.next bin/gixclient) && return 0
    say "NOT BUILT: the gix client"
    return 1
}

failed=0
packages || failed=1
gogit || failed=1
gixclient || failed=1
if [ "${CI:-}" = true ]; then exit "$failed"; fi
exit 0
