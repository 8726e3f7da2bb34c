# shellcheck shell=bash disable=SC2154  # root, cache, command, directory: set by docker/run, which sources this file
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Which environment docker/run uses, what commands see of the caller's variables, and the native and Docker ways.

say() { printf 'docker/run: %s\n' "$*" >&2; }

die() {
  say "error: $*"
  exit 1
}

# Prints native, docker or rootfs.
choose_environment() {
  local why
  case ${SHARDGRAD_ENVIRONMENT-} in
    '')
      if native_answers >/dev/null; then
        echo native
      elif docker_answers >/dev/null; then
        echo docker
      else
        echo rootfs
      fi
      ;;
    native) why=$(native_answers) || die "SHARDGRAD_ENVIRONMENT=native, but $why"; echo native ;;
    docker) why=$(docker_answers) || die "SHARDGRAD_ENVIRONMENT=docker, but $why"; echo docker ;;
    rootfs) echo rootfs ;;
    *) die "SHARDGRAD_ENVIRONMENT=$SHARDGRAD_ENVIRONMENT is none of native, docker, rootfs" ;;
  esac
}

describe_environment() {
  case $1 in
    native) echo "this machine (CMake finds Kokkos and MPI on it)" ;;
    docker) echo "Docker image $(docker_image)" ;;
    rootfs) echo "Debian 13 root file system $(rootfs_directory)" ;;
  esac
}

# Names the contents of the environment: the packages and how they are set up.
environment_hash() {
  {
    sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "$root/docker/packages.txt"
    grep -v "^# SPDX-License-Identifier" "$root/docker/set-up"  # the licence line changes nothing
    [ "$1" != docker ] || cat "$root/docker/Dockerfile"
    echo "without torch: ${SHARDGRAD_WITHOUT_TORCH:-0}"
  } | sha256sum | cut -c1-12
}

# Prints NAME=VALUE lines, NUL-terminated: all that a command in Docker or in the root file system sees. Only variables
# that mean the same there are handed on; search paths and compilers of the machine do not.
command_environment() {
  local name
  printf '%s\0' "HOME=/home/shardgrad" "LANG=C.UTF-8" "LC_ALL=C.UTF-8" "TERM=${TERM:-dumb}" \
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/games:/usr/local/cuda/bin" \
    "SHARDGRAD_ENVIRONMENT=native" \
    "GIT_CONFIG_COUNT=1" "GIT_CONFIG_KEY_0=safe.directory" "GIT_CONFIG_VALUE_0=*"
  # Checkouts at different places share one compiler cache, precompiled headers included.
  printf '%s\0' "CCACHE_BASEDIR=$root" "CCACHE_NOHASHDIR=1" "CCACHE_SLOPPINESS=pch_defines,time_macros"
  # MPI as root, more ranks than cores, and no look at the machine's network cards: all ranks are on this machine.
  printf '%s\0' "OMPI_ALLOW_RUN_AS_ROOT=1" "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1" \
    "OMPI_MCA_btl=${OMPI_MCA_btl-self,sm}" \
    "PRTE_MCA_rmaps_default_mapping_policy=${PRTE_MCA_rmaps_default_mapping_policy-:oversubscribe}" \
    "OMP_PROC_BIND=${OMP_PROC_BIND-false}"
  for name in $(compgen -e); do
    case $name in
      OMPI_ALLOW_* | OMPI_MCA_btl | PRTE_MCA_rmaps_default_mapping_policy | OMP_PROC_BIND) ;;
      SHARDGRAD_ENVIRONMENT | SHARDGRAD_CACHE_DIR) ;;
      CI | NO_COLOR | COLUMNS | SOURCE_DATE_EPOCH | NINJA_STATUS | CMAKE_BUILD_PARALLEL_LEVEL | CMAKE_COLOR_DIAGNOSTICS | \
        SHARDGRAD_* | CTEST_* | GTEST_* | OMP_* | OPENBLAS_* | KOKKOS_* | OMPI_* | PMIX_* | PRTE_* | MPICH_* | UCX_* | \
        FI_* | NCCL_* | CUDA_VISIBLE_DEVICES | ASAN_OPTIONS | LSAN_OPTIONS | TSAN_OPTIONS | UBSAN_OPTIONS | \
        http_proxy | https_proxy | no_proxy)
        printf '%s\0' "$name=${!name}"
        ;;
    esac
  done
}

