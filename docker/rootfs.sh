# shellcheck shell=bash disable=SC2154  # root, cache, command, directory: set by docker/run, which sources this file
# The Debian 13 root file system: made once, cached, checked at each use.
#
# $cache/rootfs-HASH         a whole one; it appears by a rename, so a half-made one never has this name
# $cache/rootfs-HASH.making  one that is being made, or the remains of an interrupted attempt
# $cache/rootfs-HASH.lock    held exclusively while making, shared by each command that runs in it

rootfs_directory() { echo "$cache/rootfs-$(environment_hash rootfs)"; }

run_rootfs() {
  local rootfs variables=() variable
  rootfs=$(rootfs_directory)
  need_namespaces
  mkdir -p "$cache/home" 2>/dev/null || die "cannot create the cache directory $cache (SHARDGRAD_CACHE_DIR names another)"
  exec 9>"$rootfs.lock" || die "cannot write to the cache directory $cache"
  flock --shared 9
  if ! rootfs_works "$rootfs"; then
    if ! flock --exclusive --nonblock 9; then
      say "waiting for another docker/run that makes or uses it"
      flock --exclusive 9
    fi
    rootfs_works "$rootfs" || make_rootfs "$rootfs"
    flock --shared 9
  fi
  touch "$rootfs.lock"
  while IFS= read -r -d '' variable; do
    variables+=("$variable")
  done < <(command_environment)
  enter_rootfs "$rootfs" exec "$directory" "${variables[@]}" -- "${command[@]}"
}

# The options of unshare that make this user root in a mount namespace of its own.
namespaces() {
  if [ "$(id -u)" = 0 ]; then
    echo --mount
  else
    echo --mount --map-auto --map-root-user
  fi
}

need_namespaces() {
  local options
  read -r -a options < <(namespaces)
  command -v unshare >/dev/null || die "there is no unshare command (package util-linux)"
  # shellcheck disable=SC2015
  if ! unshare "${options[@]}" true 2>/dev/null; then
    if [ "$(id -u)" = 0 ]; then
      die "root may not make mount namespaces here (a container without CAP_SYS_ADMIN?): run it with more rights, or use Docker"
    elif ! grep -qs "^$(id -un):" /etc/subuid || ! command -v newuidmap >/dev/null; then
      die "without root this needs user namespaces with a range of ids: package uidmap and a line for $(id -un) in /etc/subuid and /etc/subgid"
    else
      die "neither root nor user namespaces: run as root, or allow them (sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces)"
    fi
  fi
}

# enter_rootfs DIRECTORY [exec] WORKING_DIRECTORY NAME=VALUE... -- CMD...
enter_rootfs() {
  local rootfs=$1 replace='' options
  shift
  [ "$1" != exec ] || { replace='exec'; shift; }
  read -r -a options < <(namespaces)
  $replace unshare "${options[@]}" "$BASH" "$root/docker/enter-rootfs" "$rootfs" "$root" "$cache/home" \
    "$(git_directories)" "$@"
}

# Is it whole, and do the tools in it start?
rootfs_works() {
  [ -e "$1/etc/shardgrad-environment" ] || return 1
  enter_rootfs "$1" / HOME=/ PATH=/usr/bin:/bin -- sh -c 'cmake --version && g++ --version && ninja --version &&
    mpicxx.openmpi --version && mpicxx.mpich --version && clang++-19 --version && ls /usr/lib/*/cmake/Kokkos/KokkosConfig.cmake' \
    >/dev/null 2>&1 </dev/null && return 0
  say "the root file system $1 is broken"
  return 1
}

# Makes the root file system. Nothing of a failed or killed attempt is taken for a whole one.
make_rootfs() {
  local rootfs=$1 making=$1.making log=$1.log mirror options start=$SECONDS
  remove_tree "$making" "$rootfs"
  need_disk
  need_mmdebstrap
  mirror=$(own_mirror)
  need_network "${mirror:-http://deb.debian.org/debian}"
  say "making the root file system (two minutes, once; log: $log)"
  read -r -a options < <(namespaces)
  # In a process namespace that dies with this script, an interrupted attempt leaves no process behind.
  # shellcheck disable=SC2016
  if ! setpriv --pdeathsig KILL unshare "${options[@]}" --pid --fork --kill-child --mount-proc \
    mmdebstrap --mode=root --variant=minbase \
    --customize-hook='mkdir -p "$1/opt/shardgrad"' \
    --customize-hook="copy-in '$root/docker/set-up' '$root/docker/packages.txt' /opt/shardgrad" \
    --customize-hook="SHARDGRAD_WITHOUT_TORCH=${SHARDGRAD_WITHOUT_TORCH:-0} chroot \"\$1\" /opt/shardgrad/set-up" \
    trixie "$making" ${mirror:+"deb $mirror trixie main"} >"$log" 2>&1 </dev/null 9>&-; then
    tail -n 15 "$log" >&2
    remove_tree "$making"
    die "could not make the Debian 13 root file system; the log is $log"
  fi
  rootfs_works "$making" || die "the root file system was made, but its tools do not start; the log is $log"
  mv -T "$making" "$rootfs"
  say "made the root file system in $((SECONDS - start)) s"
  remove_old "$rootfs"
}

# Removes trees; in the user's namespace, since their files belong to ids of it.
remove_tree() {
  local options tree
  read -r -a options < <(namespaces)
  for tree; do
    [ ! -e "$tree" ] || unshare "${options[@]}" rm -rf --one-file-system -- "$tree"
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

need_mmdebstrap() {
  command -v mmdebstrap >/dev/null && return
  command -v apt-get >/dev/null || die "there is neither Docker nor mmdebstrap, and no apt-get to install mmdebstrap with"
  [ "$(id -u)" = 0 ] || die "mmdebstrap is missing: install it as root (apt-get install mmdebstrap uidmap)"
  say "installing mmdebstrap on this machine"
  export DEBIAN_FRONTEND=noninteractive
  apt-get install --yes --no-install-recommends mmdebstrap debian-archive-keyring >"$cache/apt.log" 2>&1 </dev/null ||
    { apt-get update && apt-get install --yes --no-install-recommends mmdebstrap debian-archive-keyring; } \
      >"$cache/apt.log" 2>&1 </dev/null ||
    die "cannot install mmdebstrap: $(grep -m 1 '^E:' "$cache/apt.log" || echo "see $cache/apt.log")"
}

# Prints the Debian mirror of this machine's apt sources; nothing on other systems, where mmdebstrap's default serves.
own_mirror() {
  [ "$(. /etc/os-release && echo "$ID")" = debian ] || return 0
  find /etc/apt -maxdepth 2 -type f \( -name '*.sources' -o -name '*.list' \) -exec cat {} + |
    sed -nE -e 's/^URIs:[[:space:]]*//p' -e 's/^deb[[:space:]]+(\[[^]]*\][[:space:]]+)?([^[:space:]]+).*/\2/p' |
    awk '!done && $1 !~ /security/ && $1 ~ /debian/ { print $1; done = 1 }'
}

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
