// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What stands behind a Communicator, for the other files of this room.
#pragma once

#include "lane.hpp"

#include <shardgrad/comm/communicator.hpp>

namespace shardgrad {

class Communicator::Impl {
 public:
  /// Every field of `options` is set. \throws InvalidArgument for Progress::thread where the transport forbids it.
  Impl(std::unique_ptr<Transport> transport, CommunicatorOptions options);
  ~Impl() { lane->stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const CommunicatorOptions options;
  const std::shared_ptr<detail::Lane> lane;
};

namespace detail {

/// The way into a Communicator for this room.
struct CommunicatorAccess {
  using MakeTransport = std::function<std::unique_ptr<Transport>(const CommunicatorOptions&)>;

  static Communicator::Impl& impl(const Communicator& communicator) { return communicator.impl(); }
  static Lane& lane(const Communicator& communicator) { return *communicator.impl().lane; }

  /// Collective over the ranks of the transport that `make_transport` returns. What is wrong with the options or the
  /// environment of one rank is thrown on all.
  static Communicator make(const CommunicatorOptions& asked, const MakeTransport& make_transport);
  /// Local: for one process, where nothing can differ.
  static Communicator make_local(std::unique_ptr<Transport> transport, const CommunicatorOptions& resolved);
};

}  // namespace detail

}  // namespace shardgrad
