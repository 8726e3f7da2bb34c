# shellcheck shell=bash disable=SC2154  # root, cache, command, directory: set by docker/run, which sources this file
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The Debian 13 root file system: made once, cached, checked at each use.
#
# $cache/rootfs-HASH         a whole one; it appears by a rename, so a half-made one never has this name
# $cache/rootfs-HASH.making  one that is being made, or the remains of an interrupted attempt
# $cache/rootfs-HASH.lock    held exclusively while making, shared by each command that runs in it

rootfs_directory() { echo "$cache/rootfs-$(environment_hash rootfs)"; }

run_rootfs() {
  local rootfs variables=() variable
  rootfs=$(rootfs_directory)
  mkdir -p "$cache/home" 2>/dev/null || die "cannot create the cache directory $cache (SHARDGRAD_CACHE_DIR names another)"
  choose_isolation
  exec 9>"$rootfs.lock" || die "cannot write to the cache directory $cache"
  lock --shared
  if ! rootfs_works "$rootfs"; then
    lock --exclusive
    if ! rootfs_works "$rootfs"; then
      [ ! -e "$rootfs" ] || say "it is broken and made anew"
      make_rootfs "$rootfs"
    fi
    lock --shared
  fi
  touch "$rootfs.lock"
  while IFS= read -r -d '' variable; do
    variables+=("$variable")
  done < <(command_environment)
  enter_rootfs "$rootfs" exec "$directory" "${variables[@]}" -- "${command[@]}"
}

# Takes the lock on descriptor 9, which the command inherits; waits where another docker/run is in the way, and says so.
lock() {
  flock --nonblock "$1" 9 && return
  say "waiting for another docker/run that makes it"
  flock "$1" 9
}

# Sets `isolation` to the prefix of commands that become root and mount folders where nobody else sees it, or to nothing
# for root in a container that may not mount; proot(1) then stands in for the mounts, by tracing system calls.
choose_isolation() {
  local user
  user=$(id -un 2>/dev/null || id -u)
  if [ "$(id -u)" = 0 ]; then
    isolation=(unshare --mount)
    "${isolation[@]}" true 2>/dev/null && return
    isolation=()
    install_packages proot
    say "this container may not mount: proot stands in, and makes everything slower"
  else
    command -v newuidmap >/dev/null || die "without root this needs newuidmap: install the package uidmap as root"
    [ "$(grep -ls "^\($user\|$(id -u)\):" /etc/subuid /etc/subgid | wc -l)" = 2 ] ||
      die "without root this needs a range of user ids: /etc/subuid and /etc/subgid have no line for $user (usermod --add-subuids)"
    isolation=(unshare --mount --map-auto --map-root-user)
    "${isolation[@]}" true 2>/dev/null ||
      die "neither root nor user namespaces: run it as root or allow them (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)"
  fi
}

# enter_rootfs DIRECTORY [exec] WORKING_DIRECTORY NAME=VALUE... -- CMD...
enter_rootfs() {
  local rootfs=$1 replace=''
  shift
  [ "$1" != exec ] || { replace='exec'; shift; }
  $replace "${isolation[@]}" "$BASH" "$root/docker/enter-rootfs" "$([ ${#isolation[@]} = 0 ] && echo proot || echo mount)" \
    "$rootfs" "$root" "$cache/home" "$(git_directories)" "$@"
}