# Succeeds if CMake finds Kokkos 5 and MPI on this machine; else prints what it did not find.
native_answers() {
  local tool scratch status=0
  for tool in cmake c++; do
    command -v "$tool" >/dev/null || { echo "there is no $tool on this machine"; return 1; }
  done
  scratch=$(mktemp -d)
  # Is there any Kokkos? Without a language this takes a tenth of a second. No version fits, so none is loaded.
  cat >"$scratch/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.20)
project(probe LANGUAGES NONE)
find_package(Kokkos 999 CONFIG QUIET)
if(NOT Kokkos_CONSIDERED_CONFIGS)
  message(FATAL_ERROR "no Kokkos")
endif()
CMAKE
  cmake -S "$scratch" -B "$scratch/quick" -DCMAKE_LIBRARY_ARCHITECTURE="$(c++ -print-multiarch 2>/dev/null)" \
    >/dev/null 2>&1 </dev/null || status=1
  if [ "$status" = 0 ]; then
    cat >"$scratch/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.20)
project(probe LANGUAGES CXX)
find_package(Kokkos 5 CONFIG REQUIRED)
find_package(MPI REQUIRED COMPONENTS CXX)
CMAKE
    cmake -S "$scratch" -B "$scratch/full" >/dev/null 2>"$scratch/errors" </dev/null || status=2
  fi
  case $status in
    1) echo "CMake finds no Kokkos on this machine (Kokkos_ROOT or CMAKE_PREFIX_PATH say where it is)" ;;
    2) echo "CMake finds no Kokkos 5 with MPI on this machine: $(grep -m 1 -E 'Could not find|Could NOT find' "$scratch/errors" | sed 's/^ *//')" ;;
  esac
  rm -rf "$scratch"
  return $((status != 0))
}

run_native() {
  export OMP_PROC_BIND=${OMP_PROC_BIND-false}
  if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
  exec "${command[@]}"
}

# Succeeds if a Docker engine answers; else prints why not.
docker_answers() {
  command -v docker >/dev/null || { echo "there is no docker command on this machine"; return 1; }
  timeout 10 docker info >/dev/null 2>&1 </dev/null || { echo "no Docker engine answers"; return 1; }
}

docker_image() { echo "shardgrad-environment:$(environment_hash docker)"; }

run_docker() {
  local image options variable
  image=$(docker_image)
  if ! docker image inspect "$image" >/dev/null 2>&1 </dev/null; then
    say "building $image (some minutes, once)"
    docker build --tag "$image" --build-arg "SHARDGRAD_WITHOUT_TORCH=${SHARDGRAD_WITHOUT_TORCH:-0}" "$root/docker" \
      >&2 </dev/null || die "docker build failed"
  fi
  mkdir -p "$cache/home"
  options=(--rm --init --interactive --volume "$root:$root" --volume "$cache/home:/home/shardgrad"
    --workdir "$directory" --shm-size 1g --cap-add SYS_PTRACE)
  [ ! -t 0 ] || [ ! -t 1 ] || options+=(--tty)
  # A rootless engine maps its root to the caller already.
  case $(docker info --format '{{.SecurityOptions}}' 2>/dev/null </dev/null) in
    *rootless*) ;;
    *) options+=(--user "$(id -u):$(id -g)") ;;
  esac
  while IFS= read -r variable; do
    options+=(--volume "$variable:$variable")
  done < <(git_directories)
  [ ! -d /usr/local/cuda/include ] || options+=(--volume "$(realpath /usr/local/cuda):/usr/local/cuda:ro")
  while IFS= read -r -d '' variable; do
    options+=(--env "$variable")
  done < <(command_environment)
  exec docker run "${options[@]}" "$image" "${command[@]}"
}

# Prints the folder of git's own files where it is not in the checkout (a worktree).
git_directories() {
  local common
  common=$(git -C "$root" rev-parse --path-format=absolute --git-common-dir 2>/dev/null) || return 0
  case $common/ in
    "$root"/*) ;;
    *) printf '%s\n' "$common" ;;
  esac
}
