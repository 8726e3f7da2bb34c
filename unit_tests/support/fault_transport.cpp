// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Faults are injected before a call reaches the transport below.
#include "support/fault_transport.hpp"

#include <gtest/gtest.h>

#include <shardgrad/comm/local/local_transport.hpp>

#include <exception>
#include <thread>
#include <utility>

namespace support {

namespace sg = shardgrad;

void FaultTransport::fail(sg::Collective collective, int call, sg::ErrorCode code, std::string text) {
  faults_.push_back({collective, call, code, std::move(text)});
}

void FaultTransport::delay(sg::Collective collective, std::chrono::milliseconds time) {
  delays_.push_back({collective, time});
}

void FaultTransport::before(sg::Collective collective) {
  for (const Delay& delay : delays_)
    if (delay.collective == collective) std::this_thread::sleep_for(delay.time);
  for (Fault& fault : faults_)
    if (fault.collective == collective && fault.calls_left-- == 0) sg::throw_error(fault.code, fault.text);
}

sg::RequestPtr FaultTransport::all_reduce(sg::ConstBuffer send, sg::Buffer receive, sg::ReduceOp op) {
  before(sg::Collective::all_reduce);
  return inner().all_reduce(send, receive, op);
}

sg::RequestPtr FaultTransport::all_gather(sg::ConstBuffer send, sg::Buffer receive) {
  before(sg::Collective::all_gather);
  return inner().all_gather(send, receive);
}

sg::RequestPtr FaultTransport::all_gather_v(sg::ConstBuffer send, sg::Buffer receive,
                                            std::span<const std::size_t> counts, std::span<const std::size_t> offsets) {
  before(sg::Collective::all_gather_v);
  return inner().all_gather_v(send, receive, counts, offsets);
}

sg::RequestPtr FaultTransport::all_to_all_v(sg::ConstBuffer send, std::span<const std::size_t> send_counts,
                                            std::span<const std::size_t> send_offsets, sg::Buffer receive,
                                            std::span<const std::size_t> receive_counts,
                                            std::span<const std::size_t> receive_offsets) {
  before(sg::Collective::all_to_all_v);
  return inner().all_to_all_v(send, send_counts, send_offsets, receive, receive_counts, receive_offsets);
}

sg::RequestPtr FaultTransport::broadcast(sg::Buffer buffer, int root) {
  before(sg::Collective::broadcast);
  return inner().broadcast(buffer, root);
}

sg::RequestPtr FaultTransport::send(sg::ConstBuffer buffer, int destination, int tag) {
  before(sg::Collective::send);
  return inner().send(buffer, destination, tag);
}

sg::RequestPtr FaultTransport::receive(sg::Buffer buffer, int source, int tag) {
  before(sg::Collective::receive);
  return inner().receive(buffer, source, tag);
}

sg::RequestPtr FaultTransport::barrier() {
  before(sg::Collective::barrier);
  return inner().barrier();
}

void on_faulty_threads(int size, const std::function<void(const sg::Communicator&, FaultTransport&)>& body,
                       const sg::CommunicatorOptions& options) {
  sg::CommunicatorOptions with_timeout = options;
  if (!with_timeout.timeout) with_timeout.timeout = std::chrono::seconds(30);
  auto transports = sg::detail::make_local_transports(size, *with_timeout.timeout);
  std::vector<std::thread> threads;
  for (auto& transport : transports) {
    threads.emplace_back([&body, &with_timeout, transport = std::move(transport)]() mutable {
      auto faulty = std::make_unique<FaultTransport>(std::move(transport));
      FaultTransport& faults = *faulty;
      try {
        body(sg::Communicator::from_transport(std::move(faulty), with_timeout), faults);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "exception: " << error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace support
