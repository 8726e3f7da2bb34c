// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The collectives behind the typed door: compiled once, for every type, layout and transport.
#include <shardgrad/comm/collectives.hpp>

#include "check.hpp"
#include "communicator_impl.hpp"

#include <shardgrad/core/elementwise.hpp>

#include <numeric>
#include <utility>

namespace shardgrad {

namespace detail {

namespace {

/// One collective call on its way to the lane: what is wrong with it here, and what the ranks compare.
class CollectiveCall {
 public:
  using Body = std::function<void(Transport&)>;

  CollectiveCall(const Communicator& comm, Call call, DataType type)
      : comm_(comm), rank_(comm.rank()), size_(static_cast<std::size_t>(comm.size())) {
    description_.call = call;
    description_.type = type;
  }

  std::size_t size() const { return size_; }
  std::size_t rank() const { return static_cast<std::size_t>(rank_); }
  CallDescription& description() { return description_; }
  bool has_error() const { return description_.error != ErrorCode::none; }

  /// The first thing that is wrong stays.
  void require(bool condition, const std::string& text) {
    if (condition || has_error()) return;
    description_.error = ErrorCode::invalid_argument;
    description_.error_text = std::string(name_of(description_.call)) + " on rank " + std::to_string(rank_) + " of " +
                              std::to_string(size_) + ": " + text;
  }

  void require_memory(const TensorRef& tensor) {
    Transport& transport = CommunicatorAccess::lane(comm_).transport();
    require(transport.supports(tensor.memory),
            "the view lies in device memory, which the transport '" + comm_.transport_name() + "' cannot carry");
  }

  void require_reduction(const AllReduceOptions& options) {
    const bool sums = options.op == ReduceOp::sum || options.op == ReduceOp::avg;
    require(
        options.scale == 1.0 || (sums && is_floating(description_.type)),
        "scale " + std::to_string(options.scale) + " was given; only sums and means of floating types can be scaled");
    description_.op = options.op;
    description_.algorithm = static_cast<std::uint8_t>(options.algorithm);
    description_.scale = options.scale;
  }

  Work submit(Body body) {
    const bool checked = *comm_.options().check_calls;
    if (!checked && has_error()) throw_error(description_.error, description_.error_text);
    std::string label = "shardgrad::" + std::string(name_of(description_.call));
    if (!checked) return comm_.enqueue(std::move(label), std::move(body));
    return comm_.enqueue(std::move(label),
                         [description = std::move(description_), body = std::move(body)](Transport& transport) {
                           check_call(transport, description);
                           body(transport);
                         });
  }

