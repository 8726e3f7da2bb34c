// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The size of the cache that row chunks are cut to.
#include <shardgrad/loss/options.hpp>

#include <unistd.h>

#include <initializer_list>

namespace shardgrad {

std::size_t last_level_cache_bytes() {
#ifdef _SC_LEVEL3_CACHE_SIZE
  for (const int level : {_SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE})
    if (const long bytes = sysconf(level); bytes > 0) return static_cast<std::size_t>(bytes);
#endif
  return std::size_t{32} << 20;
}

}  // namespace shardgrad