# Is it whole, and do the tools in it start?
rootfs_works() {
  [ -e "$1/etc/shardgrad-environment" ] || return 1
  enter_rootfs "$1" / HOME=/ PATH=/usr/bin:/bin -- sh -c 'cmake --version && g++ --version && ninja --version &&
    mpicxx.openmpi --version && mpicxx.mpich --version && clang++-19 --version && ls /usr/lib/*/cmake/Kokkos/KokkosConfig.cmake' \
    >/dev/null 2>&1 </dev/null
}

# Makes the root file system. Nothing of a failed or killed attempt is taken for a whole one.
make_rootfs() {
  local rootfs=$1 making=$1.making log=$1.log mirror maker start=$SECONDS
  remove_tree "$making" "$rootfs"
  need_disk
  command -v mmdebstrap >/dev/null || install_packages mmdebstrap debian-archive-keyring
  use_apt_proxy
  mirror=$(own_mirror)
  [ -z "$mirror" ] || need_network "$mirror"
  say "making the root file system (some minutes, once; log: $log)"
  # An interrupted attempt leaves no process behind: the kernel ends them together with this script.
  maker=("${isolation[@]}")
  [ ${#isolation[@]} = 0 ] || maker+=(--pid --fork --kill-child --mount-proc)
  # shellcheck disable=SC2016
  if ! setpriv --pdeathsig KILL "${maker[@]}" \
    mmdebstrap --mode=root --variant=minbase --include=ca-certificates \
    --customize-hook='mkdir -p "$1/opt/shardgrad"' \
    --customize-hook="copy-in '$root/docker/set-up' '$root/docker/packages.txt' /opt/shardgrad" \
    --customize-hook="SHARDGRAD_WITHOUT_TORCH=${SHARDGRAD_WITHOUT_TORCH:-0} chroot \"\$1\" /opt/shardgrad/set-up" \
    trixie "$making" ${mirror:+"deb $mirror trixie main"} >"$log" 2>&1 </dev/null; then
    tail -n 15 "$log" >&2
    remove_tree "$making"
    die "could not make the Debian 13 root file system; the log is $log"
  fi
  if ! rootfs_works "$making"; then
    remove_tree "$making"
    die "the Debian 13 root file system was made, but its tools do not start; the log is $log"
  fi
  mv -T "$making" "$rootfs"
  say "made the root file system in $((SECONDS - start)) s"
  remove_old "$rootfs"
}

# Removes trees; in the user's namespace, since their files belong to ids of it.
remove_tree() {
  local tree
  for tree; do
    [ ! -e "$tree" ] || "${isolation[@]}" rm -rf --one-file-system -- "$tree"
  done
}

# Removes root file systems of other package lists that no command uses and none has used for an hour.
remove_old() {
  local lock old
  for lock in "$cache"/rootfs-*.lock; do
    if [ "$lock" != "$1.lock" ] && [ -n "$(find "$lock" -mmin +60)" ]; then
      old=${lock%.lock}
      exec 8>>"$lock"
      if flock --exclusive --nonblock 8; then
        remove_tree "$old" "$old.making"
        rm -f "$lock" "$old.log"
      fi
      exec 8>&-
    fi
  done
}

need_disk() {
  local have
  have=$(df --output=avail -B 1M -- "$cache" | tail -n 1)
  [ "$have" -ge 4000 ] || die "the root file system needs 4000 MB, but $cache has $((have)) MB free (SHARDGRAD_CACHE_DIR names another place)"
}

# Installs packages on this machine where they are missing: what makes or enters the root file system.
install_packages() {
  local log=$cache/apt.log
  ! command -v "$1" >/dev/null || return 0
  command -v apt-get >/dev/null || die "there is no $1 on this machine, and no apt-get to install it with"
  [ "$(id -u)" = 0 ] || die "there is no $1 on this machine: install it as root (apt-get install $*)"
  say "installing $* on this machine"
  # A fresh container has no package index, or one that is too old.
  DEBIAN_FRONTEND=noninteractive sh -c 'apt-get install --yes --no-install-recommends "$@" ||
    { apt-get update && apt-get install --yes --no-install-recommends "$@"; }' sh "$@" >"$log" 2>&1 </dev/null ||
    die "cannot install $* (network, or rights?): $(grep '^E:' "$log" | tail -n 1)"
}

# Prints the Debian mirror of this machine's apt sources; nothing on other systems, where mmdebstrap's default serves.
own_mirror() {
  local mirror
  # shellcheck source=/dev/null
  [ "$(. /etc/os-release && echo "$ID")" = debian ] || return 0
  mirror=$(find /etc/apt -maxdepth 2 -type f \( -name '*.sources' -o -name '*.list' \) -exec cat {} + |
    sed -nE -e 's/^URIs:[[:space:]]*//p' -e 's/^deb[[:space:]]+(\[[^]]*\][[:space:]]+)?([^[:space:]]+).*/\2/p' |
    awk '!done && $1 !~ /security/ && $1 ~ /^(http|https|ftp|file|mirror\+file):.*debian/ { print $1; done = 1 }')
  case $mirror in
    # Cloud images keep a list of mirrors in a file.
    mirror+file:*) awk '!done && /^http/ { print $1; done = 1 }' "${mirror#mirror+file:}" ;;
    *) printf '%s\n' "$mirror" ;;
  esac
}

# A proxy that apt is told of serves mmdebstrap and the apt inside as well.
use_apt_proxy() {
  local settings
  settings=$(apt-config shell http_proxy Acquire::http::Proxy https_proxy Acquire::https::Proxy 2>/dev/null) || return 0
  eval "$settings"
  export http_proxy https_proxy
}

# Fetches a small file the way apt does, so that a missing network is named before anything is made.
need_network() {
  local helper=/usr/lib/apt/apt-helper file
  [ -x "$helper" ] || return 0
  file=$(mktemp)
  timeout 60 "$helper" -o Acquire::Retries=1 download-file "$1/dists/trixie/InRelease" "$file" >/dev/null 2>&1 </dev/null || {
    rm -f "$file"
    die "no network: cannot fetch $1/dists/trixie/InRelease"
  }
  rm -f "$file"
}