 private:
  const Communicator& comm_;
  int rank_;
  std::size_t size_;
  CallDescription description_;
};

std::string elements(std::size_t count) { return std::to_string(count) + (count == 1 ? " element" : " elements"); }

std::size_t sum_of(std::span<const std::size_t> counts) {
  return std::reduce(counts.begin(), counts.end(), std::size_t{0});
}

std::vector<std::size_t> offsets_of(std::span<const std::size_t> counts) {
  std::vector<std::size_t> offsets(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), std::size_t{0});
  return offsets;
}

bool uses_native(const Transport& transport, DataType type, const AllReduceOptions& options) {
  if (!is_floating(type)) return transport.supports_reduction(type, options.op);  // exact in any order
  const bool sums = options.op == ReduceOp::sum || options.op == ReduceOp::avg;
  return sums && options.algorithm == ReduceAlgorithm::native && transport.supports_reduction(type, ReduceOp::sum);
}

void reduce(Transport& transport, ConstBuffer send, Buffer receive, const AllReduceOptions& options,
            ReduceWorkspace& workspace) {
  if (!uses_native(transport, send.type, options)) {
    OrderedReduceOptions ordered;
    ordered.op = options.op;
    ordered.scale = options.scale;
    ordered.wire = {send.type, send.type};
    return ordered_all_reduce(transport, send, receive, ordered, workspace);
  }
  const bool mean = options.op == ReduceOp::avg;
  transport.all_reduce(send, receive, mean ? ReduceOp::sum : options.op)->wait();
  const double scale = mean ? options.scale / transport.size() : options.scale;
  if (scale != 1.0) convert(receive, receive, scale);
}

void exchange(Transport& transport, const TensorRef& send, const std::vector<std::size_t>& send_counts,
              const TensorRef& receive, const std::vector<std::size_t>& receive_counts) {
  const PackedInput input(send, overlap(send, receive));
  const PackedOutput output(receive);
  transport
      .all_to_all_v(input.buffer(), send_counts, offsets_of(send_counts), output.buffer(), receive_counts,
                    offsets_of(receive_counts))
      ->wait();
  output.finish();
}

void require_message(const Communicator& comm, const TensorRef& tensor, const char* call, const char* other_name,
                     int other, int tag) {
  const auto fail = [&](const std::string& text) {
    throw InvalidArgument(std::string(call) + " on rank " + std::to_string(comm.rank()) + " of " +
                          std::to_string(comm.size()) + ": " + text);
  };
  if (other < 0 || other >= comm.size()) fail(std::string(other_name) + " " + std::to_string(other) + " is no rank");
  if (tag < 0 || tag > 32766) fail("tag " + std::to_string(tag) + " is outside 0 to 32766");
  if (!CommunicatorAccess::lane(comm).transport().supports(tensor.memory))
    fail("the view lies in device memory, which the transport '" + comm.transport_name() + "' cannot carry");
}

}  // namespace

Work all_reduce(const Communicator& comm, const TensorRef& send, const TensorRef& receive,
                const AllReduceOptions& options) {
  CollectiveCall call(comm, Call::all_reduce, send.type);
  call.require_memory(send);
  call.require_memory(receive);
  call.require(send.count() == receive.count(),
               "the send view has " + elements(send.count()) + ", the receive view " + std::to_string(receive.count()));
  call.require_reduction(options);
  call.description().count = send.count();
  return call.submit(
      [&workspace = CommunicatorAccess::lane(comm).workspace(), send, receive, options](Transport& transport) {
        const PackedOutput output(receive);
        if (same_elements(send, receive)) {
          output.load();
          reduce(transport, output.buffer(), output.buffer(), options, workspace);
        } else {
          const PackedInput input(send, overlap(send, receive));
          reduce(transport, input.buffer(), output.buffer(), options, workspace);
        }
        output.finish();
      });
}

Work all_gather(const Communicator& comm, const TensorRef& send, const TensorRef& receive) {
  CollectiveCall call(comm, Call::all_gather, send.type);
  call.require_memory(send);
  call.require_memory(receive);
  call.require(receive.count() == call.size() * send.count(),
               "the send view has " + elements(send.count()) + ", so the receive view must have " +
                   std::to_string(call.size() * send.count()) + "; it has " + std::to_string(receive.count()));
  call.description().count = send.count();
  return call.submit([send, receive](Transport& transport) {
    const PackedInput input(send, overlap(send, receive));
    const PackedOutput output(receive);
    transport.all_gather(input.buffer(), output.buffer())->wait();
    output.finish();
  });
}

Work all_gather_v(const Communicator& comm, const TensorRef& send, const TensorRef& receive,
                  std::span<const std::size_t> counts) {
  CollectiveCall call(comm, Call::all_gather_v, send.type);
  call.require_memory(send);
  call.require_memory(receive);
  call.require(counts.size() == call.size(),
               std::to_string(counts.size()) + " counts were given for " + std::to_string(call.size()) + " ranks");
  if (!call.has_error()) {
    call.require(counts[call.rank()] == send.count(), "the send view has " + elements(send.count()) +
                                                          ", but the count of this rank is " +
                                                          std::to_string(counts[call.rank()]));
    call.require(sum_of(counts) == receive.count(), "the counts sum up to " + std::to_string(sum_of(counts)) +
                                                        ", but the receive view has " + elements(receive.count()));
  }
  std::vector<std::size_t> own(counts.begin(), counts.end());
  call.description().counts = own;
  return call.submit([send, receive, own = std::move(own)](Transport& transport) {
    const PackedInput input(send, overlap(send, receive));
    const PackedOutput output(receive);
    transport.all_gather_v(input.buffer(), output.buffer(), own, offsets_of(own))->wait();
    output.finish();
  });
}

Work reduce_scatter(const Communicator& comm, const TensorRef& send, const TensorRef& receive,
                    const AllReduceOptions& options) {
  CollectiveCall call(comm, Call::reduce_scatter, send.type);
  call.require_memory(send);
  call.require_memory(receive);
  call.require(send.count() == call.size() * receive.count(),
               "the receive view has " + elements(receive.count()) + ", so the send view must have " +
                   std::to_string(call.size() * receive.count()) + "; it has " + std::to_string(send.count()));
  call.require_reduction(options);
  call.description().count = receive.count();
  return call.submit(
      [&workspace = CommunicatorAccess::lane(comm).workspace(), send, receive, options](Transport& transport) {
        const PackedInput input(send, overlap(send, receive));
        const PackedOutput output(receive);
        OrderedReduceOptions ordered;
        ordered.op = options.op;
        ordered.scale = options.scale;
        ordered.wire = {send.type, send.type};
        const std::vector<std::size_t> counts(static_cast<std::size_t>(transport.size()), receive.count());
        ordered_reduce_scatter(transport, input.buffer(), output.buffer(), counts, ordered, workspace);
        output.finish();
      });
}

Work all_to_all(const Communicator& comm, const TensorRef& send, const TensorRef& receive) {
  CollectiveCall call(comm, Call::all_to_all, send.type);
  call.require_memory(send);
  call.require_memory(receive);
  call.require(send.count() == receive.count(),
               "the send view has " + elements(send.count()) + ", the receive view " + std::to_string(receive.count()));
  call.require(send.count() % call.size() == 0,
               elements(send.count()) + " cannot be divided into blocks for " + std::to_string(call.size()) + " ranks");
  call.description().count = send.count();
  const std::vector<std::size_t> counts(call.size(), send.count() / call.size());
  return call.submit(
      [send, receive, counts](Transport& transport) { exchange(transport, send, counts, receive, counts); });
}

Work all_to_all_v(const Communicator& comm, const TensorRef& send, std::span<const std::size_t> send_counts,
                  const TensorRef& receive, std::span<const std::size_t> receive_counts) {
  CollectiveCall call(comm, Call::all_to_all_v, send.type);
  call.require_memory(send);
  call.require_memory(receive);
  call.require(send_counts.size() == call.size() && receive_counts.size() == call.size(),
               std::to_string(send_counts.size()) + " and " + std::to_string(receive_counts.size()) +
                   " counts were given for " + std::to_string(call.size()) + " ranks");
  call.require(sum_of(send_counts) == send.count(), "the counts to send sum up to " +
                                                        std::to_string(sum_of(send_counts)) +
                                                        ", but the send view has " + elements(send.count()));
  call.require(sum_of(receive_counts) == receive.count(),
               "the counts to receive sum up to " + std::to_string(sum_of(receive_counts)) +
                   ", but the receive view has " + elements(receive.count()));
  std::vector<std::size_t> to(send_counts.begin(), send_counts.end());
  std::vector<std::size_t> from(receive_counts.begin(), receive_counts.end());
  call.description().counts = to;
  call.description().receive_counts = from;
  return call.submit([send, receive, to = std::move(to), from = std::move(from)](Transport& transport) {
    exchange(transport, send, to, receive, from);
  });
}

Work broadcast(const Communicator& comm, const TensorRef& tensor, int root) {
  CollectiveCall call(comm, Call::broadcast, tensor.type);
  call.require_memory(tensor);
  call.require(root >= 0 && root < comm.size(), "root " + std::to_string(root) + " is no rank");
  call.description().count = tensor.count();
  call.description().root = root;
  return call.submit([tensor, root](Transport& transport) {
    const PackedOutput output(tensor);
    if (transport.rank() == root) output.load();
    transport.broadcast(output.buffer(), root)->wait();
    if (transport.rank() != root) output.finish();
  });
}

Work send(const Communicator& comm, const TensorRef& tensor, int destination, int tag) {
  require_message(comm, tensor, "send", "destination", destination, tag);
  const auto input = std::make_shared<std::optional<PackedInput>>();
  return CommunicatorAccess::lane(comm).start(
      "shardgrad::send",
      [input, tensor, destination, tag](Transport& transport) {
        input->emplace(tensor);
        return transport.send((*input)->buffer(), destination, tag);
      },
      [input] {});
}

Work receive(const Communicator& comm, const TensorRef& tensor, int source, int tag) {
  require_message(comm, tensor, "receive", "source", source, tag);
  const auto output = std::make_shared<PackedOutput>(tensor);
  return CommunicatorAccess::lane(comm).start(
      "shardgrad::receive",
      [output, source, tag](Transport& transport) { return transport.receive(output->buffer(), source, tag); },
      [output] { output->finish(); });
}

}  // namespace detail

Work barrier(const Communicator& comm) {
  detail::CollectiveCall call(comm, detail::Call::barrier, DataType::uint8);
  return call.submit([](Transport& transport) { transport.barrier()->wait(); });
}

}  // namespace shardgrad
