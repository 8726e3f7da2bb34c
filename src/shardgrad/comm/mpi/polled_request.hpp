// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// PolledRequest: what all requests of the MPI transport share: polling, the time limit, and the end.
#pragma once

#include "mpi_group.hpp"

#include <shardgrad/comm/transport.hpp>

namespace shardgrad::detail {

class PolledRequest : public Request {
 public:
  bool test() final;
  void wait() final;

 protected:
  /// `call` is named in the text of a Timeout.
  PolledRequest(MpiGroup& group, const char* call) : group_(group), call_(call) {}

  /// Makes progress; true when complete.
  virtual bool advance() = 0;
  /// For the destructor of the final class: waits, unless the group is aborted.
  void settle() noexcept;

  MpiGroup& group() const { return group_; }

 private:
  MpiGroup& group_;
  const char* call_;
  bool over_ = false;
};

}  // namespace shardgrad::detail
